"""Voluntary disruption: which nodes could go, and what would replace them. Pure, like all of scheduling."""
