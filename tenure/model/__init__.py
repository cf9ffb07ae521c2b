"""Frozen pydantic models that all other packages share. Nothing here does I/O."""
