"""Each file that states the version states the version of pyproject.toml."""

import re
import tomllib

import pytest
import yaml

from tenure.kube.doctor import MAX_VERSION, MIN_VERSION
from tenure.sandbox.controlplane.versions import RELEASES
from tests.support.paths import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
IMAGE = re.compile(r"REGISTRY/tenure:(\d[\w.-]*)")


@pytest.mark.parametrize("chart", ["tenure", "tenure-crds"])
def test_chart_and_its_image_have_the_version(chart: str) -> None:
    metadata = yaml.safe_load((ROOT / "deploy" / "charts" / chart / "Chart.yaml").read_text())
    assert (metadata["version"], metadata["appVersion"]) == (VERSION, VERSION)


def test_images_are_tagged_with_the_version() -> None:
    pages = [ROOT / "README.md", ROOT / "deploy" / "Dockerfile", *(ROOT / "docs").rglob("*.md")]
    tags = {(page.name, tag) for page in pages for tag in IMAGE.findall(page.read_text())}
    assert {tag for _, tag in tags} == {VERSION}, tags


def test_changelog_begins_with_the_version_and_lists_releases_newest_first() -> None:
    releases = re.findall(r"^## \[?(\d+\.\d+\.\d+)\]? - \d{4}-\d{2}-\d{2}$", CHANGELOG, flags=re.MULTILINE)
    assert releases[0] == VERSION
    assert releases == sorted(releases, key=lambda one: tuple(map(int, one.split("."))), reverse=True)


def test_supported_versions_of_kubernetes_are_the_same_everywhere_and_tested_at_both_ends() -> None:
    low, high = (".".join(map(str, bound)) for bound in (MIN_VERSION, MAX_VERSION))
    assert (min(RELEASES), max(RELEASES)) == (low, high)
    assert f"KUBERNETES ?= {low} {high}\n" in (ROOT / "Makefile").read_text()
    for chart in ("tenure", "tenure-crds"):
        metadata = yaml.safe_load((ROOT / "deploy" / "charts" / chart / "Chart.yaml").read_text())
        assert metadata["kubeVersion"] == f">={low}.0-0"
    for page in ("README.md", "docs/getting-started/install.md", "docs/concepts/karpenter-1.15.md"):
        ranges = re.findall(r"\b(1\.\d+) to (1\.\d+)\b", (ROOT / page).read_text())
        assert set(ranges) == {(low, high)}, page
