"""The Grafana dashboard, deploy/dashboards/tenure.json: rows of panels with queries and units.

`python -m tools.generate` writes it. Import it into Grafana and select the Prometheus that scrapes the workers.
"""

import json
from pathlib import Path
from typing import Any, Final

from tools.metrics.panels import ROWS, Panel

FILE: Final = Path(__file__).parents[2] / "deploy" / "dashboards" / "tenure.json"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 8, 8
_ACROSS: Final = 24


def text() -> str:
    return json.dumps(build_dashboard(), indent=1) + "\n"


def build_dashboard() -> dict[str, Any]:
    """Grafana's classic dashboard format, schema version 39, for Grafana 10.3 and later."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(_build_row(title, len(panels) + 1, top))
        top += 1
        for number, panel in enumerate(row):
            across, down = number % (_ACROSS // _WIDTH), number // (_ACROSS // _WIDTH)
            grid_position = {"h": _HEIGHT, "w": _WIDTH, "x": across * _WIDTH, "y": top + down * _HEIGHT}
            panels.append(_build_panel(panel, len(panels) + 1, grid_position))
        top += -(-len(row) * _WIDTH // _ACROSS) * _HEIGHT
    return {
        "title": "Tenure",
        "uid": "tenure",
        "description": "Nodes managed by Tenure, and its workers. Metrics: docs/reference/metrics.md.",
        "tags": ["kubernetes", "tenure"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_datasource_variable(), _nodepool_variable()]},
        "panels": panels,
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _nodepool_variable() -> dict[str, Any]:
    return {
        "name": "nodepool",
        "label": "NodePool",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(tenure_nodeclaims, nodepool)", "refId": "nodepool"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _build_row(title: str, number: int, top: int) -> dict[str, Any]:
    grid_position = {"h": 1, "w": _ACROSS, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": grid_position, "panels": []}


def _build_panel(panel: Panel, number: int, grid_position: dict[str, int]) -> dict[str, Any]:
    drawn = {"fillOpacity": 20, "showPoints": "never", "stacking": {"mode": "normal", "group": "A"}}
    custom = drawn if panel.stacked else {"showPoints": "never"}
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi"},
    }
    stat = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "graphMode": "area"}
    return {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": grid_position,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {} if panel.stat else custom},
            "overrides": [],
        },
        "options": stat if panel.stat else options,
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expr, "legendFormat": legend, "range": True}
            for index, (expr, legend) in enumerate(panel.queries)
        ],
    }
