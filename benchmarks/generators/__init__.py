"""Generated inputs of the benchmarks: instance types, workloads and clusters."""
