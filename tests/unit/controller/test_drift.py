"""Drift detection: which nodes are evaluated when, with which facts, and the signals to their workflows."""

from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.controller.drift import FULL_PASS_INTERVAL, RELIST_AFTER, DriftDetector
from tenure.kube.facts.objects import nodeclaim_fact
from tenure.model.errors import Throttled
from tenure.model.instance_types import InstanceType
from tenure.model.observations import ObservedNodeClaim
from tenure.model.provider_results import InstanceFacts
from tenure.policy.disruption.drift import decide_drift
from tests.support.controller.builders import Json, at, claim, node_class, pool, stamp
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.kubernetes import FakeEvents
from tests.unit.controller.signals.notifier_harness import ALL_SYNCED, NotifierHarness
from tests.unit.policy.drift_builders import STATUS, a_type, instance, listed

NODE_LABELS = {
    labels.NODEPOOL: "general",
    labels.INSTANCE_TYPE: "m6i.large",
    labels.ZONE: "us-west-2a",
    labels.CAPACITY_TYPE: "spot",
}


class CountingInstances(FakeInstances):
    """Counts requests to EC2."""

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


class DriftHarness(NotifierHarness):
    """A notifier harness with a drift detector, instances and instance types."""

    def __init__(self, sent: dict[str, str] | None = None) -> None:
        super().__init__(sent)
        self.instances, self.events = CountingInstances(), FakeEvents()
        self.types: dict[str, InstanceType] | None = listed(a_type())
        self.detector = DriftDetector(
            cache=self.cache, types=self.types_of, instances=self.instances, events=self.events, now=lambda: self.now
        )
        self.notifier._drift = self.detector.drift_of

    def types_of(self, node_class: EC2NodeClass) -> dict[str, InstanceType] | None:
        return self.types

    def launch(self, name: str = "c1", *, image: str = "ami-new", **metadata: Any) -> None:
        raw = claim(name, phase="Launched", **{"labels": NODE_LABELS, **metadata})
        raw["status"] |= {"providerID": f"aws:///us-west-2a/i-{name}", "imageID": image}
        self.apply_objects("nodeclaims", raw)
        self.instances.running[f"i-{name}"] = instance(instance_id=f"i-{name}")

    async def run_pass(self, seconds: float = 0) -> str:
        """Run one pass at that time. Returns the drift reason of `c1`."""
        self.now = at(seconds)
        changes = self.cache.drain_changes()
        self.detector.observe(changes)
        self.notifier.notify(changes, ALL_SYNCED, self.now)
        await self.detector.run_pass()
        self.notifier.notify(self.cache.drain_changes(), ALL_SYNCED, self.now)
        return self.reason()

    def reason(self, name: str = "c1") -> str:
        drift = self.detector.drift_of(self.cache.nodeclaims[name])
        return drift.reason if drift else ""

    def reported_drift(self) -> list[str]:
        """The drift of each observation sent to `c1`."""
        return [
            one.drift
            for one in self.signal_queue.arguments_to("prod/nodeclaim/c1/uid-c1")
            if isinstance(one, ObservedNodeClaim)
        ]


def resolved_nodeclass(**status: Any) -> Json:
    raw = node_class()
    raw["status"] = {**STATUS, **status}
    return raw


def hashed_nodeclass(name: str, stamp: str) -> Json:
    raw = resolved_nodeclass()
    raw["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    raw["metadata"]["annotations"] = {labels.NODECLASS_HASH: stamp, labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    return raw


@pytest.fixture
def harness() -> DriftHarness:
    harness = DriftHarness()
    harness.apply_objects("nodepools", pool())
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass())
    harness.launch()
    return harness


async def test_node_without_drift_is_signaled_once(harness: DriftHarness) -> None:
    assert await harness.run_pass() == ""
    for minute in range(0, 60, 5):
        assert await harness.run_pass(minute * 60) == ""
    assert harness.reported_drift() == [""]
    assert harness.instances.lists == 12 and harness.instances.gets == []


async def test_changed_nodeclass_is_compared_with_its_nodes_at_once(harness: DriftHarness) -> None:
    await harness.run_pass()
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(subnets=[{"id": "subnet-b"}]))
    assert await harness.run_pass(5) == "SubnetDrift"
    assert harness.reported_drift() == ["", "SubnetDrift"]
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass())
    assert await harness.run_pass(10) == ""
    assert harness.reported_drift() == ["", "SubnetDrift", ""]


async def test_reordered_subnets_cause_no_evaluation(harness: DriftHarness) -> None:
    await harness.run_pass()
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(subnets=[{"id": "subnet-b"}, {"id": "subnet-a"}]))
    harness.types = None
    harness.instances.running.clear()
    before = harness.detector._next
    assert await harness.run_pass(5) == "" and harness.detector._next == before


async def test_changed_nodepool_is_compared_with_its_nodes_at_once(harness: DriftHarness) -> None:
    await harness.run_pass()
    requirements = [{"key": labels.ZONE, "operator": "In", "values": ["us-west-2b"]}]
    changed = pool()
    changed["spec"]["template"]["spec"]["requirements"] = requirements
    harness.apply_objects("nodepools", changed)
    assert await harness.run_pass(5) == "RequirementsDrifted"


async def test_changed_template_drifts_its_nodes(harness: DriftHarness) -> None:
    stamp = harness.cache.nodepools["general"].fact.hash
    harness.launch(annotations={labels.NODEPOOL_HASH: stamp, labels.NODEPOOL_HASH_VERSION: HASH_VERSION})
    assert await harness.run_pass() == ""
    changed = pool()
    changed["spec"]["template"]["metadata"] = {"labels": {"team": "web"}}
    harness.apply_objects("nodepools", changed)
    assert await harness.run_pass(5) == "NodePoolDrifted"


async def test_image_drift_is_found_once_instance_types_are_known(harness: DriftHarness) -> None:
    """No drift is reported while the types of the changed EC2NodeClass are unknown."""
    await harness.run_pass()
    harness.types = None
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(amis=[{"id": "ami-newer", "requirements": []}]))
    assert await harness.run_pass(5) == ""
    harness.types = listed(a_type(image_id="ami-newer"))
    harness.detector.schedule_full_pass()
    assert await harness.run_pass(6) == "AMIDrift"


async def test_changed_nodeclaim_is_evaluated_alone(harness: DriftHarness) -> None:
    harness.launch("c2")
    await harness.run_pass()
    harness.launch("c2", image="ami-old")
    await harness.run_pass(2)
    assert (harness.reason("c2"), harness.reason("c1")) == ("AMIDrift", "")
    assert harness.instances.lists == 1


async def test_instances_are_listed_once_for_all_nodes_and_changes(harness: DriftHarness) -> None:
    for number in range(2, 250):
        harness.launch(f"c{number}")
    await harness.run_pass()
    for second in range(1, 60):
        harness.apply_objects(
            "ec2nodeclasses", resolved_nodeclass(subnets=[{"id": "subnet-a"}, {"id": f"subnet-{second}"}])
        )
        await harness.run_pass(second)
    assert harness.instances.lists == 1


async def test_unlisted_instance_causes_an_early_relist(harness: DriftHarness) -> None:
    """The instance launched after the last list, and now the EC2NodeClass changes."""
    await harness.run_pass()
    harness.launch("c2")
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(subnets=[{"id": "subnet-b"}]))
    await harness.run_pass(5)
    assert (harness.reason("c1"), harness.reason("c2")) == ("SubnetDrift", "")
    await harness.run_pass(RELIST_AFTER.total_seconds())
    assert harness.reason("c2") == "SubnetDrift" and harness.instances.lists == 2


async def test_instance_drift_is_kept_while_ec2_is_unavailable(harness: DriftHarness) -> None:
    harness.launch("c2")
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(subnets=[{"id": "subnet-b"}]))
    assert await harness.run_pass() == "SubnetDrift"
    harness.instances.faults["list_managed"] = [Throttled("slow down")] * 3
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass())
    harness.now = at(FULL_PASS_INTERVAL.total_seconds())
    harness.launch("c2", image="ami-old")
    assert await harness.run_pass(FULL_PASS_INTERVAL.total_seconds()) == "SubnetDrift"
    assert harness.reason("c2") == "AMIDrift", "AMI drift is checked first and needs no instance"
    later = FULL_PASS_INTERVAL.total_seconds()
    for _ in range(3):
        later += RELIST_AFTER.total_seconds()
        await harness.run_pass(later)
    assert harness.reason() == ""


async def test_failed_list_causes_no_drift(harness: DriftHarness) -> None:
    harness.instances.faults["list_managed"] = [Throttled("slow down")] * 5
    harness.apply_objects(
        "ec2nodeclasses", resolved_nodeclass(subnets=[{"id": "subnet-b"}], securityGroups=[{"id": "sg-9"}])
    )
    for seconds in range(0, 120, 30):
        assert await harness.run_pass(seconds) == ""


async def test_lost_reservation_is_confirmed_by_a_fresh_read(harness: DriftHarness) -> None:
    conditions = [
        {"type": labels.CAPACITY_RESERVATIONS_READY, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
    reserved = instance(instance_id="i-c1", capacity_type="reserved", reservation_id="cr-1")
    harness.instances.running["i-c1"] = reserved
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(conditions=conditions))

    class WithoutReservation(CountingInstances):
        async def get(self, instance_id: str) -> InstanceFacts | None:
            await super().get(instance_id)
            return instance(instance_id=instance_id)

    without_reservation = WithoutReservation()
    without_reservation.running = harness.instances.running
    harness.detector._instances = without_reservation
    assert await harness.run_pass() == "" and without_reservation.gets == ["i-c1"]
    harness.detector._instances = harness.instances
    assert await harness.run_pass(FULL_PASS_INTERVAL.total_seconds()) == "CapacityReservationDrift"
    assert await harness.run_pass(2 * FULL_PASS_INTERVAL.total_seconds()) == "CapacityReservationDrift"
    assert harness.instances.gets == ["i-c1"], "only the first pass reads the instance"


@pytest.mark.parametrize(("is_there", "reason"), [(False, "NodeClassNotFound"), (True, "NodeClassTerminating")])
async def test_node_without_nodeclass_does_not_drift_and_its_nodepool_has_an_event(
    harness: DriftHarness, is_there: bool, reason: str
) -> None:
    harness.launch(image="ami-old")
    assert await harness.run_pass() == "AMIDrift"
    terminating = resolved_nodeclass()
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (harness.apply_objects if is_there else harness.delete_objects)("ec2nodeclasses", terminating)
    assert await harness.run_pass(5) == ""
    assert harness.events.reasons_for("general") == [reason]


async def test_valid_nodepool_has_no_event(harness: DriftHarness) -> None:
    await harness.run_pass()
    assert harness.events.published == []


async def test_invalid_nodepool_keeps_drift_of_its_nodes_only(harness: DriftHarness) -> None:
    wide = pool("wide")
    wide["spec"]["template"]["spec"]["requirements"] = [{"key": "k", "operator": "Near", "values": ["1"]}]
    harness.apply_objects("nodepools", wide)
    harness.launch("c2", labels={**NODE_LABELS, labels.NODEPOOL: "wide"})
    harness.launch(image="ami-old")
    assert await harness.run_pass() == "AMIDrift" and harness.reason("c2") == ""


async def test_error_of_one_node_does_not_block_others(harness: DriftHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_for_one(facts: Any, now: Any) -> Any:
        if facts.claim.name == "c1":
            raise RuntimeError("a bug")
        return decide_drift(facts, now)

    monkeypatch.setattr("tenure.controller.drift.decide_drift", fails_for_one)
    harness.launch("c2", image="ami-old")
    await harness.run_pass()
    assert (harness.reason("c1"), harness.reason("c2")) == ("", "AMIDrift")
    assert harness.cache.invalid_objects.count() == {("NodeClaim", "RuntimeError"): 1}


async def test_successor_sends_no_signal_for_known_drift(harness: DriftHarness) -> None:
    harness.launch(image="ami-old")
    await harness.run_pass()
    assert harness.reported_drift() == ["", "AMIDrift"]
    successor = DriftHarness(dict(harness.signal_queue.sent))
    successor.instances = harness.instances
    successor.types = None
    successor.apply_objects("nodepools", pool())
    successor.apply_objects("ec2nodeclasses", resolved_nodeclass())
    drift = harness.detector.drift_of(harness.cache.nodeclaims["c1"])
    assert drift is not None
    condition = {"type": "Drifted", "status": "True", "reason": drift.reason, "message": drift.message}
    raw = claim("c1", phase="Launched", labels=NODE_LABELS)
    raw["status"] |= {
        "imageID": "ami-old",
        "conditions": [*raw["status"]["conditions"], {**condition, "lastTransitionTime": stamp()}],
    }
    successor.apply_objects("nodeclaims", raw)
    for seconds in (60, 120):
        assert await successor.run_pass(seconds) == "AMIDrift"
    successor.types = listed(a_type())
    successor.detector.schedule_full_pass()
    assert await successor.run_pass(180) == "AMIDrift"
    assert successor.reported_drift() == []


async def test_drift_of_a_deleted_node_is_forgotten(harness: DriftHarness) -> None:
    harness.launch(image="ami-old")
    await harness.run_pass()
    deleted = nodeclaim_fact({**claim("c1"), "spec": claim("c1")["spec"]})
    harness.delete_objects("nodeclaims", claim("c1"))
    harness.detector.observe(harness.cache.drain_changes())
    assert harness.detector.drift_of(deleted) is None and not harness.detector._evaluated


async def test_ec2_is_not_called_without_instances() -> None:
    harness = DriftHarness()
    harness.apply_objects("nodepools", pool())
    harness.apply_objects("nodeclaims", claim("c1"))
    await harness.run_pass()
    assert harness.instances.lists == 0


async def test_node_is_compared_with_its_own_nodeclass() -> None:
    harness = DriftHarness()
    harness.apply_objects("nodepools", pool())
    harness.apply_objects("ec2nodeclasses", hashed_nodeclass("default", "1"), hashed_nodeclass("other", "2"))
    stamps = {labels.NODECLASS_HASH: "1", labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    harness.launch(annotations=stamps)
    assert await harness.run_pass() == ""
    harness.apply_objects("ec2nodeclasses", hashed_nodeclass("other", "3"))
    assert await harness.run_pass(1) == ""
    harness.apply_objects("ec2nodeclasses", hashed_nodeclass("default", "3"))
    assert await harness.run_pass(2) == "NodeClassDrift"
