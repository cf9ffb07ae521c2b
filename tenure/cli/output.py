"""How commands answer: text for people, or JSON for scripts; one option and one check for all. Tables: `drawn.py`.

Rows as aligned columns, one line each: quick with thousands, and good for `grep`, `sort` and `awk`.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import typer

Output = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="For people, or for scripts.")]


def print_result(output: str, data: Any, *texts: str) -> None:
    """`data` as JSON, or what people read."""
    if output == "json":
        typer.echo(json.dumps(data, indent=2))
        return
    for one in texts:
        typer.echo(one)


def print_message(output: str, message: str, **more: Any) -> None:
    """One line, or `{"message": ...}`."""
    typer.echo(json.dumps({"message": message, **more}, indent=2) if output == "json" else message)


GAP: Final = "   "


def format_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The last column is as long as it is; each other is as wide as its widest cell."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return "\n".join(
        GAP.join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines
    )
