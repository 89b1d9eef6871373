"""Tests of the benchmarks: run with those of the package, by the same command."""
