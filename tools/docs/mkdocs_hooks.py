"""MkDocs hooks: copy link targets outside of docs/, set titles, and give code blocks a language.

Linked files outside of docs/ become part of the site, below `source/`, so that the strict build checks every link. A
folder becomes a list of its files. MkDocs takes the title of a page only from its first line, so the comment before the
heading of a generated page is removed. Indented code is highlighted as YAML, JSON or shell, by its first line.
"""

import os
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
_BELOW: Final = "source"
_COMMENT: Final = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)
_INDENTED_CODE: Final = re.compile(
    r'(?<!-->\n)(<div class="language-text highlight"><pre><span></span><code>)(.*?)(</code></pre></div>)', re.DOTALL
)
"""Outputs follow a comment and are not highlighted."""
_SEARCH_BOOSTS: Final = {
    "source/": 0.2,
    "decisions/": 0.2,
    "contributing/testing": 0.2,
    "contributing/chaos": 0.1,
    "operating/runbooks/": 1.5,
    "reference/reasons/": 0.3,
    "reference/": 0.7,
}
"""By prefix of the page's path: pages for users rank before pages for contributors."""
_LINK: Final = re.compile(r"(\]\()([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add linked files, and recursively the files that they link to."""
    visited: set[Path] = set()
    waiting = {target for page in DOCS.rglob("*.md") for target in _outside_targets(page)}
    while waiting:
        target = waiting.pop()
        visited.add(target)
        if target.suffix == ".md":
            waiting |= set(_outside_targets(target)) - visited
        files.append(File.generated(config, _site_uri(target), content=_generated_content(target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Link to the copies, start with the heading, and set the search rank."""
    page.meta.setdefault("search", {"boost": _search_boost(page.file.src_uri)})
    source = DOCS / page.file.src_uri
    linked = _rewrite_links(markdown, source, page.file.src_uri) if source.exists() else markdown
    return _COMMENT.sub("", linked)


def _search_boost(uri: str) -> float:
    return next((boost for prefix, boost in _SEARCH_BOOSTS.items() if uri.startswith(prefix)), 1.0)


def on_page_content(html: str, **_: Any) -> str:
    """Highlight indented code, which has no language."""
    return _INDENTED_CODE.sub(lambda found: f"{found[1]}{_highlight(unescape(found[2]))}{found[3]}", html)


def _highlight(code: str) -> str:
    highlighted: str = highlight(code, get_lexer_by_name(_guess_language(code)), HtmlFormatter(nowrap=True))
    return highlighted


def _guess_language(code: str) -> str:
    if code.startswith(("{", "[{")):
        return "json"
    return "yaml" if re.match(r"(#.*\n)*[\w-]+:( |\n)", code) else "bash"


def _outside_targets(page: Path) -> list[Path]:
    targets = (_resolve_link(page, link) for _, link in _LINK.findall(page.read_text()))
    return [target for target in targets if target and DOCS not in target.parents and target.exists()]


def _resolve_link(page: Path, link: str) -> Path | None:
    if "://" in link or link.startswith("mailto:"):
        return None
    found = (page.parent / link).resolve()
    return found if ROOT in found.parents else None


def _site_uri(target: Path) -> str:
    inside = target.relative_to(ROOT).as_posix()
    return f"{_BELOW}/{inside}/index.md" if target.is_dir() else f"{_BELOW}/{inside}"


def _generated_content(target: Path) -> str | bytes:
    if target.is_dir():
        inside = target.relative_to(ROOT).as_posix()
        return f"# {inside}\n\n" + "".join(f"- `{name}`\n" for name in _tracked_files(inside))
    if target.suffix == ".md":
        return _rewrite_links(target.read_text(), target, _site_uri(target))
    return target.read_bytes()


def _tracked_files(folder: str) -> list[str]:
    listing = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, check=True, text=True)
    return listing.stdout.splitlines()


def _rewrite_links(markdown: str, source: Path, uri: str) -> str:
    """`uri`: path of the page in the site."""

    def rewrite_link(found: "re.Match[str]") -> str:
        target = _resolve_link(source, found[2])
        if target is None or not target.exists():
            return found[0]
        inside = target.relative_to(DOCS).as_posix() if DOCS in target.parents else _site_uri(target)
        return found[1] + os.path.relpath(inside, Path(uri).parent)

    return _LINK.sub(rewrite_link, markdown)
