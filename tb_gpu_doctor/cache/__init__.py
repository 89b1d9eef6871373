"""What was computed once and need not be again, in the user's own cache folder; never in a logdir."""
