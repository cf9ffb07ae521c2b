"""Renders the charts with Helm, which is built if it is missing."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tenure.sandbox.controlplane.tools import helm
from tests.support.paths import ROOT

CHART = ROOT / "deploy" / "charts" / "tenure"
CRD_CHART = ROOT / "deploy" / "charts" / "tenure-crds"
VALUES = Path(__file__).parent / "values"
MINIMAL_VALUES, CLOUD_VALUES, ALL_VALUES = (VALUES / f"{name}.yaml" for name in ("least", "cloud", "all"))
BUILD_SECONDS = 1200
"""For the first test on a new machine, which builds Helm."""
Document = dict[str, Any]


def run_helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm(), *arguments], capture_output=True, text=True)


def render_chart(
    values: Path = MINIMAL_VALUES, *more: str, chart: Path = CHART, namespace: str = "tenure"
) -> list[Document]:
    """The documents that an installation of the release `tenure` applies. `more`: flags of Helm."""
    result = run_helm("template", "tenure", chart, "--namespace", namespace, "--values", values, *more)
    assert result.returncode == 0, result.stderr
    return [document for document in yaml.safe_load_all(result.stdout) if document]


@cache
def render_crds(chart: Path = CRD_CHART) -> tuple[Document, ...]:
    result = run_helm("template", "tenure-crds", chart)
    assert result.returncode == 0, result.stderr
    return tuple(yaml.safe_load_all(result.stdout))


def rejection_message(*flags: str) -> str:
    """Helm's error for the least values with these flags, which it must reject."""
    result = run_helm("template", "tenure", CHART, "--values", MINIMAL_VALUES, *flags)
    assert result.returncode != 0, f"accepted: {flags}"
    return result.stderr


def single_document(documents: list[Document], kind: str) -> Document:
    (found,) = [one for one in documents if one["kind"] == kind]
    return found


def pod_of(documents: list[Document]) -> Document:
    spec: Document = single_document(documents, "Deployment")["spec"]["template"]["spec"]
    return spec


def worker_container(documents: list[Document]) -> Document:
    found: Document
    (found,) = [one for one in pod_of(documents)["containers"] if one["name"] == "worker"]
    return found


def environment_of(documents: list[Document]) -> dict[str, str]:
    """The container's environment variables with a literal value."""
    container = worker_container(documents)
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}
