"""The documents: they build strictly, with every link and anchor, and show no command that there is not."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from cli.main import VERBS, app
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
MKDOCS = Path(sys.executable).with_name("mkdocs")


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_shown_is_one(page: Path) -> None:
    assert {command: unknown(command) for command in shown(page) if unknown(command)} == {}


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert unknown("explode --now") == "explode"
    assert unknown("pause --forever") == "--forever"
    assert unknown('pause --nodepool gpu --for 2h --reason "a b --c"') == ""


def test_every_command_is_in_the_table_and_in_the_readme() -> None:
    rows = re.findall(r"^\| [^|]+ \| (.+) \|$", (DOCS / "cli.md").read_text(), flags=re.MULTILINE)
    assert {word for row in rows for word in re.findall(r"`tenure ([a-z-]+)", row)} == set(VERBS)
    readme = (ROOT / "README.md").read_text().partition("\n## On the command line\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z-]+)[^`]*`", readme)) >= set(VERBS)


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = {page for part in yaml.safe_load(nav) for pages in part.values() for page in pages}
    assert named == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_every_phase_that_can_be_overdue_has_its_line_in_the_runbook() -> None:
    text = (DOCS / "runbooks/node-overdue.md").read_text()
    rows = re.findall(r"^\| ([A-Z][a-z]+) \|", text, flags=re.MULTILINE)
    assert rows == ["Phase", "Launch", "Registration", "Initialization", "Drain", "Termination"]


@pytest.mark.skipif(not MKDOCS.exists(), reason="mkdocs is not in this environment: `make setup`")
def test_the_site_builds_with_every_link_and_anchor(tmp_path: Path) -> None:
    command = [str(MKDOCS), "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "site/source/deploy/alerts/tenure.yaml").exists()
    shutil.rmtree(tmp_path / "site")
