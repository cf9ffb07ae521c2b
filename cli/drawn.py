"""Answers with tables, as wide as the terminal."""

import sys
from typing import Any, Final

from rich.console import Console, RenderableType

from cli.output import answer

WIDE: Final = 240
"""Characters in a line where no terminal says how many there are: a row stays a line for `grep`."""


def console() -> Console:
    """Brackets in reasons are no markup."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def draw(output: str, data: Any, *shown: RenderableType) -> None:
    """`data` as JSON, or what people read, one below the other."""
    if output == "json":
        answer(output, data)
        return
    for one in shown:
        console().print(one)
