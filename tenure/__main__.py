"""`python -m tenure`: the `tenure` command from its source."""

from tenure.cli.main import run

run()
