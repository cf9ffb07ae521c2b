"""`tenure worker`: the controller's process, as the image starts it.

It takes this process's place, so that signals, exit code and logs are the worker's own.
"""

import os
import sys
from pathlib import Path

import typer

app = typer.Typer(add_completion=False)
ROOT = Path(__file__).parents[1]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def worker(context: typer.Context) -> None:
    """Run the worker. Settings come from the environment and flags; `tenure worker --help` lists them."""
    os.execv(sys.executable, command(context.args))


def command(arguments: list[str]) -> list[str]:
    """The worker by its path, so that it starts from any folder."""
    return [sys.executable, str(ROOT / "worker.py"), *arguments]
