"""Decisions as pure functions of facts, spec and time."""
