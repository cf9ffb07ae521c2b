"""A cluster, Temporal and a simulated AWS on one machine, for the demo, the tests and the benchmarks."""
