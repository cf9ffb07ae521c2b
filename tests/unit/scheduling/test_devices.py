"""Amounts of DRA devices in plans: pods get them on existing nodes only."""

from typing import Any

from tests.unit.scheduling.builders import Cluster, node, pod, pods, pool, reasons

GPU = "devices of gpu"


def needs(count: int) -> Any:
    return {"devices": ((GPU, count),)}


def test_pods_use_free_devices_of_nodes_and_no_node_is_launched_for_them() -> None:
    cluster = Cluster(pool(), node("gpus", devices=((GPU, 3),)), node("plain"), *pods(2, **needs(2)))
    plan = cluster.plan()
    assert list(plan.nominations.values()) == ["gpus"] and not plan.claims
    (reason,) = reasons(plan)
    assert GPU in reason


def test_devices_of_bound_pods_are_not_counted_twice() -> None:
    """A node has only its free devices, since kube-scheduler chooses the devices of bound pods."""
    cluster = Cluster(node("gpus", devices=((GPU, 1),)), pod("bound", node="gpus", **needs(2)), pod("p", **needs(1)))
    assert cluster.plan().nominations == {"p": "gpus"}


def test_pods_without_devices_use_nodes_with_devices() -> None:
    assert Cluster(node("gpus", devices=((GPU, 0),)), pod("p")).plan().nominations == {"p": "gpus"}
