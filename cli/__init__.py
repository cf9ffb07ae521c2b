"""The `tenure` command."""
