"""Fuzzing of the compiled plane decoder: see run.sh."""
