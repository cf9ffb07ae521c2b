"""Tables as wide as the terminal. They are separate from `output.py` because importing rich is slow."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tenure.cli.output import GAP
from tenure.model.errors import Finding, Level

WIDE: Final = 240
"""Characters per line if stdout is not a terminal, so that each row stays on one line for `grep`."""
_STYLES: Final[dict[Level, str]] = {"ok": "green", "advice": "yellow", "unknown": "cyan", "problem": "bold red"}
_ORDER: Final = tuple(_STYLES)


@dataclass(frozen=True)
class PrintableTable:
    table: Table

    def __str__(self) -> str:
        """Markup is off, because reasons contain brackets."""
        width = None if sys.stdout.isatty() else WIDE
        console = Console(width=width, markup=False, highlight=False, emoji=False)
        with console.capture() as captured:
            console.print(self.table)
        return captured.get().rstrip("\n")


def make_table(*columns: str | Column, rows: Iterable[Sequence[str | Text]], title: str = "") -> PrintableTable:
    """Without borders, like the tables of kubectl and of `output.format_columns`."""
    table = Table(
        *(one if isinstance(one, Column) else Column(one) for one in columns),
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, len(GAP), 0, 0),
        header_style="",
    )
    for column in table.columns:
        column.header = str(column.header).upper()
    for row in rows:
        table.add_row(*row)
    return PrintableTable(table)


def unwrapped(*names: str) -> list[Column]:
    return [Column(name, no_wrap=True) for name in names]


def folded(*names: str, min_width: int | None = None, max_width: int | None = None) -> list[Column]:
    """Columns whose long words continue on the next line instead of being cut off."""
    return [Column(name, overflow="fold", min_width=min_width, max_width=max_width) for name in names]


def format_findings(findings: Sequence[Finding]) -> list[object]:
    """A table, the remedies and a summary; the worst findings last, so that they are right above the prompt.

    Each remedy is one line, so that its commands can be copied.
    """
    ordered = sorted(findings, key=lambda finding: _ORDER.index(finding.level))
    table = make_table(
        *unwrapped("", "area"),
        *folded("subject", max_width=50),
        *folded("finding", max_width=90),
        rows=((Text(one.level, style=_STYLES[one.level]), one.area, one.subject, one.message) for one in ordered),
    )
    remedies = [line for one in ordered if one.todo for line in (f"{one.subject} ({one.level}):", f"  {one.todo}")]
    return [table, *(["", "TO DO", *remedies, ""] if remedies else []), summarize_findings(findings)]


def summarize_findings(findings: Sequence[Finding]) -> str:
    """`14 ok, 2 advice, 1 problem`."""
    counts = Counter(one.level for one in findings)
    return ", ".join(f"{counts[level]} {level}" for level in _ORDER if counts[level]) or "nothing was checked"
