"""Nodes that are smaller than what was planned onto them: when their pods are let go, and when not."""

from typing import Any

import pytest

from tenure.apis.labels import NODECLASS_HASH
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.discovered_capacity import CapacityDiscovery
from tenure.controller.planning.undersized_nodes import UndersizedNodes
from tests.support.controller.builders import CacheHarness, Json, at, claim, node, pod
from tests.unit.controller.planning.test_discovered_capacity import nodeclaim_and_node

MIB = 1 << 20


class UndersizedNodesHarness(CacheHarness):
    """Pods p0, p1... are expected on NodeClaim c."""

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
    """A NodeClaim that was bought for pods that need so much."""
    raw, _ = nodeclaim_and_node(name)
    raw["spec"]["resources"] = {"requests": {"cpu": "100m", "memory": memory}}
    raw["status"] = claim(name, phase=phase)["status"] | {"imageID": "ami-1"} | status
    return raw


def joined_node(allocatable: str, *, name: str = "c", capacity: str = "7000Mi") -> Json:
    _, raw = nodeclaim_and_node(name)
    raw["status"] |= {"allocatable": {"cpu": "2", "memory": allocatable}, "capacity": {"memory": capacity}}
    return raw


def test_pods_are_let_go_from_a_node_that_is_too_small_for_them(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "6800Mi"))
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert harness.release()
    assert harness.nominations.nomination_of("uid-p0") is None
    (found,) = harness.undersized_nodes.drain_shortfalls()
    assert (found.claim, found.resource, found.subject) == ("c", "memory", "n-c")
    assert not harness.undersized_nodes.drain_shortfalls()


def test_a_node_that_is_large_enough_keeps_them(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "6000Mi"))
    harness.apply_objects("nodeclaims", launched_nodeclaim("6000Mi"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert not harness.release() and harness.nominations.nomination_of("uid-p0")


def test_before_registration_the_node_is_not_measured(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "6800Mi"))
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi", phase="Launched"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert not harness.release()
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi"))
    assert harness.release()


def test_a_node_is_measured_once_since_the_planner_may_promise_it_again(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "6000Mi"), pod_requesting("p1", "800Mi"))
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert harness.release()
    harness.expect(pod_requesting("p0", "6000Mi"))
    harness.cache.requeue_nodeclaim("c")
    assert not harness.release() and harness.nominations.nomination_of("uid-p0")


def test_pods_that_came_later_count_too(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "3000Mi"), pod_requesting("p1", "3500Mi"))
    harness.apply_objects("nodeclaims", launched_nodeclaim("3000Mi"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert harness.release()


def test_a_device_that_is_not_there_yet_is_no_shortfall(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "1Gi"))
    raw = launched_nodeclaim("1Gi")
    raw["spec"]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert not harness.release()


def test_what_one_node_shows_frees_the_pods_of_its_kind_that_still_comes(harness: UndersizedNodesHarness) -> None:
    status = {"capacity": {"memory": "7577Mi"}, "allocatable": {"cpu": "2", "memory": "6903Mi"}}
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi", phase="Launched", name="coming", **status))
    harness.expect(pod_requesting("p0", "6800Mi"), on="coming")
    assert not harness.release()
    harness.apply_objects("nodeclaims", launched_nodeclaim("1Gi"))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert harness.release() and harness.nominations.nomination_of("uid-p0") is None
    (found,) = harness.undersized_nodes.drain_shortfalls()
    assert found.claim == "coming" and found.subject == "m6i.large"


def test_a_claim_that_goes_is_not_measured(harness: UndersizedNodesHarness) -> None:
    harness.expect(pod_requesting("p0", "6800Mi"))
    raw = launched_nodeclaim("6800Mi")
    raw["metadata"]["deletionTimestamp"] = raw["metadata"]["creationTimestamp"]
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", joined_node("6326Mi"))
    assert not harness.release()


PROMISED = {"capacity": {"memory": "7000Mi"}, "allocatable": {"cpu": "2", "memory": "6326Mi"}}
SPEC = "ami-standard/123"


def launched_under(spec_hash: str, **more: Any) -> Json:
    raw = launched_nodeclaim("6000Mi", **(PROMISED | more))
    raw["status"]["imageID"] = "ami-standard"
    raw["metadata"]["annotations"] = {NODECLASS_HASH: spec_hash}
    return raw


def test_a_node_that_leaves_pods_less_than_promised_teaches_for_its_classs_spec(
    harness: UndersizedNodesHarness,
) -> None:
    harness.apply_objects("nodeclaims", launched_under("123"))
    harness.apply_objects("nodes", joined_node("6126Mi"))
    assert not harness.release()
    known = harness.discovery.discovered
    assert known.get_memory("ami-standard", "m6i.large") == 7000 * MIB
    assert known.get_memory("ami-standard", "m6i.large", "123") == 6800 * MIB
    assert SPEC in harness.discovery.unreported().discovered.images


@pytest.mark.parametrize("allocatable", ["6326Mi", "6500Mi"])
def test_a_node_that_keeps_its_promise_teaches_its_capacity_alone(
    harness: UndersizedNodesHarness, allocatable: str
) -> None:
    harness.apply_objects("nodeclaims", launched_under("123"))
    harness.apply_objects("nodes", joined_node(allocatable))
    harness.release()
    assert harness.discovery.discovered.images.keys() == {"ami-standard"}


def test_less_memory_than_estimated_is_no_broken_promise_of_the_class(harness: UndersizedNodesHarness) -> None:
    """Estimated are 7577 MiB and 6903 for pods; the machine has 7000, of which the class keeps as much."""
    estimate = {"capacity": {"memory": "7577Mi"}, "allocatable": {"cpu": "2", "memory": "6903Mi"}}
    harness.apply_objects("nodeclaims", launched_under("123", **estimate))
    harness.apply_objects("nodes", joined_node("6326Mi"))
    harness.release()
    assert harness.discovery.discovered.images == {"ami-standard": {"m6i.large": 7000 * MIB}}


def test_a_node_teaches_what_it_leaves_pods_before_it_is_registered(harness: UndersizedNodesHarness) -> None:
    raw = launched_under("123")
    raw["status"]["conditions"] = claim("c", phase="Launched")["status"]["conditions"]
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", joined_node("6126Mi"))
    harness.discovery.discover_from_changes(harness.cache.drain_planner_changes())
    assert harness.discovery.discovered.get_memory("ami-standard", "m6i.large", "123") == 6800 * MIB


def test_of_a_node_that_was_up_before_only_its_capacity_is_learnt(harness: UndersizedNodesHarness) -> None:
    """Others may have taken of its room since, huge pages for instance."""
    raw = launched_under("123")
    raw["status"]["conditions"] = claim("c", phase="Initialized")["status"]["conditions"]
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", joined_node("6126Mi"))
    harness.release()
    assert harness.discovery.discovered.images.keys() == {"ami-standard"}


def test_nobody_is_let_go_where_nobody_waits(harness: UndersizedNodesHarness) -> None:
    harness.apply_objects("nodeclaims", launched_nodeclaim("6800Mi"))
    harness.apply_objects("nodes", joined_node("6326Mi"), node("other"))
    assert not harness.release() and not harness.undersized_nodes.drain_shortfalls()
