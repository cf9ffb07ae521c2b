"""The result of a command: a table, or JSON or YAML for scripts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import typer

from tenure.cli.exit_codes import DONE

Output = Annotated[Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="Output format.")]
DATA_FORMATS: Final = ("json", "yaml")
GAP: Final = "   "


@dataclass(frozen=True)
class Result:
    data: Any
    """For JSON and YAML."""
    parts: Sequence[object] = ()
    """Parts of the table output; printed with `str`, one per line."""
    code: int = DONE
    error: Exception | None = None
    """Raised after printing."""

    def print(self, output: str) -> int:
        """The exit code."""
        for part in [format_data(self.data, output)] if output in DATA_FORMATS else self.parts:
            typer.echo(part)
        if self.error:
            raise self.error
        return self.code


def format_data(data: Any, output: str) -> str:
    """As JSON or YAML."""
    if output == "json":
        return json.dumps(data, indent=2)
    import yaml  # noqa: PLC0415 - most commands do not need it

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip("\n")


def message_result(message: str, code: int = DONE, **more: Any) -> Result:
    """One line, or `{"message": ...}`."""
    return Result({"message": message, **more}, [message], code)


def format_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Pad each column except the last to its widest cell. Faster than rich with thousands of rows."""
    lines = [[name.upper() for name in head], *rows]
    widths = column_widths(lines)
    return "\n".join(format_row(line, widths) for line in lines)


def column_widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def fit_columns(
    widths: Mapping[str, int], optional: Sequence[str], width: int | None, gap: int = len(GAP)
) -> list[str]:
    """The names of the columns, without as many of the optional ones as `width` requires, first one first. All if
    `width` is None."""
    fitting = dict(widths)
    for name in optional if width else ():
        if sum(fitting.values()) + gap * (len(fitting) - 1) <= (width or 0):
            break
        fitting.pop(name, None)
    return list(fitting)


def format_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    *padded, last = cells
    return GAP.join([*(cell.ljust(width) for cell, width in zip(padded, widths, strict=False)), last])
