"""The Grafana dashboard: in Grafana's form, every query one of Prometheus' on metrics and labels that there are."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.dashboard import FILE
from deploy.measures import MEASURES, TEMPORALS
from tests.nightly.deploy.test_alerts import METRIC, checked

DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
UNITS = {"short", "s", "currencyUSD"}
ADDED = {"le", "activity_type", "workflow_type"}
"""Labels that Prometheus and Temporal's SDK add."""


def queries() -> Iterator[str]:
    return (target["expr"] for panel in PANELS for target in panel["targets"])


def known() -> dict[str, set[str]]:
    """Labels by the names of samples."""
    found: dict[str, set[str]] = {}
    for one in MEASURES:
        parts = ("_bucket", "_count", "_sum") if one.kind == "histogram" else ("",)
        found |= {one.name + part: set(one.labels) for part in parts}
    for name, kind, _ in TEMPORALS:
        found |= {name + part: set[str]() for part in (("_bucket", "_count") if kind == "histogram" else ("",))}
    return found


def test_grafanas_schema_has_a_place_for_all_of_it() -> None:
    """Its models drop what they do not know, and refuse what is of another type."""
    register_default_plugins()
    read = Dashboard.from_json(DASHBOARD)
    assert unknown(DASHBOARD, json.loads(JSONEncoder().encode(read))) == []


def unknown(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Paths of what is ours only."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        both = sorted(ours.keys() & theirs.keys())
        inside = [found for key in both for found in unknown(ours[key], theirs[key], f"{where}/{key}")]
        return [*(f"{where}/{key}" for key in ours.keys() - theirs.keys()), *inside]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [found for number, (one, other) in pairs for found in unknown(one, other, f"{where}/{number}")]
    return [] if ours == theirs else [where]


def test_it_has_what_grafana_asks_of_a_dashboard() -> None:
    assert DASHBOARD["schemaVersion"] >= 36 and DASHBOARD["uid"] and DASHBOARD["title"]
    numbers = [one["id"] for one in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers) >= 20
    for panel in PANELS:
        assert panel["type"] in ("timeseries", "stat") and panel["title"] and panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(set(references)) == len(references)
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        across, down = (range(place[at], place[at] + place[size]) for at, size in ("xw", "yh"))
        fields = {(x, y) for x in across for y in down}
        assert across.stop <= 24 and not fields & taken, panel["title"]
        taken |= fields


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_asks_for_metrics_and_labels_that_there_are(query: str) -> None:
    names = set(METRIC.findall(query))
    assert names and names <= known().keys()
    asked = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
    asked |= set(re.findall(r"(\w+)=~?\"", query))
    for name in names:
        assert asked - ADDED <= known()[name], name


def test_every_line_is_called_by_labels_that_its_query_leaves() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            kept = re.findall(r"by \(([^)]*)\)", target["expr"])
            left = {label.strip() for label in kept[0].split(",")} if kept else set()
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= left, target["expr"]


def test_every_variable_is_used_and_none_is_unknown() -> None:
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps(DASHBOARD["panels"])))
    assert used - {"__rate_interval"} == variables
    (pools,) = (one for one in DASHBOARD["templating"]["list"] if one["type"] == "query")
    assert set(METRIC.findall(pools["query"]["query"])) <= known().keys()


def test_prometheus_takes_every_query(tmp_path: Path) -> None:
    plain = [query.replace("$__rate_interval", "5m").replace("$nodepool", ".*") for query in queries()]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(plain)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked("check", "rules", str(file))
