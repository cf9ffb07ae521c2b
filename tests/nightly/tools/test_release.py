"""The files of a release: wheel, charts, notes and checksums."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from deploy.resources import chart_version
from tests.support.paths import ROOT
from tools.release import CHARTS, build, check_tag, release_notes

pytestmark = pytest.mark.timeout(600)


def test_release_has_the_wheel_the_charts_the_notes_and_their_checksums(tmp_path: Path) -> None:
    version, folder = chart_version(), tmp_path / "release"
    names = {one.name for one in build(folder)}
    charts = {f"{chart}-{version}.tgz" for chart in CHARTS}
    assert names == {f"tenure-{version}-py3-none-any.whl", "NOTES.md", "SHA256SUMS", *charts}
    result = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True)
    assert result.returncode == 0 and len(result.stdout.splitlines()) == len(names) - 1
    for chart in CHARTS:
        with tarfile.open(folder / f"{chart}-{version}.tgz") as archive:
            member = archive.extractfile(f"{chart}/Chart.yaml")
            assert member and yaml.safe_load(member.read())["version"] == version


def test_notes_are_the_section_of_the_version() -> None:
    changelog = "## Unreleased\n- new\n\n## 0.2.0 - 2026-11-26\n\n### Added\n- a\n\n## 0.1.0 - 2026-01-01\n- b\n"
    assert release_notes(changelog, "0.2.0") == "### Added\n- a\n"
    assert release_notes(changelog, "0.1.0") == "- b\n"
    with pytest.raises(ValueError, match="no section for the version"):
        release_notes(changelog, "0.3.0")
    assert release_notes((ROOT / "CHANGELOG.md").read_text(), chart_version()).startswith("### ")


def test_tag_of_another_version_is_rejected_before_anything_is_built() -> None:
    check_tag(f"v{chart_version()}", chart_version())
    with pytest.raises(ValueError, match=r"tag v0\.3\.0: .*0\.2\.0, expected the tag v0\.2\.0"):
        check_tag("v0.3.0", "0.2.0")
    done = subprocess.run([sys.executable, "-m", "tools.release", "v9.9.9"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "tag v9.9.9" in done.stderr and not done.stdout
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())["jobs"].values()
    first = next(one["run"] for one in job["steps"] if "run" in one)
    assert first == 'make release TAG="$VERSION"', "nothing is published before the check"


@pytest.mark.parametrize(
    ("name", "expected"), [("release", ["release", "image"]), ("checks", ["check", "unit", "test-deploy"])]
)
def test_workflow_pins_actions_by_commit_and_runs_existing_targets(name: str, expected: list[str]) -> None:
    text = (ROOT / ".github" / "workflows" / f"{name}.yaml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    actions = [one["uses"] for one in job["steps"] if "uses" in one]
    assert actions and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in actions)
    makefile = (ROOT / "Makefile").read_text()
    commands = "\n".join(one.get("run", "") for one in job["steps"])
    targets = re.findall(r"\bmake ([a-z-]+)", commands)
    assert targets == expected and all(f"\n{one}: " in makefile for one in targets)
    assert all((ROOT / one).exists() for one in re.findall(r"\btests/\S+", commands))
