"""Which nodes are judged when, from which facts, and what is said of it to their workflows."""

from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.controller.drift import EVERY, LIST_AGAIN, Drifting
from tenure.kube.facts.objects import claim_fact
from tenure.model.errors import Throttled
from tenure.model.instance_types import InstanceType
from tenure.model.observations import ClaimSeen
from tenure.model.provider_results import InstanceFacts
from tenure.policy.disruption.drift import decide_drift
from tests.support.controller.builders import Json, at, claim, node_class, pool, stamp
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.kubernetes import FakeEvents
from tests.unit.controller.test_telling import ALL, Stage
from tests.unit.policy.drifting import a_type, instance, listed

MARKS = {
    labels.NODEPOOL: "general",
    labels.INSTANCE_TYPE: "m6i.large",
    labels.ZONE: "us-west-2a",
    labels.CAPACITY_TYPE: "spot",
}
STATUS: dict[str, Any] = {
    "amis": [{"id": "ami-new", "requirements": []}],
    "subnets": [{"id": "subnet-a"}, {"id": "subnet-b"}],
    "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
}


class Counted(FakeInstances):
    """Counts what EC2 would be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.gets: list[str] = []

    async def list_managed(self) -> list[InstanceFacts]:
        self.lists += 1
        return list(await super().list_managed())

    async def get(self, instance_id: str) -> InstanceFacts | None:
        self.gets.append(instance_id)
        return await super().get(instance_id)


class Drifts(Stage):
    """A stage whose nodes are judged, beside what EC2 and the catalogue say."""

    def __init__(self, sent: dict[str, str] | None = None) -> None:
        super().__init__(sent)
        self.instances, self.events = Counted(), FakeEvents()
        self.types: dict[str, InstanceType] | None = listed(a_type())
        self.drifting = Drifting(
            caches=self.caches, types=self.types_of, instances=self.instances, events=self.events, now=lambda: self.now
        )
        self.telling._drift = self.drifting.of

    def types_of(self, node_class: EC2NodeClass) -> dict[str, InstanceType] | None:
        return self.types

    def launch(self, name: str = "c1", *, image: str = "ami-new", **metadata: Any) -> None:
        raw = claim(name, phase="Launched", **{"labels": MARKS, **metadata})
        raw["status"] |= {"providerID": f"aws:///us-west-2a/i-{name}", "imageID": image}
        self.hear("nodeclaims", raw)
        self.instances.running[f"i-{name}"] = instance(instance_id=f"i-{name}")

    async def look(self, seconds: float = 0) -> str:
        """One pass at that time: the reason that `c1` drifted for."""
        self.now = at(seconds)
        dirty = self.caches.take_dirty()
        self.drifting.note(dirty)
        self.telling.tell(dirty, ALL, self.now)
        await self.drifting.look()
        self.telling.tell(self.caches.take_dirty(), ALL, self.now)
        return self.reason()

    def reason(self, name: str = "c1") -> str:
        verdict = self.drifting.of(self.caches.claims[name])
        return verdict.reason if verdict else ""

    def said(self) -> list[str]:
        """The drift in everything that `c1` was told."""
        return [one.drift for one in self.told.to("prod/nodeclaim/c1/uid-c1") if isinstance(one, ClaimSeen)]


def a_class(**status: Any) -> Json:
    raw = node_class()
    raw["status"] = {**STATUS, **status}
    return raw


def stamped(name: str, stamp: str) -> Json:
    raw = a_class()
    raw["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    raw["metadata"]["annotations"] = {labels.NODECLASS_HASH: stamp, labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    return raw


@pytest.fixture
def drifts() -> Drifts:
    stage = Drifts()
    stage.hear("nodepools", pool())
    stage.hear("ec2nodeclasses", a_class())
    stage.launch()
    return stage


async def test_a_node_that_is_as_it_should_be_is_told_nothing_of_drift(drifts: Drifts) -> None:
    assert await drifts.look() == ""
    for minute in range(0, 60, 5):
        assert await drifts.look(minute * 60) == ""
    assert drifts.said() == [""]
    assert drifts.instances.lists == 12 and drifts.instances.gets == []


async def test_a_class_that_changes_is_compared_with_its_nodes_at_once(drifts: Drifts) -> None:
    await drifts.look()
    drifts.hear("ec2nodeclasses", a_class(subnets=[{"id": "subnet-b"}]))
    assert await drifts.look(5) == "SubnetDrift"
    assert drifts.said() == ["", "SubnetDrift"]
    drifts.hear("ec2nodeclasses", a_class())
    assert await drifts.look(10) == ""
    assert drifts.said() == ["", "SubnetDrift", ""]


async def test_subnets_in_another_order_are_nothing_new(drifts: Drifts) -> None:
    await drifts.look()
    drifts.hear("ec2nodeclasses", a_class(subnets=[{"id": "subnet-b"}, {"id": "subnet-a"}]))
    drifts.types = None
    drifts.instances.running.clear()
    before = drifts.drifting._next
    assert await drifts.look(5) == "" and drifts.drifting._next == before


async def test_a_pool_that_changes_is_compared_with_its_nodes_at_once(drifts: Drifts) -> None:
    await drifts.look()
    narrow = [{"key": labels.ZONE, "operator": "In", "values": ["us-west-2b"]}]
    changed = pool()
    changed["spec"]["template"]["spec"]["requirements"] = narrow
    drifts.hear("nodepools", changed)
    assert await drifts.look(5) == "RequirementsDrifted"


async def test_a_template_that_changes_drifts_what_was_made_from_it(drifts: Drifts) -> None:
    stamp = drifts.caches.pools["general"].fact.hash
    drifts.launch(annotations={labels.NODEPOOL_HASH: stamp, labels.NODEPOOL_HASH_VERSION: HASH_VERSION})
    assert await drifts.look() == ""
    changed = pool()
    changed["spec"]["template"]["metadata"] = {"labels": {"team": "web"}}
    drifts.hear("nodepools", changed)
    assert await drifts.look(5) == "NodePoolDrifted"


async def test_another_image_of_the_type_is_seen_once_the_types_are_known_again(drifts: Drifts) -> None:
    """While they are not, nothing is: the class is another already."""
    await drifts.look()
    drifts.types = None
    drifts.hear("ec2nodeclasses", a_class(amis=[{"id": "ami-newer", "requirements": []}]))
    assert await drifts.look(5) == ""
    drifts.types = listed(a_type(image_id="ami-newer"))
    drifts.drifting.look_at_all()
    assert await drifts.look(6) == "AMIDrift"


async def test_what_changes_on_a_node_is_judged_by_itself(drifts: Drifts) -> None:
    drifts.launch("c2")
    await drifts.look()
    drifts.launch("c2", image="ami-old")
    await drifts.look(2)
    assert (drifts.reason("c2"), drifts.reason("c1")) == ("AMIDrift", "")
    assert drifts.instances.lists == 1


async def test_instances_are_listed_once_for_all_nodes_and_not_again_for_news(drifts: Drifts) -> None:
    for number in range(2, 250):
        drifts.launch(f"c{number}")
    await drifts.look()
    for second in range(1, 60):
        drifts.hear("ec2nodeclasses", a_class(subnets=[{"id": "subnet-a"}, {"id": f"subnet-{second}"}]))
        await drifts.look(second)
    assert drifts.instances.lists == 1


async def test_an_instance_that_was_not_listed_is_soon_asked_for_again(drifts: Drifts) -> None:
    """Launched after the list was made, and the class changes now."""
    await drifts.look()
    drifts.launch("c2")
    drifts.hear("ec2nodeclasses", a_class(subnets=[{"id": "subnet-b"}]))
    await drifts.look(5)
    assert (drifts.reason("c1"), drifts.reason("c2")) == ("SubnetDrift", "")
    await drifts.look(LIST_AGAIN.total_seconds())
    assert drifts.reason("c2") == "SubnetDrift" and drifts.instances.lists == 2


async def test_while_ec2_does_not_answer_verdicts_on_instances_stand_and_others_go_on(drifts: Drifts) -> None:
    drifts.launch("c2")
    drifts.hear("ec2nodeclasses", a_class(subnets=[{"id": "subnet-b"}]))
    assert await drifts.look() == "SubnetDrift"
    drifts.instances.faults["list_managed"] = [Throttled("slow down")] * 3
    drifts.hear("ec2nodeclasses", a_class())
    drifts.now = at(EVERY.total_seconds())
    drifts.launch("c2", image="ami-old")
    assert await drifts.look(EVERY.total_seconds()) == "SubnetDrift"
    assert drifts.reason("c2") == "AMIDrift", "the first in order, known without EC2"
    later = EVERY.total_seconds()
    for _ in range(3):
        later += LIST_AGAIN.total_seconds()
        await drifts.look(later)
    assert drifts.reason() == ""


async def test_a_failure_makes_no_drift(drifts: Drifts) -> None:
    drifts.instances.faults["list_managed"] = [Throttled("slow down")] * 5
    drifts.hear("ec2nodeclasses", a_class(subnets=[{"id": "subnet-b"}], securityGroups=[{"id": "sg-9"}]))
    for seconds in range(0, 120, 30):
        assert await drifts.look(seconds) == ""


async def test_a_reservation_is_believed_lost_after_a_fresh_look_only(drifts: Drifts) -> None:
    asked = [
        {"type": labels.CAPACITY_RESERVATIONS_READY, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
    reserved = instance(instance_id="i-c1", capacity_type="reserved", reservation_id="cr-1")
    drifts.instances.running["i-c1"] = reserved
    drifts.hear("ec2nodeclasses", a_class(conditions=asked))

    class Left(Counted):
        async def get(self, instance_id: str) -> InstanceFacts | None:
            await super().get(instance_id)
            return instance(instance_id=instance_id)

    left = Left()
    left.running = drifts.instances.running
    drifts.drifting._instances = left
    assert await drifts.look() == "" and left.gets == ["i-c1"]
    drifts.drifting._instances = drifts.instances
    assert await drifts.look(EVERY.total_seconds()) == "CapacityReservationDrift"
    assert await drifts.look(2 * EVERY.total_seconds()) == "CapacityReservationDrift"
    assert drifts.instances.gets == ["i-c1"], "and not at every look"


async def test_without_its_class_a_node_does_not_drift_and_its_pool_says_so(drifts: Drifts) -> None:
    drifts.launch(image="ami-old")
    assert await drifts.look() == "AMIDrift"
    drifts.lose("ec2nodeclasses", a_class())
    assert await drifts.look(5) == ""
    assert drifts.events.reasons("general") == ["NodeClassNotFound"]


async def test_with_its_class_going_a_node_does_not_drift_and_its_pool_says_so(drifts: Drifts) -> None:
    drifts.launch(image="ami-old")
    await drifts.look()
    going = a_class()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    drifts.hear("ec2nodeclasses", going)
    assert await drifts.look(5) == ""
    assert drifts.events.reasons("general") == ["NodeClassTerminating"]


async def test_a_pool_that_is_well_says_nothing(drifts: Drifts) -> None:
    await drifts.look()
    assert drifts.events.said == []


async def test_a_broken_pool_keeps_its_nodes_verdicts_and_no_others(drifts: Drifts) -> None:
    wide = pool("wide")
    wide["spec"]["template"]["spec"]["requirements"] = [{"key": "k", "operator": "Near", "values": ["1"]}]
    drifts.hear("nodepools", wide)
    drifts.launch("c2", labels={**MARKS, labels.NODEPOOL: "wide"})
    drifts.launch(image="ami-old")
    assert await drifts.look() == "AMIDrift" and drifts.reason("c2") == ""


async def test_a_node_that_cannot_be_judged_holds_up_no_other(drifts: Drifts, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_for_one(facts: Any, now: Any) -> Any:
        if facts.claim.name == "c1":
            raise RuntimeError("a bug")
        return decide_drift(facts, now)

    monkeypatch.setattr("tenure.controller.drift.decide_drift", fails_for_one)
    drifts.launch("c2", image="ami-old")
    await drifts.look()
    assert (drifts.reason("c1"), drifts.reason("c2")) == ("", "AMIDrift")


async def test_a_successor_says_nothing_new(drifts: Drifts) -> None:
    drifts.launch(image="ami-old")
    await drifts.look()
    assert drifts.said() == ["", "AMIDrift"]
    successor = Drifts(dict(drifts.told.sent))
    successor.instances = drifts.instances
    successor.types = None
    successor.hear("nodepools", pool())
    successor.hear("ec2nodeclasses", a_class())
    words = drifts.drifting.of(drifts.caches.claims["c1"])
    assert words is not None
    shown = {"type": "Drifted", "status": "True", "reason": words.reason, "message": words.message}
    raw = claim("c1", phase="Launched", labels=MARKS)
    raw["status"] |= {
        "imageID": "ami-old",
        "conditions": [*raw["status"]["conditions"], {**shown, "lastTransitionTime": stamp()}],
    }
    successor.hear("nodeclaims", raw)
    for seconds in (60, 120):
        assert await successor.look(seconds) == "AMIDrift"
    successor.types = listed(a_type())
    successor.drifting.look_at_all()
    assert await successor.look(180) == "AMIDrift"
    assert successor.said() == []


async def test_a_node_that_went_is_forgotten(drifts: Drifts) -> None:
    drifts.launch(image="ami-old")
    await drifts.look()
    gone = claim_fact({**claim("c1"), "spec": claim("c1")["spec"]})
    drifts.lose("nodeclaims", claim("c1"))
    drifts.drifting.note(drifts.caches.take_dirty())
    assert drifts.drifting.of(gone) is None and not drifts.drifting._judged


async def test_nothing_is_asked_of_ec2_without_nodes() -> None:
    stage = Drifts()
    stage.hear("nodepools", pool())
    stage.hear("nodeclaims", claim("c1"))
    await stage.look()
    assert stage.instances.lists == 0


async def test_a_node_of_another_class_is_compared_with_its_own() -> None:
    stage = Drifts()
    stage.hear("nodepools", pool())
    stage.hear("ec2nodeclasses", stamped("default", "1"), stamped("other", "2"))
    stamps = {labels.NODECLASS_HASH: "1", labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    stage.launch(annotations=stamps)
    assert await stage.look() == ""
    stage.hear("ec2nodeclasses", stamped("other", "3"))
    assert await stage.look(1) == ""
    stage.hear("ec2nodeclasses", stamped("default", "3"))
    assert await stage.look(2) == "NodeClassDrift"
