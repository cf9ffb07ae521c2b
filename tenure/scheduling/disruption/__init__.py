"""Voluntary disruption: eligible nodes and their replacements."""
