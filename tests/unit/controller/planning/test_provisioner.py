"""A planning pass with a planner: created NodeClaims, nominations, events and repeated plans."""

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import NOT_READY_INTERVALS
from tenure.apis.nodeclaim import NodeClaim
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.nominations import Nominations
from tenure.controller.disruption.status import Overlays, OverlayStatusWriter
from tenure.controller.interruption import InterruptedCapacity
from tenure.controller.planning.catalog import FRESH_FOR, RETRY_AFTER
from tenure.controller.planning.planner_process import PlannerClient
from tenure.controller.planning.provisioner import Provisioner
from tenure.model.errors import Throttled, TryLater
from tenure.model.instance_types import Catalogue, InstanceType, ReservationHeadroom
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.plan import PlanOutcome, PlanRequest
from tenure.scheduling.settings import PlanSettings
from tests.support.controller.builders import CacheHarness, Json, at, claim, node, node_class, pod, pool, stamp
from tests.support.fakes.kubernetes import FakeEvents, FakeNodeClaims
from tests.support.injected_errors import fail_for, named
from tests.unit.scheduling.builders import COMMON, instance_type


class FailingNodeClaims(FakeNodeClaims):
    """Assigns UIDs. Creations can fail, or succeed with a lost response."""

    def __init__(self) -> None:
        super().__init__()
        self.create_failures = 0
        self.lost_responses = 0

    async def create(self, claim: NodeClaim) -> NodeClaim:
        if self.create_failures:
            self.create_failures -= 1
            raise TryLater("told to fail")
        created = claim.to_object()
        created["metadata"] |= {"uid": f"uid-{claim.name}", "creationTimestamp": stamp()}
        self.found.setdefault(claim.name, created)
        if self.lost_responses:
            self.lost_responses -= 1
            raise TryLater("cut off")
        return self._read(claim.name)


class FakeOfferings:
    """The Offerings port. It counts requests of the catalogue, which fail while `broken`."""

    def __init__(self) -> None:
        self.kinds: Sequence[InstanceType] = COMMON
        self.catalogue_requests = 0
        self.broken = False

    async def refresh(self) -> None:
        return None

    async def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        return self.kinds

    async def reservation_capacities(self, node_classes: Sequence[EC2NodeClass]) -> Mapping[str, ReservationHeadroom]:
        return {}

    async def fetch_shifted_zones(self) -> frozenset[str]:
        return frozenset()

    async def catalogue(self, node_classes: Sequence[EC2NodeClass]) -> Catalogue:
        self.catalogue_requests += 1
        if self.broken:
            raise Throttled("told to fail")
        return Catalogue(by_node_class={one.name: tuple(self.kinds) for one in node_classes})


class ProvisionerHarness(CacheHarness):
    def __init__(self, overlays: Overlays | None = None) -> None:
        super().__init__()
        self.nominations, self.claims, self.events, self.types = (
            Nominations(),
            FailingNodeClaims(),
            FakeEvents(),
            FakeOfferings(),
        )
        self.not_ready_grace_periods: dict[str, timedelta] = {}
        """By NodePool; the default is five minutes."""
        self.interrupted_capacity = InterruptedCapacity(
            self.cache, lambda pool: None, lambda observed: None, lambda: self.now
        )
        self.planner_client = PlannerClient(
            cache=self.cache,
            offerings=self.types,
            events=self.events,
            settings=PlanSettings(),
            now=lambda: self.now,
            overlay_status=OverlayStatusWriter(self.cache, overlays, lambda: self.now) if overlays else None,
            interrupted_offerings=self.interrupted_capacity.unavailable_offerings,
        )
        self.provisioner = Provisioner(
            cache=self.cache,
            nominations=self.nominations,
            not_ready=NotReadyTracker(
                self.cache, lambda pool: self.not_ready_grace_periods.get(pool, timedelta(minutes=5))
            ),
            claims=self.claims,
            events=self.events,
            planner_client=self.planner_client,
            burst_ends_at=self.interrupted_capacity.burst.ends_at,
            not_ready_grace=timedelta(minutes=5),
            not_ready_grace_periods=lambda: self.not_ready_grace_periods,
            now=lambda: self.now,
        )

    async def plan(self, plan_id: str = "plan-1", **more: Any) -> PlanOutcome:
        return await self.provisioner.plan(PlanRequest(plan_id=plan_id, **more))

    def add_pods(self, count: int, prefix: str = "p", **more: Any) -> None:
        big = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
        self.apply_objects("pods", *(pod(f"{prefix}{number}", containers=big, **more) for number in range(count)))


@pytest.fixture
async def harness() -> AsyncIterator[ProvisionerHarness]:
    harness = ProvisionerHarness()
    harness.apply_objects("nodepools", pool())
    harness.apply_objects("ec2nodeclasses", node_class())
    yield harness
    await harness.provisioner.close()


async def test_pods_are_nominated_to_created_nodeclaims(harness: ProvisionerHarness) -> None:
    harness.add_pods(14)
    outcome = await harness.plan()
    assert outcome.created == 2 and outcome.unschedulable == 0 and not outcome.blocked
    assert [len(draft.members) for draft in outcome.drafts] == [2]
    names = {member.name for member in outcome.drafts[0].members}
    assert names == set(harness.claims.found) == set(harness.cache.nodeclaims)
    assert {harness.nominations.nomination_of(f"uid-p{number}").target for number in range(14)} == names  # type: ignore[union-attr]
    assert set(harness.events.messages("Nominated")) == {f"Pod should schedule on: nodeclaim/{name}" for name in names}


async def test_object_invalid_in_the_planner_is_reported(
    harness: ProvisionerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_for(monkeypatch, "tenure.scheduling.planner_guard.build_pod_shape", named("bad0"))
    harness.add_pods(1, "bad")
    harness.add_pods(1)
    outcome = await harness.plan()
    assert (outcome.created, outcome.unschedulable) == (1, 1)
    [found] = harness.cache.invalid_objects.report().objects
    assert (found.kind, found.name, found.reason) == ("Pod", "default/bad0", "ZeroDivisionError")
    harness.delete_objects("pods", pod("bad0"))
    await harness.plan("plan-2")
    assert harness.cache.invalid_objects.report().objects == ()


async def test_next_plan_uses_launching_nodes(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    assert (await harness.plan("plan-1")).created == 1
    repeated = await harness.plan("plan-2")
    assert repeated.created == 0 and repeated.nominated == 3


async def test_repeated_plan_returns_its_earlier_drafts(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    first = await harness.plan()
    harness.add_pods(30, "more")
    second = await harness.plan()
    assert second.drafts == first.drafts and len(harness.claims.found) == first.created


CNI = {"key": "cni.example.com/agent-not-ready", "effect": "NoExecute"}


def add_node(
    harness: ProvisionerHarness,
    *,
    ready_for: float | None = None,
    not_ready_intervals: str = "",
    taints: Sequence[Json] = (),
) -> None:
    """A NodeClaim with an initialized node, NotReady since time 0 unless `ready_for` (seconds) is given."""
    harness.apply_objects(
        "nodeclaims",
        claim(
            "c1",
            phase="Initialized",
            annotations={NOT_READY_INTERVALS: not_ready_intervals} if not_ready_intervals else {},
        ),
    )
    raw = node(
        "n1", of="c1", ready=ready_for is not None, taints=list(taints), labels={"karpenter.sh/nodepool": "general"}
    )
    raw["status"]["allocatable"]["pods"] = "10"
    raw["status"]["conditions"][0]["lastTransitionTime"] = stamp(-(ready_for or 0))
    harness.apply_objects("nodes", raw)


async def test_notready_node_is_used_until_its_grace_period_ends_with_an_event(
    harness: ProvisionerHarness,
) -> None:
    add_node(harness)
    harness.add_pods(1)
    harness.now = at(299)
    first = await harness.plan("plan-1")
    assert (first.created, first.nominated) == (0, 1) and harness.events.reasons_for("c1") == []
    harness.now = at(300)
    assert (await harness.plan("plan-2")).created == 1
    messages = harness.events.messages("NotReadyGraceOver")
    assert len(messages) == 1 and "Node n1 is unavailable since 2026-01-01 12:00:00 UTC (NotReady)" in messages[0]
    assert "the grace period of 300 s" in messages[0]


async def test_grace_event_of_a_flapping_node_sums_its_intervals(harness: ProvisionerHarness) -> None:
    add_node(harness, not_ready_intervals=" ".join(f"{stamp(-n * 100)}/{stamp(-n * 100 + 70)}" for n in (4, 3, 2, 1)))
    harness.add_pods(1)
    harness.now = at(20)
    assert (await harness.plan()).created == 1
    (text,) = harness.events.messages("NotReadyGraceOver")
    assert "300 s of the last 1800 s in 5 intervals" in text


async def test_undeclared_taint_is_reported_when_its_pods_need_a_new_node(
    harness: ProvisionerHarness,
) -> None:
    add_node(harness, ready_for=60, taints=[CNI])
    harness.add_pods(1)
    assert (await harness.plan("plan-1")).created == 1
    (text,) = harness.events.messages("UndeclaredTaint")
    assert CNI["key"] in text and "startupTaints" in text
    harness.now = at(1800)
    harness.add_pods(9, "more")
    assert (await harness.plan("plan-2")).created
    assert harness.events.reasons_for("c1").count("UndeclaredTaint") == 1, (
        "only a taint that was added recently is reported"
    )


async def test_plan_without_pending_pods_creates_nothing(harness: ProvisionerHarness) -> None:
    harness.apply_objects("pods", pod("bound", on="n1"))
    assert (await harness.plan()).created == 0


async def test_pods_of_a_failed_creation_are_planned_again(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    harness.claims.create_failures = 1
    assert (await harness.plan("plan-1")).created == 0
    assert harness.nominations.nomination_of("uid-p0") is None
    assert (await harness.plan("plan-2")).created == 1


async def test_nodeclaim_with_a_lost_creation_response_is_launched(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    harness.claims.lost_responses = 1
    outcome = await harness.plan("plan-1")
    (name,) = harness.claims.found
    assert [member.name for draft in outcome.drafts for member in draft.members] == [name]
    assert harness.nominations.nomination_of("uid-p0")


async def test_unschedulable_pod_has_a_failed_scheduling_event(harness: ProvisionerHarness) -> None:
    harness.add_pods(2, nodeSelector={"kubernetes.io/arch": "mips"})
    outcome = await harness.plan()
    assert (outcome.created, outcome.unschedulable) == (0, 2)
    messages = {name: message for name, reason, message in harness.events.published if reason == "FailedScheduling"}
    assert messages.keys() == {"p0", "p1"} and "general" in messages["p0"]


async def test_nomination_of_an_unschedulable_pod_is_removed(harness: ProvisionerHarness) -> None:
    harness.add_pods(1, nodeSelector={"kubernetes.io/arch": "mips"})
    harness.nominations.nominate({"uid-p0": "taken"}, harness.now)
    assert (await harness.plan()).unschedulable == 1
    assert harness.nominations.nomination_of("uid-p0") is None and harness.nominations.pods_expected_on("taken") == ()


async def test_pods_bound_or_deleted_during_a_plan_are_not_nominated(
    harness: ProvisionerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add_pods(3)
    create = harness.claims.create

    async def change_pods_and_create(claim: NodeClaim) -> NodeClaim:
        harness.apply_objects("pods", pod("p0", on="by-hand"))
        harness.delete_objects("pods", pod("p1"))
        return await create(claim)

    monkeypatch.setattr(harness.claims, "create", change_pods_and_create)
    assert (await harness.plan()).created == 1
    (name,) = harness.claims.found
    assert harness.nominations.pods_expected_on(name) == ("uid-p2",)


async def test_limit_reached_during_a_plan_is_respected(harness: ProvisionerHarness) -> None:
    harness.apply_objects("nodepools", pool(limits={"cpu": "8"}))
    harness.add_pods(3)
    await harness.provisioner.sync_planner()
    harness.claims.add("by-hand", labels={"karpenter.sh/nodepool": "general"}, resources={"requests": {"cpu": "7"}})
    outcome = await harness.plan()
    assert (outcome.created, outcome.unschedulable) == (0, 3)
    assert "limits of NodePool general would be exceeded: cpu" in harness.events.published[-1][2]


@pytest.mark.usefixtures("planner_in_a_process")
async def test_dead_planner_is_replaced_and_synced(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    await harness.provisioner.sync_planner()
    process = harness.provisioner.planner_client.process
    assert process is not None and process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(TryLater, match="does not answer"):
        await process.apply([])
    assert (await harness.plan()).created == 1
    replacement = harness.provisioner.planner_client.process
    assert replacement is not None and replacement.pid != process.pid


async def test_instance_types_are_refreshed_after_a_class_change_or_expiry(harness: ProvisionerHarness) -> None:
    for _ in range(3):
        await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 1
    changed = node_class(generation=2)
    harness.apply_objects("ec2nodeclasses", changed)
    await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 2
    changed["status"] = {"conditions": [{"type": "SubnetsReady", "status": "True"}]}
    harness.apply_objects("ec2nodeclasses", changed)
    await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 2, "a condition other than Ready changes no instance type"
    harness.now += FRESH_FOR
    await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 3


async def test_known_instance_types_are_used_while_aws_fails(harness: ProvisionerHarness) -> None:
    harness.types.broken = True
    harness.add_pods(3)
    outcome = await harness.plan("plan-1")
    assert outcome.blocked == "the instance types of EC2NodeClass default are not known yet"
    process = harness.provisioner.planner_client.process
    for _ in range(5):
        await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 1 and harness.provisioner.planner_client.process is process
    harness.types.broken = False
    harness.now += RETRY_AFTER
    assert (await harness.plan("plan-2")).created == 1
    harness.types.broken = True
    harness.now += FRESH_FOR
    harness.add_pods(9, "more")
    assert (await harness.plan("plan-3")).created == 2


async def test_deleted_nodeclaim_is_replaced_by_the_next_plan(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    first = await harness.plan("plan-1")
    name = first.drafts[0].members[0].name
    harness.delete_objects("nodeclaims", claim(name, uid=f"uid-{name}"))
    del harness.claims.found[name]
    assert (await harness.plan("plan-2")).created == 1


@pytest.mark.parametrize(("grace", "is_reported"), [(30, True), (120, False)])
async def test_grace_event_depends_on_the_grace_period_of_the_nodepool(
    harness: ProvisionerHarness, grace: int, is_reported: bool
) -> None:
    """The node is NotReady for 40 s."""
    harness.not_ready_grace_periods["general"] = timedelta(seconds=grace)
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    harness.add_pods(8)
    assert (await harness.plan()).created
    messages = harness.events.messages("NotReadyGraceOver")
    assert bool(messages) is is_reported and all("grace period of 30 s" in one for one in messages)


async def test_interrupted_spot_nodes_are_replaced_in_one_sharded_plan(
    harness: ProvisionerHarness,
) -> None:
    spot = labels_of("m.large", "a", "spot")
    names = [f"c{number}" for number in range(20)]
    offer_spot(harness)
    harness.apply_objects("nodeclaims", *(claim(name, phase="Initialized", labels=spot) for name in names))
    harness.apply_objects("nodes", *(node(f"n-{name}", of=name) for name in names))
    for name in names:
        harness.add_pods(1, name, on=f"n-{name}")
    assert (await harness.plan("before")).created == 0
    for name in names:
        message = InterruptionMessage(kind="spotInterruption", id="terminate", at=harness.now)
        harness.interrupted_capacity.observe(harness.cache.nodeclaims[name], [message])
    outcome = await harness.plan("burst")
    assert outcome.created > 0 and outcome.unschedulable == 0
    offering_shards = [draft.offering_shard for draft in outcome.drafts]
    assert len(set(offering_shards)) == len(offering_shards) == min(3, outcome.created) and None not in offering_shards
    assert {one.offering_shard for one in (await harness.plan("burst")).drafts} == set(offering_shards), (
        "a repeat of the same plan keeps the shards"
    )
    expected = {harness.nominations.nomination_of(f"uid-{name}0") for name in names}
    assert None not in expected and not {one.target for one in expected if one} & set(names)
    planning_inputs = await harness.provisioner.planner_client.read_planning_inputs(harness.now)
    assert [(one.instance_type, one.zone, one.capacity_type) for one in planning_inputs.unavailable] == [
        ("m.large", "a", "spot")
    ]
    assert (await harness.plan("after")).created == 0


@pytest.mark.parametrize(("remaining", "spread"), [(60, True), (-1, False)])
async def test_interruption_burst_of_an_earlier_worker_lasts_until_its_end(
    harness: ProvisionerHarness, remaining: float, spread: bool
) -> None:
    offer_spot(harness)
    harness.add_pods(40)
    outcome = await harness.plan(burst_ends_at=harness.now + timedelta(seconds=remaining))
    assert (None not in {draft.offering_shard for draft in outcome.drafts}) == spread


async def test_equal_nodeclaims_launch_together_without_a_burst(harness: ProvisionerHarness) -> None:
    offer_spot(harness)
    harness.add_pods(40)
    (draft,) = (await harness.plan()).drafts
    assert len(draft.members) > 1 and draft.offering_shard is None


async def test_interrupted_node_does_not_consume_the_limit(harness: ProvisionerHarness) -> None:
    """Otherwise its replacement could be created only once its NodeClaim is being deleted."""
    harness.delete_objects("nodepools", pool())
    harness.apply_objects("nodepools", pool(limits={"nodes": "1"}))
    old = claim("old", phase="Initialized", labels=labels_of("m.large", "a", "spot"))
    harness.claims.found["old"] = old
    harness.apply_objects("nodeclaims", old)
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.add_pods(1, "p", on="n-old")
    harness.cache.set_interrupted("old", interrupted=True)
    outcome = await harness.plan("burst")
    assert (outcome.created, outcome.unschedulable) == (1, 0)


def offer_spot(harness: ProvisionerHarness) -> None:
    capacity_types = ("on-demand", "spot")
    harness.types.kinds = [
        instance_type("m.large", cpu=2, memory=8, capacity_types=capacity_types),
        instance_type("m.2xlarge", capacity_types=capacity_types),
    ]
    subnets = [{"id": f"subnet-{zone}", "zone": zone} for zone in "abc"]
    harness.apply_objects("ec2nodeclasses", {**node_class(), "status": {"subnets": subnets}})


def labels_of(instance_type: str, zone: str, capacity_type: str) -> dict[str, str]:
    return {
        labels.NODEPOOL: "general",
        labels.INSTANCE_TYPE: instance_type,
        labels.ZONE: zone,
        labels.CAPACITY_TYPE: capacity_type,
    }
