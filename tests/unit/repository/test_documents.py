"""Commands that the documentation shows exist, with their options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from tenure.cli.main import app
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def shown(page: Path) -> Iterator[str]:
    """Commands as one would type them: lines of code that begin with `tenure`, and inline code."""
    text = page.read_text()
    for line in re.findall(r"^    (?:\S*bin/)?tenure (.+)$", text, flags=re.MULTILINE):
        yield line.partition(" #")[0]
    for found in re.findall(r"`(?:\S*bin/)?tenure ([^`]+)`", text):
        yield " ".join(re.split(r"\\?\|", found)[0].split())


def unknown(command: str) -> str:
    """What of it there is not; empty when all is."""
    at: Any = get_command(app)
    for word in re.sub(r'"[^"]*"', "TEXT", command).replace("[", " ").replace("]", " ").split():
        name = word.partition("=")[0]
        if name.isupper():
            continue
        if hasattr(at, "get_command") and not name.startswith("-"):
            at = at.get_command(None, name)
            if at is None:
                return name
        elif re.fullmatch(r"--[a-z][a-z-]*", name) and not at.context_settings.get("ignore_unknown_options"):
            options = {one for parameter in at.params for one in (*parameter.opts, *parameter.secondary_opts)}
            if name not in options | {"--help"}:
                return name
    return ""


def test_every_command_in_the_documentation_exists() -> None:
    found = {(str(page.relative_to(ROOT)), command): unknown(command) for page in PAGES for command in shown(page)}
    assert found
    assert {place: word for place, word in found.items() if word} == {}
