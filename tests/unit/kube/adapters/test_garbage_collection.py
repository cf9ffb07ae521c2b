"""Conversion of Nodes and Leases for garbage collection."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.kube.adapters.garbage_collection import to_inventory_lease, to_inventory_node

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
def test_node_is_ready_only_with_condition_ready_true(conditions: list[dict[str, str]], ready: bool) -> None:
    assert to_inventory_node({"metadata": METADATA, "status": {"conditions": conditions}}).ready is ready


def test_node_without_status_is_not_ready() -> None:
    assert to_inventory_node({"metadata": METADATA}).ready is False


@pytest.mark.parametrize("changed", ["0000-01-01T00:00:00Z", "-", ""])
def test_node_with_an_unreadable_transition_time_is_listed(changed: str) -> None:
    """Go accepts the year 0, which Python does not have. A kubelet writes the status of its Node."""
    status = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": changed}]}
    node = to_inventory_node({"metadata": METADATA, "status": status})
    assert node.ready and node.ready_changed is None


CREATED = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("spec", "expiry"),
    [
        ({}, CREATED + timedelta(minutes=1)),
        ({"leaseDurationSeconds": 90}, CREATED + timedelta(seconds=90)),
        ({"renewTime": "2026-01-01T01:00:00.000000Z"}, CREATED + timedelta(hours=1, minutes=1)),
        ({"renewTime": "9999-12-31T23:59:59.000000Z", "leaseDurationSeconds": 2**31 - 1}, NEVER),
        ({"renewTime": "0000-01-01T00:00:00.000000Z"}, NEVER),
    ],
)
def test_lease_expires_after_its_duration(spec: dict[str, Any], expiry: datetime) -> None:
    lease = to_inventory_lease({"metadata": METADATA | {"resourceVersion": "1"}, "spec": spec})
    assert lease.alive_until == expiry
