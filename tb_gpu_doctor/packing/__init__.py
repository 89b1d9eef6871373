"""Packs: a run in one file for somebody else, complete or slim, with names or without, and the way back into a tab."""
