"""Replicas and status conditions of a CapacityBuffer."""

from typing import Any

import pytest

from tenure.apis.capacitybuffer import CapacityBufferSpec
from tenure.apis.quantity import QuantityError
from tenure.policy.capacity_buffer import MAX_REPLICAS, Unresolved, decide_conditions, decide_replicas

REQUESTS = {"cpu": 1000, "memory": 512 << 20, "pods": 1}


def replicas(workload: int = 0, **spec: Any) -> int:
    return decide_replicas(CapacityBufferSpec.from_object(spec), REQUESTS, workload)


@pytest.mark.parametrize(
    ("spec", "workload", "expected"),
    (
        ({"replicas": 3}, 0, 3),
        ({"replicas": 0}, 0, 0),
        ({"percentage": 20}, 10, 2),
        ({"percentage": 20}, 11, 3),
        ({"percentage": 20}, 0, 1),
        ({"percentage": 0}, 10, 1),
        ({"percentage": 20, "replicas": 5}, 10, 5),
        ({"percentage": 80, "replicas": 5}, 10, 8),
        ({"replicas": 9, "limits": {"cpu": "4500m"}}, 0, 4),
        ({"replicas": 2, "limits": {"cpu": "4500m"}}, 0, 2),
        ({"replicas": 9, "limits": {"cpu": "4", "memory": "1Gi"}}, 0, 2),
        ({"limits": {"cpu": "5"}}, 0, 5),
        ({"limits": {"cpu": "5", "pods": "2"}}, 0, 2),
        ({"limits": {"example.com/gpu": "5"}}, 0, 0),
        ({"replicas": 3, "limits": {"example.com/gpu": "0"}}, 0, 3),
        ({"replicas": 3, "limits": {"cpu": "-1"}}, 0, 0),
        ({}, 10, 0),
    ),
)
def test_replicas_of_a_buffer(spec: dict[str, Any], workload: int, expected: int) -> None:
    assert replicas(workload, **spec) == expected


@pytest.mark.parametrize(
    ("spec", "workload"),
    (({"replicas": 2**31 - 1}, 0), ({"percentage": 2**31 - 1}, 500), ({"limits": {"cpu": "9e30"}}, 0)),
)
def test_too_many_replicas_are_rejected(spec: dict[str, Any], workload: int) -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_REPLICAS}"):
        replicas(workload, **spec)
    assert replicas(workload, **spec | {"limits": {"cpu": str(MAX_REPLICAS)}}) == MAX_REPLICAS


def test_invalid_limit_is_named() -> None:
    with pytest.raises(QuantityError, match="cpu"):
        replicas(limits={"cpu": "many"})


@pytest.mark.parametrize(
    ("unresolved", "desired", "ready", "expected"),
    (
        (None, 3, 3, [("True", "Resolved"), ("True", "FitsExistingCapacity")]),
        (None, 3, 2, [("True", "Resolved"), ("False", "RequiresNewCapacity")]),
        (None, 0, 0, [("True", "Resolved"), ("False", "BufferEmpty")]),
        (
            Unresolved("PodTemplateNotFound", "make it"),
            0,
            0,
            [("False", "PodTemplateNotFound"), ("False", "NotReadyForProvisioning")],
        ),
    ),
)
def test_conditions_of_a_buffer(
    unresolved: Unresolved | None, desired: int, ready: int, expected: list[tuple[str, str]]
) -> None:
    found = decide_conditions(unresolved, desired, ready)
    assert [one.type for one in found] == ["ReadyForProvisioning", "Provisioning"]
    assert [(one.status, one.reason) for one in found] == expected
