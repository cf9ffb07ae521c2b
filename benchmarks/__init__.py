"""Benchmarks and their runner: `make bench`."""
