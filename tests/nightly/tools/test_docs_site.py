"""The documentation builds in strict mode, its search finds pages, and links of pages outside of it lead to files."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.screenshots.browser import Browser, NoBrowser, find_chromium

MKDOCS = Path(sys.executable).with_name("mkdocs")
SEARCH_IS_READY = "document.querySelector('.md-search-result__meta')?.textContent.includes('Type to start')"
"""Text that is typed before has no effect."""
NOT_IN_SITE = ("README.md", "CONTRIBUTING.md", "deploy/iam/README.md", "tenure/sandbox/aws/README.md")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [str(MKDOCS), "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return folder


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve the folder's files over HTTP. Yields the address."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("pause", "disruption/pause.html"),
        ("PDB", "disruption/drains.html"),
        ("spot interruption", "disruption/interruptions.html"),
        ("stuck node", "operating/runbooks/node-overdue.html"),
    ],
)
async def test_search_lists_the_page_first(site: Path, query: str, page: str) -> None:
    try:
        program = find_chromium()
    except NoBrowser as absent:
        pytest.skip(str(absent))
    with serve(site) as address:
        async with Browser(program) as browser:
            await browser.open(f"{address}/index.html")
            await browser.wait_for(SEARCH_IS_READY)
            await browser.write(query, into=".md-search__input")
            first = await browser.wait_for("document.querySelector('.md-search-result__item > a')?.href")
    assert first.startswith(f"{address}/{page}"), first


def test_site_builds_in_strict_mode(site: Path) -> None:
    assert (site / "source/deploy/alerts/tenure.yaml").exists()
    assert "<title>EC2NodeClass - Tenure</title>" in (site / "reference/kinds/ec2nodeclass.html").read_text()
    assert '<span class="nt">apiVersion</span>' in (site / "concepts/lifecycle-policy.html").read_text(), (
        "YAML is not highlighted"
    )


def test_links_of_pages_outside_the_site_lead_to_files() -> None:
    pages = [ROOT / name for name in NOT_IN_SITE]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())]
    files = [(page, link) for page, link in links if "://" not in link]
    assert files
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in files if not (page.parent / link).exists()] == []
