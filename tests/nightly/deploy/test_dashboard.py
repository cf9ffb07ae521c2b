"""Grafana accepts the shipped dashboard, and Prometheus its queries."""

import json
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.nightly.deploy.test_alerts import assert_promtool
from tools.metrics.dashboard import FILE

DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())


def test_grafana_schema_has_every_field() -> None:
    """Grafana's models drop unknown fields and reject values of another type."""
    register_default_plugins()
    read = Dashboard.from_json(DASHBOARD)
    assert find_unknown_fields(DASHBOARD, json.loads(JSONEncoder().encode(read))) == []


def find_unknown_fields(sent: Any, accepted: Any, where: str = "") -> list[str]:
    """Paths of fields that only `sent` has."""
    if isinstance(sent, dict) and isinstance(accepted, dict):
        shared = sorted(sent.keys() & accepted.keys())
        inside = [found for key in shared for found in find_unknown_fields(sent[key], accepted[key], f"{where}/{key}")]
        return [*(f"{where}/{key}" for key in sent.keys() - accepted.keys()), *inside]
    if isinstance(sent, list) and isinstance(accepted, list) and len(sent) == len(accepted):
        pairs = enumerate(zip(sent, accepted, strict=True))
        return [
            found for number, (one, other) in pairs for found in find_unknown_fields(one, other, f"{where}/{number}")
        ]
    return [] if sent == accepted else [where]


def test_prometheus_accepts_every_query(tmp_path: Path) -> None:
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    plain = [query.replace("$__rate_interval", "5m").replace("$nodepool", ".*") for query in queries]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(plain)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert_promtool("check", "rules", str(file))
