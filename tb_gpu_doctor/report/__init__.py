"""A diagnosis for its readers: JSON for programs, text for people, both in the language asked for."""
