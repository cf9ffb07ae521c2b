"""Metrics and labels in the queries of the Grafana dashboard exist."""

import json
import re
from typing import Any

from tenure.metrics import METRICS
from tests.support.paths import ROOT
from tools.metrics.catalog import TEMPORALS
from tools.metrics.dashboard import FILE

DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
METRIC = re.compile(r"\b(?:tenure|karpenter|temporal)_[a-z0-9_]+")
ADDED = {"le", "activity_type", "workflow_type"}
"""Labels that Prometheus and Temporal's SDK add."""


def labels_by_sample() -> dict[str, set[str]]:
    """Labels by the names of samples."""
    found: dict[str, set[str]] = {}
    for one in METRICS:
        parts = ("_bucket", "_count", "_sum") if one.kind == "histogram" else ("",)
        found |= {one.name + part: set(one.labels) for part in parts}
    for name, kind, _ in TEMPORALS:
        found |= {name + part: set[str]() for part in (("_bucket", "_count") if kind == "histogram" else ("",))}
    return found


def test_queries_use_existing_metrics_and_labels() -> None:
    queries = {target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())}
    assert queries
    for query in sorted(queries):
        names = set(METRIC.findall(query))
        assert names and names <= labels_by_sample().keys(), query
        used_labels = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        used_labels |= set(re.findall(r"(\w+)=~?\"", query))
        assert all(used_labels - ADDED <= labels_by_sample()[name] for name in names), query


def test_every_runbook_of_a_panel_exists() -> None:
    found = set(re.findall(r"Runbook: ([\w/.-]+\.md)(?:#([\w-]+))?", FILE.read_text()))
    assert len(found) >= 8
    for page, section in found:
        titles = re.findall(r"^## (.+)$", (ROOT / page).read_text(), flags=re.M)
        assert not section or section in {title.lower().replace(" ", "-") for title in titles}, page
