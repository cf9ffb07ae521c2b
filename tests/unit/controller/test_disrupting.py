"""A pass of voluntary disruption with a planner, and the replacements of what it proposed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_TYPE, LAUNCH_GROUP, PLAN, REPLACES, ZONE
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.availability import Away
from tenure.controller.disruption.budgets import Allowing
from tenure.controller.disruption.controller import Disrupting, Seen, settings
from tenure.controller.disruption.replacements import proposal_id
from tenure.controller.planning.nodeclaim_factory import alike
from tenure.model.disruption.commands import (
    Bounced,
    DecideAsked,
    Decided,
    Hold,
    Proposal,
    ReplaceAsked,
    Replaced,
    UnderWay,
)
from tenure.model.disruption.planning import Decision
from tenure.model.facts import ClaimFact
from tests.support.controller.builders import at, bound, claim, node, node_class, pod, pool, stamp
from tests.unit.controller import test_planning
from tests.unit.scheduling.builders import COMMON

KINDS = {one.name: one for one in COMMON}


class Stage(test_planning.Stage):
    def __init__(self) -> None:
        super().__init__()
        self.rules: dict[str, LifecycleRules] = {}
        self.decided: list[Decision] = []
        self.passed: list[Seen] = []
        self.pauses: list[Hold] = []
        """What annotations say."""
        self.disrupting = self.another()

    def another(self) -> Disrupting:
        """Another host's, on the same planner: it remembers no command."""
        return Disrupting(
            caches=self.caches,
            filling=self.planning.filling,
            nominations=self.nominations,
            away=Away(self.caches, lambda pool: timedelta(minutes=5)),
            allowing=Allowing(self.caches, self.rules.get),
            claims=self.claims,
            events=self.events,
            settings=settings(spot_to_spot=False),
            not_ready_grace=timedelta(minutes=5),
            graces=dict,
            now=lambda: self.now,
            paused=lambda now: self.pauses,
            decided=self.decided.append,
            passed=self.passed.append,
        )

    def stand(self, name: str, kind: str, *cpus: float, drifted: bool = False, **metadata: Any) -> None:
        """An initialized node with pods of so many CPUs, all an hour old."""
        made = KINDS[kind]
        marks = {key: values[0] for key, values in made.labels.items()}
        marks |= {INSTANCE_TYPE: kind, ZONE: "a", CAPACITY_TYPE: "on-demand", "karpenter.sh/nodepool": "general"}
        raw = claim(name, phase="Initialized", **{"labels": marks, **metadata})
        for one in raw["status"]["conditions"]:
            one["lastTransitionTime"] = stamp(-3600)
        if drifted:
            told = {"type": "Drifted", "status": "True", "reason": "AMIDrift", "lastTransitionTime": stamp(-60)}
            raw["status"]["conditions"].append(told)
        self.hear("nodeclaims", raw)
        up = node(f"node-{name}", of=name, labels={**marks, "kubernetes.io/hostname": f"node-{name}"})
        up["status"]["allocatable"] = {
            key: f"{value}m" if key == "cpu" else str(value) for key, value in made.allocatable().items()
        }
        self.hear("nodes", up)
        for number, cpu in enumerate(cpus):
            self.run(f"{name}-{number}", f"node-{name}", cpu)

    def run(self, name: str, on: str, cpu: float) -> None:
        asked = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpu)}}}]
        self.hear("pods", bound(pod(name, on=on, containers=asked), -3600))

    async def decide(self, **asked: Any) -> Decided:
        return await self.disrupting.decide(DecideAsked(**asked))

    async def replace(self, wanted: Proposal, plan_id: str = "cmd-1", **asked: Any) -> Replaced:
        told = ReplaceAsked(proposal=wanted, plan_id=plan_id, workflow_id="c/disruption/x", **asked)
        return await self.disrupting.replace(told)


def busy(wanted: Proposal, *claims: str) -> UnderWay:
    return UnderWay(proposal=wanted, claims=claims)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    stage.hear("nodepools", pool(disruption={"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}))
    stage.hear("ec2nodeclasses", node_class())
    yield stage
    await stage.planning.close()


async def only(stage: Stage, **asked: Any) -> Proposal:
    found = await stage.decide(**asked)
    assert len(found.proposals) == 1, found
    return found.proposals[0]


@pytest.mark.usefixtures("planner_in_a_process")
async def test_what_is_worth_it_is_proposed_under_an_id_of_its_nodes(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    stage.stand("empty", "m.large")
    found = await stage.decide()
    (one,) = found.proposals
    assert (one.reason, one.replacements, one.replacement_pools) == ("Underutilized", 1, ("general",))
    assert (one.price_before, one.price_after, found.blocked) == (0.4, 0.1, "")
    assert one.id == proposal_id("Underutilized", one.candidates) == (await only(stage)).id and len(one.id) == 12
    assert [each.reason for each in stage.decided[0].commands] == ["Empty", "Underutilized"], "the first asks by itself"
    assert (found.eligible, found.excluded) == (2, 0)


async def test_the_next_pass_comes_when_time_changes_a_verdict(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge")
    stage.run("young", "node-big", 1)
    stage.hear("pods", bound(pod("younger", on="node-big"), -10))
    found = await stage.decide()
    assert not found.proposals and found.again == at(20)
    stage.now = at(20)
    assert (await stage.decide()).proposals


async def test_a_pool_whose_budget_is_closed_is_looked_at_again_when_it_opens(stage: Stage) -> None:
    closed = {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}
    stage.hear("nodepools", pool(disruption={"consolidateAfter": "30s", "budgets": [closed]}))
    stage.stand("big", "m.2xlarge", 1)
    found = await stage.decide()
    assert not found.proposals and found.again == datetime.fromisoformat("2026-01-01T17:00:00+00:00")


async def test_rules_of_lifecycle_policies_hold(stage: Stage) -> None:
    stage.rules["general"] = LifecycleRules.model_validate({"disruption": {"minimumNodeAge": "1h"}})
    stage.stand("big", "m.2xlarge", 1)
    found = await stage.decide()
    assert not found.proposals and found.again == at(-100) + timedelta(hours=1)


async def test_pauses_and_moves_that_bounced_keep_nodes_until_they_end(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    paused = await stage.decide(holds=(Hold(scope="node", name="node-big", why="debugging", until=at(60)),))
    assert not paused.proposals and paused.again == at(60) and paused.excluded == 1
    bounced = await stage.decide(bounced=(Bounced(pool="general", until=at(90), why="no Node joined"),))
    assert not bounced.proposals and bounced.again == at(90)
    assert stage.decided[0].nodes[0].excluded[0].cause == "Paused"


async def test_a_pause_that_an_annotation_asks_for_holds_proposals_and_replacements(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    wanted = await only(stage)
    stage.pauses.append(Hold(scope="pool", name="general", why="by ann", until=at(60)))
    found = await stage.decide()
    assert not found.proposals and found.again == at(60)
    stale = await stage.replace(wanted)
    assert stale.outcome == "stale" and "NodePool general is paused: by ann" in stale.why


async def test_a_node_that_pods_are_expected_on_stays_until_they_lapse(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    stage.nominations.renew({"uid-waiting": "big"}, at(0))
    found = await stage.decide()
    assert not found.proposals and found.again == at(110)
    stage.now = at(110)
    assert (await stage.decide()).proposals


async def test_nodes_of_a_command_under_way_count_against_the_budget(stage: Stage) -> None:
    stage.hear("nodepools", pool(disruption={"consolidateAfter": "30s", "budgets": [{"nodes": "1"}]}))
    stage.stand("big", "m.2xlarge", 3.5)
    stage.stand("bigger", "m.2xlarge", 3.5)
    first = await only(stage)
    assert stage.passed[-1].allowances.pools["general"]["Underutilized"].allowed == 1
    assert not (await stage.decide(under_way=(busy(first),))).proposals
    last = stage.passed[-1]
    assert last.allowances.pools["general"]["Underutilized"].allowed == 0 and last.consuming == {"general": 1}
    assert len(stage.passed) == 2 and last.seconds > 0


async def test_the_replacement_is_made_once_and_launches_with_others_that_are_alike(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    wanted = await only(stage)
    made = await stage.replace(wanted)
    assert made.outcome == "made" and len(made.claims) == 1
    fact = stage.caches.claims[made.claims[0]]
    assert (fact.annotations[PLAN], fact.annotations[REPLACES]) == ("cmd-1", "c/disruption/x")
    assert LAUNCH_GROUP not in fact.annotations and alike(fact)
    assert stage.events.reasons(made.claims[0]) == ["DisruptionLaunching", "DisruptionWaitingReadiness"]
    assert stage.nominations.waiting(made.claims[0]) == ("uid-big-0",)
    again = await stage.replace(wanted)
    assert again == made and len(stage.claims.found) == 1
    after = await stage.decide(under_way=(busy(wanted, *made.claims),))
    assert not after.proposals
    assert {one.claim: one.excluded[0].cause for one in stage.decided[-1].nodes} == {
        "big": "InProgress",
        made.claims[0]: "NoNode",
    }


async def test_another_host_finds_what_was_made_and_keeps_room_for_a_command_that_it_does_not_know(
    stage: Stage,
) -> None:
    stage.stand("big", "m.2xlarge", 1)
    wanted = await only(stage)
    made = await stage.replace(wanted)
    stage.disrupting = stage.another()
    assert await stage.replace(wanted) == made
    assert not (await stage.decide(under_way=(busy(wanted, *made.claims),))).proposals


async def test_what_would_not_be_decided_so_any_more_is_stale(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    wanted = await only(stage)
    stage.run("more", "node-big", 5)
    found = await stage.replace(wanted)
    assert found.outcome == "stale" and "no single node with room" in found.why
    cheaper = wanted.model_copy(update={"price_after": 0.05})
    stage.lose("pods", pod("more", on="node-big"))
    stage.now = at(40)
    assert "would cost 0.1 $/h now instead of 0.05" in (await stage.replace(cheaper)).why
    several = cheaper.model_copy(update={"replacements": 2})
    assert (
        "its 1 replacements would cost 0.1 $/h now instead of 0.05, and 2 were proposed"
        in (await stage.replace(several)).why
    )
    stage.lose("nodeclaims", claim("big"))
    assert (await stage.replace(wanted)).why == "NodeClaim big is gone"
    assert not stage.claims.found


async def test_by_another_number_of_nodes_it_is_replaced_where_they_cost_no_more(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    wanted = (await only(stage)).model_copy(update={"replacements": 2})
    made = await stage.replace(wanted)
    assert (made.outcome, len(made.claims)) == ("made", 1)
    stage.disrupting = stage.another()
    assert await stage.replace(wanted) == made, "another try finds all that was made"


async def test_a_drifted_node_is_replaced_by_another_number_of_nodes_only_where_they_cost_no_more(stage: Stage) -> None:
    stage.stand("old", "m.large", 1, drifted=True)
    wanted = (await only(stage)).model_copy(update={"replacements": 2})
    dearer = await stage.replace(wanted.model_copy(update={"price_after": 0.01}))
    assert dearer.outcome == "stale" and "and 2 were proposed" in dearer.why
    assert (await stage.replace(wanted)).outcome == "made"


async def test_a_node_whose_pods_have_room_elsewhere_by_now_needs_no_replacement(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    wanted = await only(stage)
    assert wanted.replacements == 1
    stage.stand("roomy", "m.xlarge", 0.5)
    assert await stage.replace(wanted) == Replaced(outcome="made")


async def test_a_drifted_node_is_replaced_whatever_it_costs_now(stage: Stage) -> None:
    stage.stand("old", "m.large", 1, drifted=True)
    wanted = await only(stage)
    assert wanted.reason == "Drifted"
    assert (await stage.replace(wanted.model_copy(update={"price_after": 0.01}))).outcome == "made"


async def test_room_of_a_command_that_began_later_and_was_faster_is_not_used_twice(stage: Stage) -> None:
    stage.stand("old", "m.large", 1, drifted=True)
    stage.stand("older", "m.large", 1, drifted=True)
    slow, fast = (await stage.decide()).proposals
    assert (await stage.replace(fast, "cmd-fast", under_way=(busy(slow),))).outcome == "made"
    assert (await stage.replace(slow, "cmd-slow")).outcome == "made"
    assert len(stage.claims.found) == 2


async def test_limits_that_were_used_up_meanwhile_make_it_stale(stage: Stage) -> None:
    disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}
    stage.hear("nodepools", pool(disruption=disruption, limits={"nodes": "1"}))
    stage.stand("big", "m.2xlarge", 1)
    wanted = await only(stage)
    stage.claims.add("by-hand", labels={"karpenter.sh/nodepool": "general"})
    found = await stage.replace(wanted)
    assert found.outcome == "stale" and "limits of NodePool general would be exceeded: nodes" in found.why


async def test_replacements_are_made_all_or_none(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    wanted = await only(stage)
    stage.claims.refusals = 1
    found = await stage.replace(wanted)
    assert found.outcome == "not now" and "told to fail" in found.why and not stage.claims.found
    assert (await stage.replace(wanted)).outcome == "made"


async def test_part_of_the_replacements_alone_is_taken_back(stage: Stage) -> None:
    """A host was lost between two of them."""
    stage.stand("big", "m.2xlarge", 1)
    wanted = (await only(stage)).model_copy(update={"replacements": 2})
    stage.claims.add("general-x", annotations={PLAN: "cmd-1"})
    stage.caches.expect(ClaimFact(name="general-x", uid="uid-general-x", created=at(0), annotations={PLAN: "cmd-1"}))
    found = await stage.replace(wanted)
    assert (found.outcome, found.why) == ("stale", "only 1 of 2 replacements were made")
    gone = await stage.claims.get("general-x")
    assert gone is None or gone.metadata.deleting


async def test_a_command_without_replacements_is_looked_at_once_more_too(stage: Stage) -> None:
    stage.stand("one", "m.xlarge", 1)
    stage.stand("two", "m.xlarge", 1.5)
    wanted = await only(stage)
    assert wanted.replacements == 0
    assert await stage.replace(wanted) == Replaced(outcome="made")
    other = "two" if wanted.candidates[0].claim == "one" else "one"
    stage.run("more", f"node-{other}", 2)
    assert (await stage.replace(wanted, "cmd-2")).outcome == "stale"


async def test_while_instance_types_are_not_known_nothing_is_said_for_sure(stage: Stage) -> None:
    stage.types.broken = True
    stage.stand("big", "m.2xlarge", 1)
    found = await stage.decide(first=("big",))
    assert "instance types" in found.blocked and found.first == ("big",) and found.again == at(10)


async def test_what_a_pass_does_not_reach_comes_first_and_then_the_round_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        stage.stand(f"n{number}", "m.2xlarge", 7)
    few = settings(spot_to_spot=False).model_copy(update={"most_simulations": 5})
    monkeypatch.setattr(stage.disrupting, "_settings", few)
    found = await stage.decide()
    assert found.first and found.again == at(2)
    for _ in range(5):
        before, found = found, await stage.decide(first=found.first)
        assert set(found.first) < set(before.first)
        if not found.first:
            break
    assert found.again is None, "nothing changes, so nobody asks again"


async def test_pods_that_wait_for_a_plan_go_before_all_but_one_that_decide(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    await stage.decide()
    stage.want(3)
    order: list[str] = []

    async def told(name: str, work: Awaitable[object]) -> None:
        await work
        order.append(name)

    deciding = [asyncio.create_task(told("decided", stage.decide(first=(f"{one}",)))) for one in range(5)]
    await asyncio.sleep(0)
    await asyncio.gather(told("planned", stage.plan()), *deciding)
    assert order.index("planned") <= 2


async def test_a_claim_of_a_plan_keeps_its_launch_group(stage: Stage) -> None:
    stage.want(1)
    await stage.plan()
    (fact,) = stage.caches.claims.values()
    assert fact.annotations[LAUNCH_GROUP] and REPLACES not in fact.annotations
