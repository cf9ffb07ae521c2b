"""Consolidation and drift of nodes whose pods use DRA devices."""

from typing import Any

import pytest

from tenure.model.facts import PodFact
from tests.unit.scheduling.builders import pod
from tests.unit.scheduling.disruption.cluster_builder import Fleet

GPU = "devices of gpu"


def free(amount: int) -> dict[str, Any]:
    return {"devices": ((GPU, amount),)}


def gpu_pod(count: int = 1) -> PodFact:
    return pod(cpu=0.5, devices=((GPU, count),))


@pytest.mark.parametrize("reason", ["", "NodePoolDrifted"])
def test_pods_move_only_to_nodes_with_free_devices(reason: str) -> None:
    drift: dict[str, Any] = {"drifted": reason} if reason else {}
    fleet = Fleet().node("old", "m.xlarge", gpu_pod(2), gpu_pod(1), node=free(1), **drift)
    fleet.node("plain", "m.2xlarge", pod(cpu=5)).node("few", "m.2xlarge", pod(cpu=5), node=free(2))
    assert not [one for one in fleet.decide().commands if "old" in one.node_names]
    fleet.node("gpus", "m.2xlarge", pod(cpu=5), node=free(2))
    (command,) = [one for one in fleet.decide().commands if "old" in one.node_names]
    assert {one.target for one in command.moves} <= {"few", "gpus"} and not command.replacements


def test_node_with_devices_in_use_is_not_replaced() -> None:
    assert Fleet().node("n", "m.2xlarge", pod(cpu=0.5)).decide().commands
    assert not Fleet().node("n", "m.2xlarge", gpu_pod(), node=free(1)).decide().commands
