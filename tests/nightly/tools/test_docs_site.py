"""The documentation builds in strict mode, and links outside of it lead to files."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

MKDOCS = Path(sys.executable).with_name("mkdocs")
NOT_IN_SITE = ("README.md", "CONTRIBUTING.md", "deploy/iam/README.md", "tenure/sandbox/aws/README.md")


def test_site_builds_in_strict_mode(tmp_path: Path) -> None:
    command = [str(MKDOCS), "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    site = tmp_path / "site"
    assert (site / "source/deploy/alerts/tenure.yaml").exists()
    assert "<title>EC2NodeClass - Tenure</title>" in (site / "reference/kinds/ec2nodeclass.html").read_text()
    assert '<span class="nt">apiVersion</span>' in (site / "lifecycle-policy.html").read_text(), (
        "YAML is not highlighted"
    )


def test_links_of_pages_outside_the_site_lead_to_files() -> None:
    pages = [ROOT / name for name in NOT_IN_SITE]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())]
    files = [(page, link) for page, link in links if "://" not in link]
    assert files
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in files if not (page.parent / link).exists()] == []
