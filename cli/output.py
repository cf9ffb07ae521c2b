"""How commands answer: text for people, or JSON for scripts; one option and one check for all. Tables: `drawn.py`."""

import json
from typing import Annotated, Any, Literal

import typer

Output = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="For people, or for scripts.")]


def answer(output: str, data: Any, *shown: str) -> None:
    """`data` as JSON, or what people read."""
    if output == "json":
        typer.echo(json.dumps(data, indent=2))
        return
    for one in shown:
        typer.echo(one)


def said(output: str, message: str, **more: Any) -> None:
    """One line, or `{"message": ...}`."""
    typer.echo(json.dumps({"message": message, **more}, indent=2) if output == "json" else message)
