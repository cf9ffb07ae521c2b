"""`python -m cli`: the `tenure` command from its source."""

from cli.main import run

run()
