"""The result of a command: a table, or JSON for scripts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import typer

from tenure.cli.exit_codes import DONE

Output = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")]
GAP: Final = "   "


@dataclass(frozen=True)
class Result:
    data: Any
    """For JSON."""
    parts: Sequence[object] = ()
    """Parts of the table output; printed with `str`, one per line."""
    code: int = DONE
    error: Exception | None = None
    """Raised after printing."""

    def print(self, output: str) -> int:
        """The exit code."""
        parts = [json.dumps(self.data, indent=2)] if output == "json" else self.parts
        for part in parts:
            typer.echo(part)
        if self.error:
            raise self.error
        return self.code


def message_result(message: str, code: int = DONE, **more: Any) -> Result:
    """One line, or `{"message": ...}`."""
    return Result({"message": message, **more}, [message], code)


def format_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Pad each column except the last to its widest cell. Faster than rich with thousands of rows."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return "\n".join(
        GAP.join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines
    )
