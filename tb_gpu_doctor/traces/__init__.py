"""Find the sessions of a logdir and decode their files into columns."""
