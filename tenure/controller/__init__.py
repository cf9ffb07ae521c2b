"""The watch: caches, digests of what changed, signals, and the host of the planner process."""
