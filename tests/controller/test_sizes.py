"""Nodes that are smaller than what was planned onto them: when their pods are let go, and when not."""

from typing import Any

import pytest

from controller.learning import Learning
from controller.nominations import Nominations
from controller.sizes import Sizes
from tests.controller.builders import Json, World, at, claim, node, pod
from tests.controller.test_learning import machine


class Stage(World):
    """Pods p0, p1... are expected on NodeClaim c."""

    def __init__(self) -> None:
        super().__init__()
        self.nominations, self.learning = Nominations(), Learning(self.caches)
        self.sizes = Sizes(self.caches, self.nominations, self.learning)

    def expect(self, *pods: Json, on: str = "c") -> None:
        self.hear("pods", *pods)
        self.nominations.renew({one["metadata"]["uid"]: on for one in pods}, at(0))

    def release(self) -> bool:
        dirty = self.caches.take_dirty()
        self.learning.look(dirty.claims)
        self.sizes.forget(dirty.gone_claims)
        return self.sizes.release(dirty.claims)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def wants(name: str, memory: str) -> Json:
    requests = {"cpu": "100m", "memory": memory}
    return pod(name, containers=[{"name": "main", "image": "none", "resources": {"requests": requests}}])


def bought(memory: str, *, phase: str = "Registered", name: str = "c", **status: Any) -> Json:
    """A NodeClaim that was bought for pods that need so much."""
    raw, _ = machine(name)
    raw["spec"]["resources"] = {"requests": {"cpu": "100m", "memory": memory}}
    raw["status"] = claim(name, phase=phase)["status"] | {"imageID": "ami-1"} | status
    return raw


def arrived(allocatable: str, *, name: str = "c", capacity: str = "7000Mi") -> Json:
    _, raw = machine(name)
    raw["status"] |= {"allocatable": {"cpu": "2", "memory": allocatable}, "capacity": {"memory": capacity}}
    return raw


def test_pods_are_let_go_from_a_node_that_is_too_small_for_them(stage: Stage) -> None:
    stage.expect(wants("p0", "6800Mi"))
    stage.hear("nodeclaims", bought("6800Mi"))
    stage.hear("nodes", arrived("6326Mi"))
    assert stage.release()
    assert stage.nominations.of("uid-p0") is None
    (found,) = stage.sizes.take()
    assert (found.claim, found.resource, found.place) == ("c", "memory", "n-c")
    assert not stage.sizes.take()


def test_a_node_that_is_large_enough_keeps_them(stage: Stage) -> None:
    stage.expect(wants("p0", "6000Mi"))
    stage.hear("nodeclaims", bought("6000Mi"))
    stage.hear("nodes", arrived("6326Mi"))
    assert not stage.release() and stage.nominations.of("uid-p0")


def test_before_registration_the_node_is_not_measured(stage: Stage) -> None:
    stage.expect(wants("p0", "6800Mi"))
    stage.hear("nodeclaims", bought("6800Mi", phase="Launched"))
    stage.hear("nodes", arrived("6326Mi"))
    assert not stage.release()
    stage.hear("nodeclaims", bought("6800Mi"))
    assert stage.release()


def test_a_node_is_measured_once_since_the_planner_may_promise_it_again(stage: Stage) -> None:
    stage.expect(wants("p0", "6000Mi"), wants("p1", "800Mi"))
    stage.hear("nodeclaims", bought("6800Mi"))
    stage.hear("nodes", arrived("6326Mi"))
    assert stage.release()
    stage.expect(wants("p0", "6000Mi"))
    stage.caches.touch_claim("c")
    assert not stage.release() and stage.nominations.of("uid-p0")


def test_pods_that_came_later_count_too(stage: Stage) -> None:
    stage.expect(wants("p0", "3000Mi"), wants("p1", "3500Mi"))
    stage.hear("nodeclaims", bought("3000Mi"))
    stage.hear("nodes", arrived("6326Mi"))
    assert stage.release()


def test_a_device_that_is_not_there_yet_is_no_shortfall(stage: Stage) -> None:
    stage.expect(wants("p0", "1Gi"))
    raw = bought("1Gi")
    raw["spec"]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    stage.hear("nodeclaims", raw)
    stage.hear("nodes", arrived("6326Mi"))
    assert not stage.release()


def test_what_one_node_shows_frees_the_pods_of_its_kind_that_still_comes(stage: Stage) -> None:
    shown = {"capacity": {"memory": "7577Mi"}, "allocatable": {"cpu": "2", "memory": "6903Mi"}}
    stage.hear("nodeclaims", bought("6800Mi", phase="Launched", name="coming", **shown))
    stage.expect(wants("p0", "6800Mi"), on="coming")
    assert not stage.release()
    stage.hear("nodeclaims", bought("1Gi"))
    stage.hear("nodes", arrived("6326Mi"))
    assert stage.release() and stage.nominations.of("uid-p0") is None
    (found,) = stage.sizes.take()
    assert found.claim == "coming" and found.place == "m6i.large"


def test_a_claim_that_goes_is_not_measured(stage: Stage) -> None:
    stage.expect(wants("p0", "6800Mi"))
    raw = bought("6800Mi")
    raw["metadata"]["deletionTimestamp"] = raw["metadata"]["creationTimestamp"]
    stage.hear("nodeclaims", raw)
    stage.hear("nodes", arrived("6326Mi"))
    assert not stage.release()


def test_nobody_is_let_go_where_nobody_waits(stage: Stage) -> None:
    stage.hear("nodeclaims", bought("6800Mi"))
    stage.hear("nodes", arrived("6326Mi"), node("other"))
    assert not stage.release() and not stage.sizes.take()
