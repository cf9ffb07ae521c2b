"""How commands answer: a table for people, or JSON for scripts; one option and one check for all of them."""

import json
import sys
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console, RenderableType

Output = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="For people, or for scripts.")]
WIDE: Final = 240
"""Characters in a line where no terminal says how many there are: a row stays a line for `grep`."""


def console() -> Console:
    """Brackets in reasons are no markup."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def answer(output: str, data: Any, *shown: RenderableType) -> None:
    """`data` as JSON, or what people read: text as it is, tables as wide as the terminal."""
    if output == "json":
        typer.echo(json.dumps(data, indent=2))
        return
    for one in shown:
        if isinstance(one, str):
            typer.echo(one)
        else:
            console().print(one)


def said(output: str, message: str, **more: Any) -> None:
    """One line, or `{"message": ...}`."""
    typer.echo(json.dumps({"message": message, **more}, indent=2) if output == "json" else message)
