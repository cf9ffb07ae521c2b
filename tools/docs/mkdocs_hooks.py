"""For mkdocs: what pages link to outside of docs/ is made part of the site, below `source/`, so that every link leads
somewhere and the strict build can check it. A folder becomes a list of its files.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
_BELOW: Final = "source"
_LINK: Final = re.compile(r"(\]\()([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add what is linked to, and what that links to."""
    seen: set[Path] = set()
    waiting = {target for page in DOCS.rglob("*.md") for target in _outside(page)}
    while waiting:
        target = waiting.pop()
        seen.add(target)
        if target.suffix == ".md":
            waiting |= set(_outside(target)) - seen
        files.append(File.generated(config, _uri(target), content=_content(target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links of docs/ that lead outside of it lead to the copies."""
    source = DOCS / page.file.src_uri
    return _rewritten(markdown, source, page.file.src_uri) if source.exists() else markdown


def _outside(page: Path) -> list[Path]:
    targets = (_target(page, link) for _, link in _LINK.findall(page.read_text()))
    return [target for target in targets if target and DOCS not in target.parents and target.exists()]


def _target(page: Path, link: str) -> Path | None:
    if "://" in link or link.startswith("mailto:"):
        return None
    found = (page.parent / link).resolve()
    return found if ROOT in found.parents else None


def _uri(target: Path) -> str:
    inside = target.relative_to(ROOT).as_posix()
    return f"{_BELOW}/{inside}/index.md" if target.is_dir() else f"{_BELOW}/{inside}"


def _content(target: Path) -> str | bytes:
    if target.is_dir():
        inside = target.relative_to(ROOT).as_posix()
        return f"# {inside}\n\n" + "".join(f"- `{name}`\n" for name in _tracked(inside))
    if target.suffix == ".md":
        return _rewritten(target.read_text(), target, _uri(target))
    return target.read_bytes()


def _tracked(folder: str) -> list[str]:
    listing = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, check=True, text=True)
    return listing.stdout.splitlines()


def _rewritten(markdown: str, source: Path, uri: str) -> str:
    """`uri`: where the page stands in the site."""

    def moved(found: "re.Match[str]") -> str:
        target = _target(source, found[2])
        if target is None or not target.exists():
            return found[0]
        inside = target.relative_to(DOCS).as_posix() if DOCS in target.parents else _uri(target)
        return found[1] + os.path.relpath(inside, Path(uri).parent)

    return _LINK.sub(moved, markdown)
