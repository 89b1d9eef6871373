"""Logs that people have of their GPUs, of nvidia-smi and of DCGM: a reader a format, all into one `Log`."""
