"""A pass of voluntary disruption with a planner, and the replacements of its proposals."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_TYPE, LAUNCH_GROUP, PLAN, REPLACEMENTS, REPLACES, ZONE
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.disruption.cached_budgets import NodePoolBudgets
from tenure.controller.disruption.controller import DisruptionController, DisruptionPass, make_disruption_settings
from tenure.controller.disruption.replacements import proposal_id
from tenure.controller.planning.nodeclaim_factory import launch_hash
from tenure.model.disruption.commands import (
    ActivePause,
    CommandBackoff,
    DisruptionDecision,
    DisruptionDecisionRequest,
    InFlightCommand,
    Proposal,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.disruption.decision import Decision, DisruptionRequest
from tenure.model.facts import NodeClaimFact
from tenure.model.instance_types import UnavailableOffering
from tenure.scheduling.cluster_state import ClusterState
from tests.support.controller.builders import at, claim, node, node_class, pod, pool, stamp, with_binding
from tests.support.product.eventually import wait_until
from tests.unit.controller.planning import provisioner_harness
from tests.unit.scheduling.builders import COMMON

KINDS = {one.name: one for one in COMMON}


class DisruptionHarness(provisioner_harness.ProvisionerHarness):
    def __init__(self) -> None:
        super().__init__()
        self.rules: dict[str, LifecycleRules] = {}
        self.decisions: list[Decision] = []
        self.passes: list[DisruptionPass] = []
        self.pauses: list[ActivePause] = []
        """Pauses set by annotations."""
        self.controller = self.make_controller()

    def make_controller(self) -> DisruptionController:
        """A controller as on another host: the same planner, but no command in memory."""
        return DisruptionController(
            cache=self.cache,
            planner_client=self.provisioner.planner_client,
            nominations=self.nominations,
            not_ready=NotReadyTracker(self.cache, lambda pool: timedelta(minutes=5)),
            budgets=NodePoolBudgets(self.cache, self.rules.get),
            claims=self.claims,
            events=self.events,
            settings=make_disruption_settings(()),
            not_ready_grace=timedelta(minutes=5),
            not_ready_grace_periods=dict,
            now=lambda: self.now,
            paused=lambda now: self.pauses,
            on_passed=self._on_passed,
        )

    def _on_passed(self, disruption_pass: DisruptionPass, decision: Decision) -> None:
        self.passes.append(disruption_pass)
        self.decisions.append(decision)

    def add_node(self, name: str, kind: str, *cpus: float, drifted: bool = False, **metadata: Any) -> None:
        """An initialized node with one pod per entry of `cpus` (CPU cores), all an hour old."""
        instance_type = KINDS[kind]
        node_labels = {key: values[0] for key, values in instance_type.labels.items()}
        node_labels |= {INSTANCE_TYPE: kind, ZONE: "a", CAPACITY_TYPE: "on-demand", "karpenter.sh/nodepool": "general"}
        raw = claim(name, phase="Initialized", **{"labels": node_labels, **metadata})
        for one in raw["status"]["conditions"]:
            one["lastTransitionTime"] = stamp(-3600)
        if drifted:
            condition = {"type": "Drifted", "status": "True", "reason": "AMIDrift", "lastTransitionTime": stamp(-60)}
            raw["status"]["conditions"].append(condition)
        self.apply_objects("nodeclaims", raw)
        node_raw = node(f"node-{name}", of=name, labels={**node_labels, "kubernetes.io/hostname": f"node-{name}"})
        node_raw["status"]["allocatable"] = {
            key: f"{value}m" if key == "cpu" else str(value) for key, value in instance_type.allocatable().items()
        }
        self.apply_objects("nodes", node_raw)
        for number, cpu in enumerate(cpus):
            self.add_pod(f"{name}-{number}", f"node-{name}", cpu)

    def add_pod(self, name: str, on: str, cpu: float) -> None:
        containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpu)}}}]
        self.apply_objects("pods", with_binding(pod(name, on=on, containers=containers), -3600))

    async def compute_disruption(self, **fields: Any) -> DisruptionDecision:
        return await self.controller.compute_disruption(DisruptionDecisionRequest(**fields))

    async def create_replacements(self, proposal: Proposal, plan_id: str = "cmd-1", **fields: Any) -> ReplacementResult:
        request = ReplacementRequest(proposal=proposal, plan_id=plan_id, workflow_id="c/disruption/x", **fields)
        return await self.controller.create_replacements(request)


def in_flight(proposal: Proposal, *claims: str) -> InFlightCommand:
    return InFlightCommand(proposal=proposal, claims=claims)


@pytest.fixture
async def harness() -> AsyncIterator[DisruptionHarness]:
    harness = DisruptionHarness()
    harness.apply_objects("nodepools", pool(disruption={"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}))
    harness.apply_objects("ec2nodeclasses", node_class())
    yield harness
    await harness.provisioner.close()


async def only_proposal(harness: DisruptionHarness, **fields: Any) -> Proposal:
    found = await harness.compute_disruption(**fields)
    assert len(found.proposals) == 1, found
    return found.proposals[0]


@pytest.mark.usefixtures("planner_in_a_process")
async def test_proposal_id_is_derived_from_its_candidates(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    harness.add_node("empty", "m.large")
    found = await harness.compute_disruption()
    (one,) = found.proposals
    assert (one.reason, one.replacements, one.replacement_pools) == ("Underutilized", 1, ("general",))
    assert (one.price_before, one.price_after, found.blocked) == (0.4, 0.1, "")
    assert (
        one.id == proposal_id("Underutilized", one.candidates) == (await only_proposal(harness)).id
        and len(one.id) == 12
    )
    assert [each.reason for each in harness.decisions[0].commands] == ["Empty", "Underutilized"], (
        "the command for the empty node is decided first"
    )
    assert (found.eligible, found.excluded) == (2, 0)


async def test_next_pass_is_due_when_time_changes_a_verdict(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge")
    harness.add_pod("young", "node-big", 1)
    harness.apply_objects("pods", with_binding(pod("younger", on="node-big"), -10))
    found = await harness.compute_disruption()
    assert not found.proposals and found.next_pass_at == at(20)
    harness.now = at(20)
    assert (await harness.compute_disruption()).proposals


async def test_next_pass_is_due_when_a_closed_budget_opens(harness: DisruptionHarness) -> None:
    closed = {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}
    harness.apply_objects("nodepools", pool(disruption={"consolidateAfter": "30s", "budgets": [closed]}))
    harness.add_node("big", "m.2xlarge", 1)
    found = await harness.compute_disruption()
    assert not found.proposals and found.next_pass_at == datetime.fromisoformat("2026-01-01T17:00:00+00:00")


async def test_next_pass_is_due_when_the_last_offering_becomes_available(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    everywhere = {"instance_type": "*", "zone": "*", "capacity_type": "*"}
    harness.provisioner.planner_client.unavailable_offerings = tuple(
        UnavailableOffering(until=until, **everywhere) for until in (at(60), at(90))
    )
    found = await harness.compute_disruption()
    assert not found.proposals and found.next_pass_at == at(90)
    harness.now = at(90)
    assert (await harness.compute_disruption()).proposals


async def test_minimum_node_age_of_a_policy_delays_disruption(harness: DisruptionHarness) -> None:
    harness.rules["general"] = LifecycleRules.model_validate({"disruption": {"minimumNodeAge": "1h"}})
    harness.add_node("big", "m.2xlarge", 1)
    found = await harness.compute_disruption()
    assert not found.proposals and found.next_pass_at == at(-100) + timedelta(hours=1)


async def test_pauses_and_backoffs_block_nodes_until_they_end(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    paused = await harness.compute_disruption(
        blockers=(ActivePause(scope="node", name="node-big", why="debugging", until=at(60)),)
    )
    assert not paused.proposals and paused.next_pass_at == at(60) and paused.excluded == 1
    backed_off = await harness.compute_disruption(
        backoffs=(CommandBackoff(pool="general", until=at(90), why="no Node joined"),)
    )
    assert not backed_off.proposals and backed_off.next_pass_at == at(90)
    assert harness.decisions[0].nodes[0].excluded[0].cause == "Paused"


async def test_annotated_pause_blocks_proposals_and_replacements(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    proposal = await only_proposal(harness)
    harness.pauses.append(ActivePause(scope="pool", name="general", why="by ann", until=at(60)))
    found = await harness.compute_disruption()
    assert not found.proposals and found.next_pass_at == at(60)
    stale = await harness.create_replacements(proposal)
    assert stale.outcome == "stale" and "NodePool general is paused: by ann" in stale.why


async def test_nominated_node_is_blocked_until_the_nomination_expires(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    harness.nominations.nominate({"uid-waiting": "big"}, at(0))
    found = await harness.compute_disruption()
    assert not found.proposals and found.next_pass_at == at(110)
    harness.now = at(110)
    assert (await harness.compute_disruption()).proposals


async def test_in_flight_command_consumes_the_budget(harness: DisruptionHarness) -> None:
    harness.apply_objects("nodepools", pool(disruption={"consolidateAfter": "30s", "budgets": [{"nodes": "1"}]}))
    harness.add_node("big", "m.2xlarge", 3.5)
    harness.add_node("bigger", "m.2xlarge", 3.5)
    first = await only_proposal(harness)
    assert harness.passes[-1].allowed_disruptions.pools["general"]["Underutilized"].allowed == 1
    assert not (await harness.compute_disruption(under_way=(in_flight(first),))).proposals
    last = harness.passes[-1]
    assert last.allowed_disruptions.pools["general"]["Underutilized"].allowed == 0 and last.consuming == {"general": 1}
    assert len(harness.passes) == 2 and last.seconds > 0


async def test_replacement_is_created_once_and_can_join_a_launch_group(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    proposal = await only_proposal(harness)
    created = await harness.create_replacements(proposal)
    assert created.outcome == "made" and len(created.claims) == 1
    fact = harness.cache.nodeclaims[created.claims[0]]
    assert (fact.annotations[PLAN], fact.annotations[REPLACES]) == ("cmd-1", "c/disruption/x")
    assert LAUNCH_GROUP not in fact.annotations and launch_hash(fact)
    assert harness.events.reasons_for(created.claims[0]) == ["DisruptionLaunching", "DisruptionWaitingReadiness"]
    assert harness.nominations.pods_expected_on(created.claims[0]) == ("uid-big-0",)
    repeated = await harness.create_replacements(proposal)
    assert repeated == created and len(harness.claims.found) == 1
    after = await harness.compute_disruption(under_way=(in_flight(proposal, *created.claims),))
    assert not after.proposals
    assert {one.claim: one.excluded[0].cause for one in harness.decisions[-1].nodes} == {
        "big": "InProgress",
        created.claims[0]: "NoNode",
    }


async def test_process_without_a_valid_lease_creates_no_replacement(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    proposal, harness.is_leading = await only_proposal(harness), False
    assert (await harness.create_replacements(proposal)).outcome == "not now"
    assert not harness.claims.found
    harness.is_leading = True
    assert (await harness.create_replacements(proposal)).outcome == "made"


async def test_another_host_finds_existing_replacements_and_reserves_their_capacity(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    proposal = await only_proposal(harness)
    created = await harness.create_replacements(proposal)
    harness.controller = harness.make_controller()
    assert await harness.create_replacements(proposal) == created
    assert not (await harness.compute_disruption(under_way=(in_flight(proposal, *created.claims),))).proposals


async def test_proposal_that_would_be_decided_differently_is_stale(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    proposal = await only_proposal(harness)
    harness.add_pod("more", "node-big", 5)
    found = await harness.create_replacements(proposal)
    assert found.outcome == "stale" and "no single node with room" in found.why
    cheaper = proposal.model_copy(update={"price_after": 0.05})
    harness.delete_objects("pods", pod("more", on="node-big"))
    harness.now = at(40)
    assert "would cost 0.1 $/h now instead of 0.05" in (await harness.create_replacements(cheaper)).why
    two_replacements = cheaper.model_copy(update={"replacements": 2})
    assert (
        "its 1 replacements would cost 0.1 $/h now instead of 0.05, and 2 were proposed"
        in (await harness.create_replacements(two_replacements)).why
    )
    harness.delete_objects("nodeclaims", claim("big"))
    assert (await harness.create_replacements(proposal)).why == "NodeClaim big is gone"
    assert not harness.claims.found


async def test_other_replacement_count_is_accepted_if_not_more_expensive(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    proposal = (await only_proposal(harness)).model_copy(update={"replacements": 2})
    created = await harness.create_replacements(proposal)
    assert (created.outcome, len(created.claims)) == ("made", 1)
    harness.controller = harness.make_controller()
    assert await harness.create_replacements(proposal) == created, "a retry finds all replacements"


async def test_other_replacement_count_of_a_drifted_node_is_stale_if_more_expensive(harness: DisruptionHarness) -> None:
    harness.add_node("old", "m.large", 1, drifted=True)
    proposal = (await only_proposal(harness)).model_copy(update={"replacements": 2})
    too_expensive = await harness.create_replacements(proposal.model_copy(update={"price_after": 0.01}))
    assert too_expensive.outcome == "stale" and "and 2 were proposed" in too_expensive.why
    assert (await harness.create_replacements(proposal)).outcome == "made"


async def test_node_whose_pods_fit_elsewhere_needs_no_replacement(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    proposal = await only_proposal(harness)
    assert proposal.replacements == 1
    harness.add_node("roomy", "m.xlarge", 0.5)
    assert await harness.create_replacements(proposal) == ReplacementResult(outcome="made")


async def test_drifted_node_is_replaced_at_any_price(harness: DisruptionHarness) -> None:
    harness.add_node("old", "m.large", 1, drifted=True)
    proposal = await only_proposal(harness)
    assert proposal.reason == "Drifted"
    assert (await harness.create_replacements(proposal.model_copy(update={"price_after": 0.01}))).outcome == "made"


async def test_capacity_of_a_later_command_is_not_used_twice(harness: DisruptionHarness) -> None:
    harness.add_node("old", "m.large", 1, drifted=True)
    harness.add_node("older", "m.large", 1, drifted=True)
    slow, fast = (await harness.compute_disruption()).proposals
    assert (await harness.create_replacements(fast, "cmd-fast", under_way=(in_flight(slow),))).outcome == "made"
    assert (await harness.create_replacements(slow, "cmd-slow")).outcome == "made"
    assert len(harness.claims.found) == 2


async def test_proposal_that_would_exceed_limits_is_stale(harness: DisruptionHarness) -> None:
    disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}
    harness.apply_objects("nodepools", pool(disruption=disruption, limits={"nodes": "1"}))
    harness.add_node("big", "m.2xlarge", 1)
    proposal = await only_proposal(harness)
    harness.claims.add("by-hand", labels={"karpenter.sh/nodepool": "general"})
    found = await harness.create_replacements(proposal)
    assert found.outcome == "stale" and "limits of NodePool general would be exceeded: nodes" in found.why


async def test_replacements_are_created_all_or_none(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    proposal = await only_proposal(harness)
    harness.claims.create_failures = 1
    found = await harness.create_replacements(proposal)
    assert found.outcome == "not now" and "is refused" in found.why and not harness.claims.found
    assert (await harness.create_replacements(proposal)).outcome == "made"


async def test_incomplete_replacements_are_rolled_back(harness: DisruptionHarness) -> None:
    """The host was lost after it created one of two replacements."""
    harness.add_node("big", "m.2xlarge", 1)
    proposal = (await only_proposal(harness)).model_copy(update={"replacements": 2})
    annotations = {PLAN: "cmd-1", REPLACEMENTS: "2"}
    harness.claims.add("general-x", annotations=annotations)
    harness.cache.assume_nodeclaim(
        NodeClaimFact(name="general-x", uid="uid-general-x", created=at(0), annotations=annotations)
    )
    found = await harness.create_replacements(proposal)
    assert (found.outcome, found.why) == ("stale", "only 1 of 2 replacements were created")
    rolled_back = await harness.claims.get("general-x")
    assert rolled_back is None or rolled_back.metadata.is_deleting


@pytest.mark.parametrize(
    "edited", ["two", "-1", "9" * 5000, "", "0"], ids=["text", "negative", "huge", "empty", "zero"]
)
async def test_edited_number_of_replacements_is_no_fault(harness: DisruptionHarness, edited: str) -> None:
    """Another replacement confirms the number. Without one, the set is incomplete."""
    harness.add_node("big", "m.2xlarge", 1)
    proposal = (await only_proposal(harness)).model_copy(update={"replacements": 2})
    for name, number in (("general-x", edited), ("general-y", "2")):
        annotations = {PLAN: "cmd-1", REPLACEMENTS: number}
        harness.claims.add(name, annotations=annotations)
        harness.cache.assume_nodeclaim(
            NodeClaimFact(name=name, uid=f"uid-{name}", created=at(0), annotations=annotations)
        )
    assert (await harness.create_replacements(proposal)).claims == ("general-x", "general-y")
    del harness.cache.nodeclaims["general-y"]
    found = await harness.create_replacements(proposal)
    assert found.outcome == "stale" and f"only 1 of {edited[:100]}" in found.why and len(found.why) <= 300
    rolled_back = await harness.claims.get("general-x")
    assert rolled_back is None or rolled_back.metadata.is_deleting


async def test_command_without_replacements_is_revalidated(harness: DisruptionHarness) -> None:
    harness.add_node("one", "m.xlarge", 1)
    harness.add_node("two", "m.xlarge", 1.5)
    proposal = await only_proposal(harness)
    assert proposal.replacements == 0
    assert await harness.create_replacements(proposal) == ReplacementResult(outcome="made")
    other = "two" if proposal.candidates[0].claim == "one" else "one"
    harness.add_pod("more", f"node-{other}", 2)
    assert (await harness.create_replacements(proposal, "cmd-2")).outcome == "stale"


async def test_pass_is_blocked_while_instance_types_are_unknown(harness: DisruptionHarness) -> None:
    harness.types.broken = True
    harness.add_node("big", "m.2xlarge", 1)
    found = await harness.compute_disruption(first=("big",))
    assert "instance types" in found.blocked and found.first == ("big",) and found.next_pass_at == at(10)


async def test_next_pass_starts_with_unreached_candidates_until_the_round_ends(
    harness: DisruptionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        harness.add_node(f"n{number}", "m.2xlarge", 7)
    few = make_disruption_settings(()).model_copy(update={"most_simulations": 5})
    monkeypatch.setattr(harness.controller, "_settings", few)
    found = await harness.compute_disruption()
    assert found.first and found.next_pass_at == at(2)
    for _ in range(5):
        before, found = found, await harness.compute_disruption(first=found.first)
        assert set(found.first) < set(before.first)
        if not found.first:
            break
    assert found.next_pass_at is None, "nothing changes, so no further pass is due"


async def test_plans_preempt_a_disruption_pass_for_ten_seconds(
    harness: DisruptionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    harness.add_pods(1)
    await harness.plan()
    started: list[bool] = []
    disrupt = ClusterState.disrupt

    def wait_until_preempted(self: ClusterState, request: DisruptionRequest) -> Decision:
        started.append(request.preemptible)
        while request.preemptible:
            self._check_preempted()
        return disrupt(self, request)

    monkeypatch.setattr(ClusterState, "disrupt", wait_until_preempted)  # The planner is a thread.
    deciding = asyncio.create_task(harness.compute_disruption())
    for passes in (1, 2):

        async def is_started(passes: int = passes) -> None:
            assert len(started) == passes

        await wait_until(is_started, poll_interval=0.01)
        harness.now += timedelta(seconds=5)
        assert (await harness.plan()).blocked == ""
        assert not deciding.done()
    decision = await deciding
    assert (decision.blocked, decision.excluded, started) == ("", 1, [True, True, False])


@pytest.mark.timeout(20)
async def test_planner_that_reads_nothing_does_not_stop_the_event_loop(harness: DisruptionHarness) -> None:
    harness.add_pods(1)
    await harness.plan()
    process = harness.provisioner.planner_client.process
    assert process is not None
    with process._send_lock:  # As while a message waits for the planner to read it.
        process.preempt()
    assert (await harness.plan("plan-2")).blocked == ""


async def test_plan_runs_before_disruption_passes_that_wait(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    await harness.compute_disruption()
    harness.add_pods(3)
    order: list[str] = []

    async def record_order(name: str, work: Awaitable[object]) -> None:
        await work
        order.append(name)

    deciding = [
        asyncio.create_task(record_order("decided", harness.compute_disruption(first=(f"{one}",)))) for one in range(5)
    ]
    await asyncio.sleep(0)
    await asyncio.gather(record_order("planned", harness.plan()), *deciding)
    assert order.index("planned") == 0
