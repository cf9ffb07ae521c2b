"""Amounts of DRA devices in plans: pods get them on existing nodes, and on new ones with device templates."""

import pickle
from typing import Any

from tenure.apis.labels import REQUESTED_DRA_DRIVERS
from tenure.model.instance_types import TypeDevices
from tenure.scheduling.snapshot import Change, ClusterFacts
from tests.unit.scheduling.builders import (
    COMMON,
    Cluster,
    instance_type,
    launched_nodeclaim,
    node,
    nodeclaim,
    pod,
    pods,
    pool,
    reasons,
    types_of,
)

GPU = "devices of gpu"
TYPES = (*COMMON, instance_type("g.small", cpu=4), instance_type("g.large", cpu=16))
DRIVER = "gpu.example.com"
DEVICES = {
    "default": {
        "g.small": TypeDevices(amounts={GPU: 1}, drivers={GPU: (DRIVER,)}),
        "g.large": TypeDevices(amounts={GPU: 4}, drivers={GPU: (DRIVER, "nic.example.com")}),
    }
}


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


def device_cluster(*facts: Any, **more: Any) -> Cluster:
    cluster = Cluster(pool(**more), *facts, instance_types=TYPES)
    cluster.state.set_devices(DEVICES)
    return cluster


def test_node_with_enough_devices_is_launched_and_names_their_drivers() -> None:
    cluster = device_cluster(pod("one", **needs(1)))
    (claim,) = cluster.plan().claims
    assert types_of(claim) == ("g.small", "g.large") and claim.annotations[REQUESTED_DRA_DRIVERS]
    assert claim.devices == {GPU: 1} and GPU not in claim.requests | claim.capacity_bound
    (claim,) = device_cluster(pod("two", **needs(2))).plan().claims
    assert types_of(claim) == ("g.large",)
    assert claim.annotations[REQUESTED_DRA_DRIVERS] == f"{DRIVER},nic.example.com"


def test_pods_share_a_node_up_to_its_devices() -> None:
    plan = device_cluster(*pods(5, cpu=0.1, **needs(1))).plan()
    assert sorted(one.devices[GPU] for one in plan.claims) in ([1, 4], [1] * 5)
    assert sum(len(one.pods) for one in plan.claims) == 5


def test_more_devices_than_any_type_has_are_refused_by_name() -> None:
    (reason,) = reasons(device_cluster(pod("p", **needs(5))).plan())
    assert GPU in reason


def test_nodeclaim_for_other_pods_names_no_drivers() -> None:
    (claim,) = device_cluster(pod("p")).plan().claims
    assert REQUESTED_DRA_DRIVERS not in claim.annotations and not claim.devices
    assert types_of(claim) == types_of(Cluster(pool(), pod("p"), instance_types=TYPES).plan().claims[0])


def test_devices_of_nodeclaims_count_until_their_node_publishes_them() -> None:
    cluster = device_cluster(pod("p", **needs(1)))
    plan = cluster.plan()
    ((name, planned),) = cluster.commit(plan).items()
    assert cluster.plan(after=1).nominations == {"p": name}
    cluster.add(nodeclaim(name, requirements=planned.requirements, requests=planned.requests, devices=((GPU, 1),)))
    assert cluster.plan(after=2).nominations == {"p": name}
    launched = launched_nodeclaim(name, planned, TYPES[3], devices=((GPU, 1),))
    cluster.add(launched)
    assert cluster.plan(after=3).nominations == {"p": name}
    cluster.add(node("starting", provider_id=launched.provider_id), launched)
    assert cluster.plan(after=4).nominations == {"p": "starting"}
    cluster.add(node("starting", provider_id=launched.provider_id, devices=((GPU, 1),)))
    cluster.add(launched.model_copy(update={"devices": ()}))
    assert cluster.plan(after=5).nominations == {"p": "starting"}
    cluster.add(node("starting", provider_id=launched.provider_id))
    assert not cluster.plan(after=6).nominations


def test_devices_that_no_pod_requests_any_longer_leave_no_column() -> None:
    cluster = device_cluster(pod("p", **needs(1)))
    assert cluster.plan().claims
    cluster.state.set_devices({})
    (reason,) = reasons(cluster.plan())
    assert GPU in reason


def test_devices_of_deleted_pods_are_forgotten() -> None:
    facts = ClusterFacts()
    for fact in (pod("p", **needs(1)), None):
        facts.apply(Change(kind="pod", key="p", fact=fact))
    assert pickle.dumps(facts) == pickle.dumps(ClusterFacts())
