"""`tenure version`."""

from importlib.metadata import PackageNotFoundError, version

import typer

app = typer.Typer(add_completion=False)


@app.command()
def show() -> None:
    """Print the version."""
    typer.echo(f"tenure {installed()}")


def installed() -> str:
    try:
        return version("tenure")
    except PackageNotFoundError:
        return "(not installed: run from its source)"
