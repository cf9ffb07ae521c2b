"""Deterministic workflows: each computes the next step from its state and the time, executes it, and waits."""
