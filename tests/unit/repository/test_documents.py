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


def documented_commands(page: Path) -> Iterator[str]:
    """Commands as one would type them: lines of code that begin with `tenure`, and inline code."""
    text = page.read_text()
    for line in re.findall(r"^    (?:\S*bin/)?tenure (.+)$", text, flags=re.MULTILINE):
        yield line.partition(" #")[0]
    for found in re.findall(r"`(?:\S*bin/)?tenure ([^`]+)`", text):
        yield " ".join(re.split(r"\\?\|", found)[0].split())


def find_unknown(command: str) -> str:
    """What of it there is not; empty when all is."""
    command_or_group: Any = get_command(app)
    for token in re.sub(r'"[^"]*"', "TEXT", command).replace("[", " ").replace("]", " ").split():
        name = token.partition("=")[0]
        if name.isupper():
            continue
        if hasattr(command_or_group, "get_command") and not name.startswith("-"):
            command_or_group = command_or_group.get_command(None, name)
            if command_or_group is None:
                return name
        elif re.fullmatch(r"--[a-z][a-z-]*", name) and not command_or_group.context_settings.get(
            "ignore_unknown_options"
        ):
            options = {
                one for parameter in command_or_group.params for one in (*parameter.opts, *parameter.secondary_opts)
            }
            if name not in options | {"--help"}:
                return name
    return ""


def test_every_command_in_the_documentation_exists() -> None:
    found = {
        (str(page.relative_to(ROOT)), command): find_unknown(command)
        for page in PAGES
        for command in documented_commands(page)
    }
    assert found
    assert {location: unknown_part for location, unknown_part in found.items() if unknown_part} == {}
