"""CapacityBuffers in the watch's process: what they ask for, where they have room, what is said of them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.controller.capacity_buffers import LOOK_PAUSE, LOOK_SLOWEST, Buffers
from tenure.kube.client.list_watch import Delta
from tenure.model.errors import TryLater
from tenure.model.provider_results import ConditionPatch
from tenure.model.provisioning import Plan
from tests.support.controller.builders import World, claim, node, node_class, pool, stamp
from tests.unit.controller.test_planning import Stage
from tests.unit.controller.test_telling import Stage as Teller

Json = dict[str, Any]
POD = {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
DEPLOYMENT = {"kind": "Deployment", "apiGroup": "apps", "name": "web"}


class Port:
    """Workloads by kind and name, and what is written onto buffers."""

    def __init__(self) -> None:
        self.workloads: dict[tuple[str, str], Json] = {}
        self.said: list[tuple[str, int, list[str]]] = []
        """Name, replicas, and the conditions' reasons."""
        self.broken = False

    async def workload(self, namespace: str, kind: str, name: str) -> Json | None:
        if self.broken:
            raise TryLater("told to fail")
        return self.workloads.get((kind, name))

    async def say(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        status: Mapping[str, object],
        conditions: Sequence[ConditionPatch],
        now: datetime,
    ) -> bool:
        if self.broken:
            raise TryLater("told to fail")
        replicas = status["replicas"]
        assert isinstance(replicas, int)
        self.said.append((name, replicas, [one.reason for one in conditions]))
        return True


class Kept(World):
    """Buffers over caches; `room` is where the planner sees room."""

    def __init__(self) -> None:
        super().__init__()
        self.port = Port()
        self.buffers = Buffers(self.caches, self.port, lambda: self.now)
        self.room: dict[str, str] = {}
        self.asked = 0

    def tell(self, kind: str, *objects: Json, gone: bool = False) -> None:
        self.buffers.hear(kind, [Delta(one, gone=gone) for one in objects])

    async def look(self) -> None:
        async def ask() -> Plan:
            self.asked += 1
            return Plan(reserved=self.room)

        await self.buffers.look(ask)

    def short(self) -> list[str]:
        return [one.uid for one in self.buffers.short()]


def buffer(name: str = "spare", *, generation: int = 1, **spec: Any) -> Json:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "generation": generation,
        "creationTimestamp": stamp(),
    }
    return {"metadata": metadata, "spec": {"provisioningStrategy": "buffer.x-k8s.io/active-capacity", **spec}}


def by_template(replicas: int = 2, **more: Any) -> Json:
    return buffer(podTemplateRef={"name": "web"}, replicas=replicas, **more)


def template(name: str = "web", generation: int = 1, spec: Json = POD) -> Json:
    return {"metadata": {"name": name, "namespace": "default", "generation": generation}, "template": {"spec": spec}}


def workload(replicas: int | None) -> Json:
    said = {} if replicas is None else {"replicas": replicas}
    return {"spec": {**said, "template": {"metadata": {"labels": {"app": "web"}}, "spec": POD}}}


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def test_a_buffer_by_template_becomes_a_fact_for_the_planner(kept: Kept) -> None:
    kept.tell("capacitybuffers", by_template())
    kept.tell("podtemplates", template())
    await kept.buffers.resolve()
    (change,) = kept.caches.take_changes()
    assert (change.kind, change.key) == ("buffer", "spare")
    assert kept.caches.buffers["spare"].replicas == 2
    assert kept.caches.buffers["spare"].pod.requests == {"cpu": 1000, "memory": 1 << 30, "pods": 1}
    await kept.buffers.resolve()
    assert kept.caches.take_changes() == ()
    kept.tell("capacitybuffers", by_template(), gone=True)
    await kept.buffers.resolve()
    assert [one.fact for one in kept.caches.take_changes()] == [None]


async def test_a_template_that_is_missing_is_said_until_it_comes(kept: Kept) -> None:
    kept.tell("capacitybuffers", by_template())
    for _ in range(2):
        await kept.buffers.resolve()
    assert kept.port.said == [("spare", 0, ["PodTemplateNotFound", "NotReadyForProvisioning"])]
    kept.tell("podtemplates", template())
    await kept.buffers.resolve()
    await kept.look()
    assert kept.port.said[1:] == [("spare", 2, ["Resolved", "RequiresNewCapacity"])]


async def test_a_share_follows_its_workload(kept: Kept) -> None:
    kept.tell("capacitybuffers", buffer(scalableRef=DEPLOYMENT, percentage=20))
    await kept.buffers.resolve()
    assert kept.port.said == [("spare", 0, ["ScalableRefNotFound", "NotReadyForProvisioning"])]
    for replicas, share in ((5, 1), (20, 4), (None, 1)):
        kept.port.workloads["Deployment", "web"] = workload(replicas)
        await kept.buffers.resolve()
        assert kept.caches.buffers["spare"].replicas == share
    assert kept.caches.buffers["spare"].pod.labels == {"app": "web"}


@pytest.mark.parametrize(
    "spec",
    (
        {},
        {"scalableRef": {"kind": "Job", "apiGroup": "batch", "name": "x"}, "replicas": 1},
        {"podTemplateRef": {"name": "odd"}, "replicas": 1},
    ),
)
async def test_what_makes_no_sense_is_said_and_hurts_no_other(kept: Kept, spec: Json) -> None:
    odd = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "much"}}}]}
    kept.tell("podtemplates", template(), template("odd", spec=odd))
    kept.tell("capacitybuffers", buffer("wrong", **spec), by_template())
    await kept.buffers.resolve()
    assert kept.port.said == [("wrong", 0, ["ResolutionFailed", "NotReadyForProvisioning"])]
    assert set(kept.caches.buffers) == {"spare"}


async def test_the_strategy_of_somebody_else_is_left_alone(kept: Kept) -> None:
    kept.tell("podtemplates", template())
    kept.tell("capacitybuffers", by_template() | {"spec": {"provisioningStrategy": "x/standby"}})
    await kept.buffers.resolve()
    assert (kept.port.said, kept.caches.buffers) == ([], {})


async def test_a_silent_api_server_leaves_what_is_known(kept: Kept) -> None:
    kept.port.workloads["Deployment", "web"] = workload(10)
    kept.tell("capacitybuffers", buffer(scalableRef=DEPLOYMENT, percentage=20))
    await kept.buffers.resolve()
    kept.port.broken = True
    await kept.buffers.resolve()
    assert kept.caches.buffers["spare"].replicas == 2


async def test_pods_without_room_are_demand_and_nodes_with_room_are_held(kept: Kept) -> None:
    kept.hear("nodeclaims", claim("c1", phase="Initialized"))
    kept.hear("nodes", node("n1", of="c1"))
    kept.tell("podtemplates", template())
    kept.tell("capacitybuffers", by_template())
    await kept.buffers.resolve()
    assert kept.buffers.unsure
    kept.caches.take_dirty()
    kept.room = {"spare-0": "n1"}
    await kept.look()
    assert not kept.buffers.unsure
    assert kept.buffers.needs("c1") == "default/spare" and kept.short() == ["spare-1"]
    dirty = kept.caches.take_dirty()
    assert dirty.claims == {"c1"} and dirty.pods
    assert kept.port.said == [("spare", 2, ["Resolved", "RequiresNewCapacity"])]

    kept.room = {"spare-0": "n1", "spare-1": "n1"}
    await kept.look()
    await kept.look()
    assert kept.short() == []
    assert kept.port.said[1:] == [("spare", 2, ["Resolved", "FitsExistingCapacity"])]

    kept.tell("capacitybuffers", by_template(), gone=True)
    await kept.buffers.resolve()
    kept.caches.take_dirty()
    asked = kept.asked
    await kept.look()
    assert kept.buffers.needs("c1") == ""
    assert kept.caches.take_dirty().claims == {"c1"}
    assert kept.asked == asked


async def test_no_node_is_taken_for_empty_before_it_is_known_what_buffers_want(kept: Kept) -> None:
    kept.hear("nodeclaims", claim("c1", phase="Initialized"))
    assert kept.buffers.unsure
    kept.tell("podtemplates", template())
    kept.tell("capacitybuffers", by_template())
    kept.caches.take_dirty()
    await kept.buffers.resolve()
    assert kept.buffers.unsure
    await kept.look()
    assert not kept.buffers.unsure
    assert kept.caches.take_dirty().claims == {"c1"}


async def test_a_buffer_that_could_not_be_looked_at_keeps_nodes_until_it_is(kept: Kept) -> None:
    kept.port.broken = True
    kept.tell("capacitybuffers", buffer(scalableRef=DEPLOYMENT, replicas=1))
    await kept.buffers.resolve()
    assert kept.buffers.unsure
    kept.port.broken = False
    await kept.buffers.resolve()
    assert not kept.buffers.unsure


async def test_without_buffers_nothing_is_waited_for(kept: Kept) -> None:
    kept.hear("nodeclaims", claim("c1", phase="Initialized"))
    kept.caches.take_dirty()
    await kept.buffers.resolve()
    assert not kept.buffers.unsure
    assert kept.caches.take_dirty().claims == {"c1"}


async def test_of_two_buffers_on_a_node_the_other_keeps_it(kept: Kept) -> None:
    kept.hear("nodeclaims", claim("c1", phase="Initialized"))
    kept.hear("nodes", node("n1", of="c1"))
    kept.tell("podtemplates", template())
    kept.tell("capacitybuffers", by_template(1), buffer("other", podTemplateRef={"name": "web"}, replicas=1))
    await kept.buffers.resolve()
    kept.room = {"spare-0": "n1", "other-0": "n1"}
    await kept.look()
    assert kept.buffers.needs("c1") == "default/other"
    kept.tell("capacitybuffers", buffer("other"), gone=True)
    await kept.buffers.resolve()
    kept.room = {"spare-0": "n1"}
    await kept.look()
    assert kept.buffers.needs("c1") == "default/spare"


async def test_a_node_that_is_still_coming_is_no_room_yet_and_no_reason_to_buy(kept: Kept) -> None:
    kept.hear("nodeclaims", claim("c1", phase="Launched"))
    kept.tell("podtemplates", template())
    kept.tell("capacitybuffers", by_template(1))
    await kept.buffers.resolve()
    kept.room = {"spare-0": "c1"}
    await kept.look()
    assert kept.short() == []
    assert kept.port.said == [("spare", 1, ["Resolved", "RequiresNewCapacity"])]


async def test_looks_are_seldom_without_changes_and_never_without_buffers(kept: Kept) -> None:
    assert not kept.buffers.due(changed=True)
    kept.tell("podtemplates", template())
    kept.tell("capacitybuffers", by_template())
    await kept.buffers.resolve()
    assert kept.buffers.due(changed=False)
    await kept.look()
    assert not kept.buffers.due(changed=True)
    kept.now += LOOK_PAUSE
    assert kept.buffers.due(changed=False)
    await kept.look()
    kept.now += LOOK_PAUSE
    assert not kept.buffers.due(changed=False)
    kept.now += LOOK_SLOWEST
    assert kept.buffers.due(changed=False)


async def test_a_look_that_takes_long_is_repeated_seldom(kept: Kept) -> None:
    kept.tell("podtemplates", template())
    kept.tell("capacitybuffers", by_template())
    await kept.buffers.resolve()

    async def slow() -> Plan:
        return Plan(seconds=6)

    await kept.buffers.look(slow)
    kept.now += timedelta(seconds=59)
    assert not kept.buffers.due(changed=True)
    kept.now += timedelta(seconds=1)
    assert kept.buffers.due(changed=True)


async def test_a_status_that_could_not_be_written_is_written_at_the_next_look(kept: Kept) -> None:
    kept.tell("podtemplates", template())
    kept.tell("capacitybuffers", by_template())
    await kept.buffers.resolve()
    kept.port.broken = True
    await kept.look()
    kept.port.broken = False
    await kept.look()
    assert len(kept.port.said) == 1


# --- with the planner ---


@pytest.fixture
async def stage() -> AsyncIterator[tuple[Stage, Buffers]]:
    stage = Stage()
    port = Port()
    buffers = stage.planning._buffers = Buffers(stage.caches, port, lambda: stage.now)
    stage.hear("nodepools", pool())
    stage.hear("ec2nodeclasses", node_class())
    buffers.hear("podtemplates", [Delta(template())])
    buffers.hear("capacitybuffers", [Delta(by_template(3))])
    await buffers.resolve()
    yield stage, buffers
    await stage.planning.close()


async def test_room_is_bought_once_and_no_pod_is_told(stage: tuple[Stage, Buffers]) -> None:
    world, buffers = stage
    await world.planning.feed()
    assert [one.uid for one in buffers.short()] == ["spare-0", "spare-1", "spare-2"]
    outcome = await world.plan("plan-1")
    assert outcome.created >= 1 and outcome.nominated == 0 and outcome.unplaced == 0
    # A busy machine takes its time for a plan, and the next look waits for many times that.
    world.now += timedelta(minutes=1)
    await world.planning.feed()
    assert buffers.short() == []
    assert {name for name in world.claims.found if buffers.needs(name)}
    assert (await world.plan("plan-2")).created == 0
    assert world.events.said == []
    assert all(not world.nominations.waiting(name) for name in world.claims.found)


# --- emptiness ---


@pytest.mark.parametrize("held", (True, False))
def test_a_node_that_holds_room_is_not_empty(held: bool) -> None:
    world = Teller()
    world.telling._kept_for = lambda name: "default/spare" if held and name == "c1" else ""
    world.hear("nodepools", pool())
    world.hear("nodeclaims", claim("c1", phase="Initialized"))
    world.hear("nodes", node("n1", of="c1"))
    world.tell()
    assert (world.seen().empty, world.seen().kept_for) == ((False, "default/spare") if held else (True, ""))
