"""The world on one machine, from real parts: used by the demo, the tests and the benchmarks."""
