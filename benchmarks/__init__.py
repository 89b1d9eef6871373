"""Benchmarks of the decoder and the diagnosis, against the stock Profiler."""
