"""`python -m tenure`: the `tenure` command from its source."""

from tenure.cli.completion import run

run()
