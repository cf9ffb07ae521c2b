"""Answers with tables, as wide as the terminal.

Findings for the eye: a table, worst last so that it stands above the prompt, and one line that sums it up.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tenure.cli.output import print_result
from tenure.model.errors import Finding, Level

WIDE: Final = 240
"""Characters in a line where no terminal says how many there are: a row stays a line for `grep`."""


def make_console() -> Console:
    """Brackets in reasons are no markup."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def print_renderables(output: str, data: Any, *renderables: RenderableType) -> None:
    """`data` as JSON, or what people read, one below the other."""
    if output == "json":
        print_result(output, data)
        return
    for one in renderables:
        make_console().print(one)


_STYLES: Final[dict[Level, str]] = {"ok": "green", "advice": "yellow", "unknown": "cyan", "problem": "bold red"}
_ORDER: Final = tuple(_STYLES)


def findings_table(findings: Sequence[Finding]) -> Table:
    table = Table(expand=False, show_lines=False)
    table.add_column("", no_wrap=True)
    table.add_column("area", no_wrap=True)
    table.add_column("what", overflow="fold", max_width=38)
    table.add_column("found", overflow="fold", max_width=60)
    table.add_column("to do", overflow="fold", max_width=50)
    for one in sorted(findings, key=lambda finding: _ORDER.index(finding.level)):
        table.add_row(Text(one.level, style=_STYLES[one.level]), one.area, one.subject, one.message, one.todo)
    return table


def summarize_findings(findings: Sequence[Finding]) -> str:
    """`14 ok, 2 advice, 1 problem`."""
    counts = Counter(one.level for one in findings)
    return ", ".join(f"{counts[level]} {level}" for level in _ORDER if counts[level]) or "nothing was looked at"
