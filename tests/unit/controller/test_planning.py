"""A pass of planning with a planner: what is created, what is remembered, and what a repeat does."""

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import AWAY
from tenure.apis.nodeclaim import NodeClaim
from tenure.controller.cache.availability import Away
from tenure.controller.cache.nominations import Nominations
from tenure.controller.interruption import TakenBack
from tenure.controller.planning.catalog import AGAIN_IN, FRESH_FOR
from tenure.controller.planning.provisioner import Planning
from tenure.model.errors import Throttled, TryLater
from tenure.model.instance_types import Catalogue, InstanceType, ReservationRoom
from tenure.model.interruption.notices import Notice
from tenure.model.provisioning import PlanOutcome, PlanRequest
from tenure.scheduling.settings import PlanSettings
from tests.support.controller.builders import Json, World, at, claim, node, node_class, pod, pool, stamp
from tests.support.fakes.kubernetes import FakeClaims, FakeEvents
from tests.unit.scheduling.builders import COMMON, kind


class Claims(FakeClaims):
    """Gives UIDs, and refuses some names."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0
        self.answers_lost = 0

    async def create(self, claim: NodeClaim) -> NodeClaim:
        if self.refusals:
            self.refusals -= 1
            raise TryLater("told to fail")
        made = claim.to_object()
        made["metadata"] |= {"uid": f"uid-{claim.name}", "creationTimestamp": stamp()}
        self.found.setdefault(claim.name, made)
        if self.answers_lost:
            self.answers_lost -= 1
            raise TryLater("cut off")
        return self._read(claim.name)


class Types:
    """The Offerings port: counts how often it is asked."""

    def __init__(self) -> None:
        self.kinds: Sequence[InstanceType] = COMMON
        self.asked = 0
        self.broken = False

    async def refresh(self) -> None:
        return None

    async def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        return self.kinds

    async def rooms(self, node_classes: Sequence[EC2NodeClass]) -> Mapping[str, ReservationRoom]:
        return {}

    async def away(self) -> frozenset[str]:
        return frozenset()

    async def catalogue(self, node_classes: Sequence[EC2NodeClass]) -> Catalogue:
        self.asked += 1
        if self.broken:
            raise Throttled("told to fail")
        return Catalogue(by_node_class={one.name: tuple(self.kinds) for one in node_classes})


class Stage(World):
    def __init__(self) -> None:
        super().__init__()
        self.nominations, self.claims, self.events, self.types = Nominations(), Claims(), FakeEvents(), Types()
        self.graces: dict[str, timedelta] = {}
        """By NodePool, where it is not five minutes."""
        self.planning = Planning(
            caches=self.caches,
            nominations=self.nominations,
            away=Away(self.caches, lambda pool: self.graces.get(pool, timedelta(minutes=5))),
            claims=self.claims,
            events=self.events,
            offerings=self.types,
            settings=PlanSettings(),
            not_ready_grace=timedelta(minutes=5),
            graces=lambda: self.graces,
            now=lambda: self.now,
        )

    async def plan(self, plan_id: str = "plan-1", **more: Any) -> PlanOutcome:
        return await self.planning.plan(PlanRequest(plan_id=plan_id, **more))

    def want(self, count: int, prefix: str = "p", **more: Any) -> None:
        big = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
        self.hear("pods", *(pod(f"{prefix}{number}", containers=big, **more) for number in range(count)))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    stage.hear("nodepools", pool())
    stage.hear("ec2nodeclasses", node_class())
    yield stage
    await stage.planning.close()


async def test_pods_become_claims_that_are_expected_and_remembered(stage: Stage) -> None:
    stage.want(14)
    outcome = await stage.plan()
    assert outcome.created == 2 and outcome.unplaced == 0 and not outcome.blocked
    assert [len(draft.members) for draft in outcome.drafts] == [2]
    names = {member.name for member in outcome.drafts[0].members}
    assert names == set(stage.claims.found) == set(stage.caches.claims)
    assert {stage.nominations.of(f"uid-p{number}").target for number in range(14)} == names  # type: ignore[union-attr]
    said = {message for _, reason, message in stage.events.said if reason == "Nominated"}
    assert said == {f"Pod should schedule on: nodeclaim/{name}" for name in names}


async def test_the_next_pass_counts_on_what_is_coming(stage: Stage) -> None:
    stage.want(3)
    assert (await stage.plan("plan-1")).created == 1
    again = await stage.plan("plan-2")
    assert again.created == 0 and again.nominated == 3


async def test_a_repeat_of_a_plan_returns_what_it_made_before(stage: Stage) -> None:
    stage.want(3)
    first = await stage.plan()
    stage.want(30, "more")
    second = await stage.plan()
    assert second.drafts == first.drafts and len(stage.claims.found) == first.created


CNI = {"key": "cni.example.com/agent-not-ready", "effect": "NoExecute"}


def stand(stage: Stage, *, ready_for: float | None = None, away: str = "", taints: Sequence[Json] = ()) -> None:
    """A NodeClaim with an initialized node; NotReady since minute zero unless told. `away` is its record."""
    stage.hear("nodeclaims", claim("c1", phase="Initialized", annotations={AWAY: away} if away else {}))
    raw = node(
        "n1", of="c1", ready=ready_for is not None, taints=list(taints), labels={"karpenter.sh/nodepool": "general"}
    )
    raw["status"]["allocatable"]["pods"] = "10"
    raw["status"]["conditions"][0]["lastTransitionTime"] = stamp(-(ready_for or 0))
    stage.hear("nodes", raw)


async def test_a_node_that_is_away_is_counted_on_until_its_grace_is_over_and_then_it_is_said(stage: Stage) -> None:
    stand(stage)
    stage.want(1)
    stage.now = at(299)
    first = await stage.plan("plan-1")
    assert (first.created, first.nominated) == (0, 1) and stage.events.reasons("c1") == []
    stage.now = at(300)
    assert (await stage.plan("plan-2")).created == 1
    said = [message for name, reason, message in stage.events.said if (name, reason) == ("c1", "NotReadyGraceOver")]
    assert len(said) == 1 and "Node n1 is away since 2026-01-01 12:00:00 UTC (NotReady)" in said[0]
    assert "the grace of 300 s" in said[0]


async def test_of_a_node_that_flaps_the_arithmetic_is_said(stage: Stage) -> None:
    stand(stage, away=" ".join(f"{stamp(-n * 100)}/{stamp(-n * 100 + 70)}" for n in (4, 3, 2, 1)))
    stage.want(1)
    stage.now = at(20)
    assert (await stage.plan()).created == 1
    (said,) = [message for name, reason, message in stage.events.said if reason == "NotReadyGraceOver"]
    assert "300 s of the last 1800 s in 5 stretches" in said


async def test_a_taint_that_nobody_declared_and_that_came_late_is_explained_when_a_node_is_bought(stage: Stage) -> None:
    stand(stage, ready_for=60, taints=[CNI])
    stage.want(1)
    assert (await stage.plan("plan-1")).created == 1
    (said,) = [message for name, reason, message in stage.events.said if (name, reason) == ("c1", "UndeclaredTaint")]
    assert CNI["key"] in said and "startupTaints" in said
    stage.now = at(1800)
    stage.want(9, "more")
    assert (await stage.plan("plan-2")).created
    assert stage.events.reasons("c1").count("UndeclaredTaint") == 1, "by then it is somebody's wish"


async def test_without_demand_the_planner_is_not_asked(stage: Stage) -> None:
    stage.hear("pods", pod("bound", on="n1"))
    assert (await stage.plan()).created == 0


async def test_a_claim_that_could_not_be_created_is_planned_again(stage: Stage) -> None:
    stage.want(3)
    stage.claims.refusals = 1
    assert (await stage.plan("plan-1")).created == 0
    assert stage.nominations.of("uid-p0") is None
    assert (await stage.plan("plan-2")).created == 1


async def test_a_claim_whose_creation_had_no_answer_is_launched(stage: Stage) -> None:
    stage.want(3)
    stage.claims.answers_lost = 1
    outcome = await stage.plan("plan-1")
    (name,) = stage.claims.found
    assert [member.name for draft in outcome.drafts for member in draft.members] == [name]
    assert stage.nominations.of("uid-p0")


async def test_what_nothing_can_be_bought_for_is_said_on_the_pod(stage: Stage) -> None:
    stage.want(2, nodeSelector={"kubernetes.io/arch": "mips"})
    outcome = await stage.plan()
    assert (outcome.created, outcome.unplaced) == (0, 2)
    said = {name: message for name, reason, message in stage.events.said if reason == "FailedScheduling"}
    assert said.keys() == {"p0", "p1"} and "general" in said["p0"]


async def test_a_place_that_no_plan_finds_any_more_is_expected_no_longer(stage: Stage) -> None:
    stage.want(1, nodeSelector={"kubernetes.io/arch": "mips"})
    stage.nominations.renew({"uid-p0": "taken"}, stage.now)
    assert (await stage.plan()).unplaced == 1
    assert stage.nominations.of("uid-p0") is None and stage.nominations.waiting("taken") == ()


async def test_pods_that_are_bound_or_deleted_while_they_are_planned_are_expected_nowhere(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.want(3)
    create = stage.claims.create

    async def meanwhile(claim: NodeClaim) -> NodeClaim:
        stage.hear("pods", pod("p0", on="by-hand"))
        stage.lose("pods", pod("p1"))
        return await create(claim)

    monkeypatch.setattr(stage.claims, "create", meanwhile)
    assert (await stage.plan()).created == 1
    (name,) = stage.claims.found
    assert stage.nominations.waiting(name) == ("uid-p2",)


async def test_a_limit_that_was_used_up_meanwhile_holds(stage: Stage) -> None:
    stage.hear("nodepools", pool(limits={"cpu": "8"}))
    stage.want(3)
    await stage.planning.feed()
    stage.claims.add("by-hand", labels={"karpenter.sh/nodepool": "general"}, resources={"requests": {"cpu": "7"}})
    outcome = await stage.plan()
    assert (outcome.created, outcome.unplaced) == (0, 3)
    assert "limits of NodePool general would be exceeded: cpu" in stage.events.said[-1][2]


@pytest.mark.usefixtures("planner_in_a_process")
async def test_a_planner_that_dies_is_replaced_and_filled_again(stage: Stage) -> None:
    stage.want(3)
    await stage.planning.feed()
    process = stage.planning.filling.process
    assert process is not None and process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(TryLater, match="does not answer"):
        await process.apply([])
    assert (await stage.plan()).created == 1
    replacement = stage.planning.filling.process
    assert replacement is not None and replacement.pid != process.pid


async def test_instance_types_are_asked_for_when_a_class_changes_or_they_are_old(stage: Stage) -> None:
    for _ in range(3):
        await stage.planning.feed()
    assert stage.types.asked == 1
    changed = node_class(generation=2)
    stage.hear("ec2nodeclasses", changed)
    await stage.planning.feed()
    assert stage.types.asked == 2
    changed["status"] = {"conditions": [{"type": "SubnetsReady", "status": "True"}]}
    stage.hear("ec2nodeclasses", changed)
    await stage.planning.feed()
    assert stage.types.asked == 2, "a condition beside Ready changes no instance type"
    stage.now += FRESH_FOR
    await stage.planning.feed()
    assert stage.types.asked == 3


async def test_while_aws_does_not_answer_what_is_known_goes_on_counting(stage: Stage) -> None:
    stage.types.broken = True
    stage.want(3)
    outcome = await stage.plan("plan-1")
    assert outcome.blocked == "the instance types of EC2NodeClass default are not known yet"
    process = stage.planning.filling.process
    for _ in range(5):
        await stage.planning.feed()
    assert stage.types.asked == 1 and stage.planning.filling.process is process
    stage.types.broken = False
    stage.now += AGAIN_IN
    assert (await stage.plan("plan-2")).created == 1
    stage.types.broken = True
    stage.now += FRESH_FOR
    stage.want(9, "more")
    assert (await stage.plan("plan-3")).created == 2


async def test_a_claim_that_the_watch_lost_is_bought_again(stage: Stage) -> None:
    stage.want(3)
    first = await stage.plan("plan-1")
    name = first.drafts[0].members[0].name
    stage.lose("nodeclaims", claim(name, uid=f"uid-{name}"))
    del stage.claims.found[name]
    assert (await stage.plan("plan-2")).created == 1


@pytest.mark.parametrize(("grace", "told"), [(30, True), (120, False)])
async def test_a_node_that_a_policy_waits_for_no_longer_is_named_with_its_pool_s_grace(
    stage: Stage, grace: int, told: bool
) -> None:
    """It is NotReady for 40 s."""
    stage.graces["general"] = timedelta(seconds=grace)
    stage.hear("nodeclaims", claim("c1", phase="Initialized"))
    stage.hear("nodes", node("n1", of="c1", ready=False))
    stage.want(8)
    assert (await stage.plan()).created
    said = [message for _, reason, message in stage.events.said if reason == "NotReadyGraceOver"]
    assert bool(said) is told and all("grace of 30 s" in one for one in said)


async def test_nodes_that_aws_takes_back_are_replaced_in_one_plan_that_knows_where_from(stage: Stage) -> None:
    spot = labels_of("m.large", "a", "spot")
    names = [f"c{number}" for number in range(20)]
    sell_spot(stage)
    stage.hear("nodeclaims", *(claim(name, phase="Initialized", labels=spot) for name in names))
    stage.hear("nodes", *(node(f"n-{name}", of=name) for name in names))
    for name in names:
        stage.want(1, name, on=f"n-{name}")
    assert (await stage.plan("calm")).created == 0
    taken = TakenBack(stage.caches, lambda pool: None, lambda seen: None, lambda: stage.now)
    stage.planning.filling.taken, stage.planning.storm = taken.marks, taken.storm.until
    for name in names:
        notice = Notice(kind="spotInterruption", id="terminate", at=stage.now)
        taken.hear(stage.caches.claims[name], [notice])
    outcome = await stage.plan("storm")
    assert outcome.created > 0 and outcome.unplaced == 0
    slices = [draft.pool_slice for draft in outcome.drafts]
    assert len(set(slices)) == len(slices) == min(3, outcome.created) and None not in slices
    assert {one.pool_slice for one in (await stage.plan("storm")).drafts} == set(slices), "the same plan, asked again"
    expected = {stage.nominations.of(f"uid-{name}0") for name in names}
    assert None not in expected and not {one.target for one in expected if one} & set(names)
    goods = await stage.planning.filling.goods(stage.now)
    assert [(one.instance_type, one.zone, one.capacity_type) for one in goods.unavailable] == [("m.large", "a", "spot")]
    assert (await stage.plan("again")).created == 0


@pytest.mark.parametrize(("left", "spread"), [(60, True), (-1, False)])
async def test_a_storm_that_the_worker_before_told_of_is_one_until_it_is_over(
    stage: Stage, left: float, spread: bool
) -> None:
    sell_spot(stage)
    stage.want(40)
    outcome = await stage.plan(storm=stage.now + timedelta(seconds=left))
    assert (None not in {draft.pool_slice for draft in outcome.drafts}) == spread


async def test_in_calm_times_all_that_are_alike_launch_together_from_everywhere(stage: Stage) -> None:
    sell_spot(stage)
    stage.want(40)
    (draft,) = (await stage.plan()).drafts
    assert len(draft.members) > 1 and draft.pool_slice is None


async def test_what_aws_takes_back_uses_up_no_limit(stage: Stage) -> None:
    """Else the room for what comes in its place is there only when its NodeClaim is being deleted."""
    stage.lose("nodepools", pool())
    stage.hear("nodepools", pool(limits={"nodes": "1"}))
    old = claim("old", phase="Initialized", labels=labels_of("m.large", "a", "spot"))
    stage.claims.found["old"] = old
    stage.hear("nodeclaims", old)
    stage.hear("nodes", node("n-old", of="old"))
    stage.want(1, "p", on="n-old")
    stage.caches.take_back("old", taken=True)
    outcome = await stage.plan("storm")
    assert (outcome.created, outcome.unplaced) == (1, 0)


def sell_spot(stage: Stage) -> None:
    either = ("on-demand", "spot")
    stage.types.kinds = [
        kind("m.large", cpu=2, memory=8, capacity_types=either),
        kind("m.2xlarge", capacity_types=either),
    ]
    subnets = [{"id": f"subnet-{zone}", "zone": zone} for zone in "abc"]
    stage.hear("ec2nodeclasses", {**node_class(), "status": {"subnets": subnets}})


def labels_of(instance_type: str, zone: str, capacity_type: str) -> dict[str, str]:
    return {
        labels.NODEPOOL: "general",
        labels.INSTANCE_TYPE: instance_type,
        labels.ZONE: zone,
        labels.CAPACITY_TYPE: capacity_type,
    }
