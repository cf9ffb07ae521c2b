"""Render docs/reference/reasons: one page per code with its meaning, causes and commands."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tenure.model.blockers import BLOCKERS, INELIGIBILITIES, PENDING_PODS, REASONS, Reason

SOURCE: Final = Path(__file__).with_name("reasons.toml")
_WRITTEN: Final = (
    "<!-- Written by `python -m tools.generate`: change tenure/model/blockers.py or tools/docs/reasons.toml, "
    "not this page. -->\n"
)
_REGISTRIES: Final = (
    (BLOCKERS, "blocker of a node, in `TenureBlockedBy`, `tenure get`, `tenure why` and `tenure stuck`"),
    (INELIGIBILITIES, "reason why a node is not disrupted, in `tenure why` and `tenure plan`"),
    (PENDING_PODS, "reason why a pod is pending, in its events, `tenure why` and `tenure stuck`"),
)


def read_folders() -> Mapping[str, Mapping[str, Any]]:
    """The tables of the source by folder."""
    return tomllib.loads(SOURCE.read_text())


def codes_of(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables of its codes."""
    return [found for code, found in table.items() if code != "commands"]


def render_pages(folder: Path) -> Mapping[Path, str]:
    """Text by path. Raises KeyError for a code that is not in `tenure/model/blockers.py`."""
    return {
        folder / path: _render_page(code, REASONS[code], found["causes"], (*commands, *found["commands"]))
        for path, code, commands, found in _iter_codes()
    }


def pages_by_code() -> Mapping[str, str]:
    """Path of each page, relative to docs/reference."""
    return {code: path for path, code, _, _ in _iter_codes()}


def _iter_codes() -> Iterator[tuple[str, str, list[str], Mapping[str, Any]]]:
    """Path, code, commands of the folder, and table of each code."""
    for name, table in read_folders().items():
        for code, found in table.items():
            if code != "commands":
                yield f"reasons/{name}/{code}.md", code, table["commands"], {"commands": [], **found}


def _render_page(code: str, reason: Reason, causes: list[str], commands: tuple[str, ...]) -> str:
    uses = [use for registry, use in _REGISTRIES if code in registry]
    attention = "no" if reason.clears_by_itself else "yes, it does not clear by itself"
    lines = [
        _WRITTEN + f"# {code}\n",
        f"| | |\n| --- | --- |\n| Meaning | {reason.meaning} |",
        *(f"| Shown as | {use} |" for use in uses),
        f"| Needs attention | {attention} |",
        f"| Action | {reason.remedy or 'none: it ends without an action'} |\n",
        "## Causes",
        *(f"- {cause}" for cause in causes),
        "\n## Commands",
        "```bash",
        *commands,
        "```\n",
        "[All codes](../../reasons.md)\n",
    ]
    return "\n".join(lines)
