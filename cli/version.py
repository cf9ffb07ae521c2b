"""`tenure version`."""

from importlib.metadata import PackageNotFoundError, version

import typer

from cli.output import Output, answer

app = typer.Typer(add_completion=False)


@app.command()
def show(output: Output = "table") -> None:
    """Print the version."""
    answer(output, {"version": installed()}, f"tenure {installed()}")


def installed() -> str:
    try:
        return version("tenure")
    except PackageNotFoundError:
        return "(not installed: run from its source)"
