"""Nodes that are smaller than what was planned onto them: when their pods are let go, and when not."""

from typing import Any

import pytest

from tenure.apis.labels import NODECLASS_HASH
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.discovered_capacity import Learning
from tenure.controller.planning.replanning import Sizes
from tests.support.controller.builders import Json, World, at, claim, node, pod
from tests.unit.controller.test_learning import machine

MIB = 1 << 20


class Stage(World):
    """Pods p0, p1... are expected on NodeClaim c."""

    def __init__(self) -> None:
        super().__init__()
        self.nominations, self.learning = Nominations(), Learning(self.caches)
        self.sizes = Sizes(self.caches, self.nominations, self.learning, began=self.now)

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


PROMISED = {"capacity": {"memory": "7000Mi"}, "allocatable": {"cpu": "2", "memory": "6326Mi"}}
SPEC = "ami-standard/123"


def launched_under(spec_hash: str, **more: Any) -> Json:
    raw = bought("6000Mi", **(PROMISED | more))
    raw["status"]["imageID"] = "ami-standard"
    raw["metadata"]["annotations"] = {NODECLASS_HASH: spec_hash}
    return raw


def test_a_node_that_leaves_pods_less_than_promised_teaches_for_its_classs_spec(stage: Stage) -> None:
    stage.hear("nodeclaims", launched_under("123"))
    stage.hear("nodes", arrived("6126Mi"))
    assert not stage.release()
    known = stage.learning.learnt
    assert known.memory("ami-standard", "m6i.large") == 7000 * MIB
    assert known.memory("ami-standard", "m6i.large", "123") == 6800 * MIB
    assert SPEC in stage.learning.seen().learnt.images


@pytest.mark.parametrize("allocatable", ["6326Mi", "6500Mi"])
def test_a_node_that_keeps_its_promise_teaches_its_capacity_alone(stage: Stage, allocatable: str) -> None:
    stage.hear("nodeclaims", launched_under("123"))
    stage.hear("nodes", arrived(allocatable))
    stage.release()
    assert stage.learning.learnt.images.keys() == {"ami-standard"}


def test_less_memory_than_estimated_is_no_broken_promise_of_the_class(stage: Stage) -> None:
    """Estimated are 7577 MiB and 6903 for pods; the machine has 7000, of which the class keeps as much."""
    estimate = {"capacity": {"memory": "7577Mi"}, "allocatable": {"cpu": "2", "memory": "6903Mi"}}
    stage.hear("nodeclaims", launched_under("123", **estimate))
    stage.hear("nodes", arrived("6326Mi"))
    stage.release()
    assert stage.learning.learnt.images == {"ami-standard": {"m6i.large": 7000 * MIB}}


def test_a_node_teaches_what_it_leaves_pods_before_it_is_registered(stage: Stage) -> None:
    raw = launched_under("123")
    raw["status"]["conditions"] = claim("c", phase="Launched")["status"]["conditions"]
    stage.hear("nodeclaims", raw)
    stage.hear("nodes", arrived("6126Mi"))
    stage.learning.look_at(stage.caches.take_changes())
    assert stage.learning.learnt.memory("ami-standard", "m6i.large", "123") == 6800 * MIB


def test_of_a_node_that_was_up_before_only_its_capacity_is_learnt(stage: Stage) -> None:
    """Others may have taken of its room since, huge pages for instance."""
    raw = launched_under("123")
    raw["status"]["conditions"] = claim("c", phase="Initialized")["status"]["conditions"]
    stage.hear("nodeclaims", raw)
    stage.hear("nodes", arrived("6126Mi"))
    stage.release()
    assert stage.learning.learnt.images.keys() == {"ami-standard"}


def test_nobody_is_let_go_where_nobody_waits(stage: Stage) -> None:
    stage.hear("nodeclaims", bought("6800Mi"))
    stage.hear("nodes", arrived("6326Mi"), node("other"))
    assert not stage.release() and not stage.sizes.take()
