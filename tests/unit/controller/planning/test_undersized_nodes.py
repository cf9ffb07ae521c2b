"""Nodes with less allocatable memory than planned: when the nominations of their pods are released."""

from typing import Any

import pytest

from tenure.apis.labels import NODECLASS_HASH
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.discovered_capacity import CapacityDiscovery
from tenure.controller.planning.undersized_nodes import UndersizedNodes
from tests.support.controller.builders import CacheHarness, Json, at, claim, pod, stamp
from tests.unit.controller.planning.test_discovered_capacity import nodeclaim_and_node

MIB = 1 << 20


class UndersizedNodesHarness(CacheHarness):
    """Pods are nominated for NodeClaim c."""

    def __init__(self) -> None:
        super().__init__()
        self.nominations, self.discovery = Nominations(), CapacityDiscovery(self.cache)
        self.undersized_nodes = UndersizedNodes(self.cache, self.nominations, self.discovery, began=self.now)

    def expect(self, *pods: Json, on: str = "c") -> None:
        self.apply_objects("pods", *pods)
        self.nominations.nominate({one["metadata"]["uid"]: on for one in pods}, at(0))

    def release(self) -> bool:
        changes = self.cache.drain_changes()
        self.discovery.discover(changes.nodeclaims)
        self.undersized_nodes.forget_nodeclaims(changes.deleted_nodeclaims)
        return self.undersized_nodes.release(changes.nodeclaims)


@pytest.fixture
def harness() -> UndersizedNodesHarness:
    return UndersizedNodesHarness()


def pod_requesting(name: str, memory: str) -> Json:
    requests = {"cpu": "100m", "memory": memory}
    return pod(name, containers=[{"name": "main", "image": "none", "resources": {"requests": requests}}])


def launched_nodeclaim(memory: str, *, phase: str = "Registered", name: str = "c", **status: Any) -> Json:
    """A NodeClaim launched for pods that request `memory`."""
    raw, _ = nodeclaim_and_node(name)
    raw["spec"]["resources"] = {"requests": {"cpu": "100m", "memory": memory}}
    raw["status"] = claim(name, phase=phase)["status"] | {"imageID": "ami-1"} | status
    return raw


def joined_node(allocatable: str, *, name: str = "c", capacity: str = "7000Mi") -> Json:
    _, raw = nodeclaim_and_node(name)
    raw["status"] |= {"allocatable": {"cpu": "2", "memory": allocatable}, "capacity": {"memory": capacity}}
    return raw


def test_nominations_are_released_from_a_node_that_is_too_small(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "6800Mi"))
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert harness.release()
    assert harness.nominations.nomination_of("uid-p0") is None
    (found,) = harness.undersized_nodes.drain_shortfalls()
    assert (found.claim, found.resource, found.subject) == ("c", "memory", "n-c")
    assert not harness.undersized_nodes.drain_shortfalls()


def test_node_is_not_measured_before_registration(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "6800Mi"))
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi", phase="Launched"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert not harness.release()
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi"))
    assert harness.release()


def test_node_is_measured_once_because_later_nominations_know_its_size(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "6000Mi"), pod_requesting("p1", "800Mi"))
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert harness.release()
    harness.expect(pod_requesting("p0", "6000Mi"))
    harness.cache.requeue_nodeclaim("c")
    assert not harness.release() and harness.nominations.nomination_of("uid-p0")


def test_discovered_memory_releases_nominations_of_launching_nodes(harness: UndersizedNodesHarness) -> None:
    status = {"capacity": {"memory": "7577Mi"}, "allocatable": {"cpu": "2", "memory": "6903Mi"}}
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi", phase="Launched", name="launching", **status))
    harness.expect(pod_requesting("p0", "6800Mi"), on="launching")
    assert not harness.release()
    harness.apply_objects("nodeclaims", launched_nodeclaim("1Gi"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert harness.release() and harness.nominations.nomination_of("uid-p0") is None
    (found,) = harness.undersized_nodes.drain_shortfalls()
    assert found.claim == "launching" and found.subject == "m6i.large"


@pytest.mark.parametrize(
    ("requests", "launched_for", "more", "released"),
    [
        (("6000Mi",), "6000Mi", {}, False),
        (("3000Mi", "3500Mi"), "3000Mi", {}, True),
        (("1Gi",), "1Gi", {"device": True}, False),
        (("6800Mi",), "6800Mi", {"deleting": True}, False),
    ],
    ids=["large enough", "pods added later", "device not registered yet", "deleting NodeClaim"],
)
def test_nominations_are_released_only_from_undersized_nodes(
    harness: UndersizedNodesHarness, requests: tuple[str, ...], launched_for: str, more: dict[str, bool], released: bool
) -> None:
    harness.expect(*(pod_requesting(f"p{number}", memory) for number, memory in enumerate(requests)))
    raw = launched_nodeclaim(launched_for)
    if more.get("device"):
        raw["spec"]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    if more.get("deleting"):
        raw["metadata"]["deletionTimestamp"] = raw["metadata"]["creationTimestamp"]
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert harness.release() is released
    still_expected = [harness.nominations.nomination_of(f"uid-p{number}") for number in range(len(requests))]
    assert all((one is None) is released for one in still_expected)
    assert len(harness.undersized_nodes.drain_shortfalls()) == released


@pytest.mark.parametrize(
    ("created", "registered", "reported"),
    [(-100, -40, True), (-1000, -400, False), (10, 20, False)],
    ids=["registered just before the restart", "registered long before", "created after the restart"],
)
def test_shortfall_without_nominations_is_reported_only_after_a_restart(
    harness: UndersizedNodesHarness, created: float, registered: float, reported: bool
) -> None:
    """Nominations are held in memory. The process may have ended before it reported the shortfall."""
    raw = launched_nodeclaim("6800Mi")
    raw["metadata"]["creationTimestamp"] = stamp(created)
    for condition in raw["status"]["conditions"]:
        condition["lastTransitionTime"] = stamp(registered)
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert not harness.release()
    assert [one.claim for one in harness.undersized_nodes.drain_shortfalls()] == ["c"] * reported


PROMISED = {"capacity": {"memory": "7000Mi"}, "allocatable": {"cpu": "2", "memory": "6326Mi"}}
SPEC = "ami-standard/123"


def launched_with_spec(spec_hash: str, **more: Any) -> Json:
    raw = launched_nodeclaim("6000Mi", **(PROMISED | more))
    raw["status"]["imageID"] = "ami-standard"
    raw["metadata"]["annotations"] = {NODECLASS_HASH: spec_hash}
    return raw


def test_allocatable_below_promise_is_discovered_for_the_nodeclass_spec(harness: UndersizedNodesHarness) -> None:
    harness.apply_objects("nodeclaims", launched_with_spec("123"))
    harness.apply_objects("nodes", joined_node("6126Mi"))
    assert not harness.release()
    known = harness.discovery.discovered
    assert known.get_memory("ami-standard", "m6i.large") == 7000 * MIB
    assert known.get_memory("ami-standard", "m6i.large", "123") == 6800 * MIB
    assert SPEC in harness.discovery.unreported().discovered.images


ESTIMATE = {"capacity": {"memory": "7577Mi"}, "allocatable": {"cpu": "2", "memory": "6903Mi"}}


@pytest.mark.parametrize(
    ("phase", "promised", "allocatable"),
    [
        ("Registered", {}, "6326Mi"),
        ("Registered", {}, "6500Mi"),
        ("Registered", ESTIMATE, "6326Mi"),
        ("Initialized", {}, "6126Mi"),
    ],
    ids=["as promised", "more than promised", "less than estimated", "already initialized"],
)
def test_node_with_promised_allocatable_yields_only_its_capacity(
    harness: UndersizedNodesHarness, phase: str, promised: dict[str, Any], allocatable: str
) -> None:
    raw = launched_with_spec("123", **promised)
    raw["status"]["conditions"] = claim("c", phase=phase)["status"]["conditions"]
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", joined_node(allocatable))
    harness.release()
    assert harness.discovery.discovered.images == {"ami-standard": {"m6i.large": 7000 * MIB}}


def test_allocatable_is_discovered_before_registration(harness: UndersizedNodesHarness) -> None:
    raw = launched_with_spec("123")
    raw["status"]["conditions"] = claim("c", phase="Launched")["status"]["conditions"]
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", joined_node("6126Mi"))
    harness.discovery.discover_from_changes(harness.cache.drain_planner_changes())
    assert harness.discovery.discovered.get_memory("ami-standard", "m6i.large", "123") == 6800 * MIB
