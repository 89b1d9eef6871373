"""The command ``gpu-doctor``, one file a subcommand."""
