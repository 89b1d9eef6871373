"""Faults that can be planted in a simulated run, alone or together, at any strength."""
