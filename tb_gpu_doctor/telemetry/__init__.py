"""Reads back what monitors recorded beside training, as numpy columns, and measures it."""
