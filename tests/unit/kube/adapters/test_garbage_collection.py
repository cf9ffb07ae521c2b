"""Nodes as garbage collection reads them from the API server's objects."""

from typing import Any

import pytest

from tenure.kube.adapters.garbage_collection import to_inventory_node

METADATA: dict[str, Any] = {"name": "node-a", "uid": "uid-a", "creationTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "DiskPressure", "status": "True"}], False),
        ([], False),
    ],
)
def test_a_node_is_ready_only_with_condition_ready_true(conditions: list[dict[str, str]], ready: bool) -> None:
    assert to_inventory_node({"metadata": METADATA, "status": {"conditions": conditions}}).ready is ready


def test_a_node_without_status_is_listed_as_not_ready() -> None:
    assert to_inventory_node({"metadata": METADATA}).ready is False
