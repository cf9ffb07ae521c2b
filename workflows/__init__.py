"""Deterministic workflows: they compute the next step from state and now, perform it, and wait."""
