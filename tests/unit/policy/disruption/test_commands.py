"""Commands of voluntary disruption: their waits, due times of passes, and backoff after failures."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.disruption.commands import (
    CommandBackoff,
    CommandFinished,
    CommandRun,
    CommandState,
    DisruptionState,
    Ending,
    InFlightCommand,
    Proposal,
    ReplacementMessage,
)
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.launch import LaunchRejection
from tenure.model.nodeclaim.state import Phase
from tenure.model.signals import Pause, PermitResult
from tenure.policy.disruption.commands import (
    MAX_CONCURRENT_COMMANDS,
    CommandBackoffs,
    active_backoffs,
    all_ready,
    candidates_to_request,
    candidates_without_permit,
    cluster_blockers,
    describe_unready_replacements,
    end_outage_backoffs,
    explain_unpermitted,
    has_failed_replacements,
    is_check_due,
    is_permit_request_due,
    lost_commands,
    next_check_at,
    next_pass,
    next_timed_pass_at,
    prune_backoffs,
    record_command_result,
    rejected_candidates,
    replacement_status,
    retry_pass_at,
    why_not_start,
)
from tenure.policy.lifecycle.pauses import recheck_at
from tests.unit.policy.builders import NOW, after, before, node

CANDIDATES = tuple(CommandCandidate(node=one, claim=one, claim_uid=one, pool="default") for one in ("a", "b"))


def state(**fields: Any) -> CommandState:
    proposal = Proposal(id="p", reason="Drifted", kind="drift", candidates=CANDIDATES)
    return CommandState(cluster="demo", proposal=proposal, **fields)


def granted(until: Any = None) -> PermitResult:
    return PermitResult(granted=True, reason="Drifted", until=until)


REJECTED = PermitResult(granted=False, reason="Drifted", blocked_by="budget 0 of 2 nodes")


def names(found: tuple[CommandCandidate, ...]) -> list[str]:
    return [one.node for one in found]


def test_permit_is_valid_until_its_lease_expires() -> None:
    permits = {"a": granted(after(seconds=1)), "b": granted(NOW)}
    assert names(candidates_without_permit(state(permits=permits), NOW)) == ["b"]
    assert names(candidates_without_permit(state(permits={"a": REJECTED}), NOW)) == ["a", "b"]
    assert candidates_without_permit(state(permits={"a": granted(), "b": granted()}), NOW) == ()


def test_permits_are_requested_initially_and_renewed_before_they_expire() -> None:
    assert is_permit_request_due(state(), NOW)
    assert not is_permit_request_due(state(permits_renewed_at=before(seconds=80)), NOW) and is_permit_request_due(
        state(permits_renewed_at=before(seconds=90)), NOW
    )


def test_rejected_candidates_are_not_requested_again() -> None:
    requesting = state(permits={"a": REJECTED})
    assert names(candidates_to_request(requesting)) == ["b"] and names(rejected_candidates(requesting)) == ["a"]


def test_explanation_of_a_rejection_is_that_of_the_nodepool() -> None:
    assert explain_unpermitted(state(permits={"b": REJECTED}), CANDIDATES) == "budget 0 of 2 nodes (2 of 2 nodes)"
    assert explain_unpermitted(state(), CANDIDATES[:1]) == "NodePool default does not respond (1 of 2 nodes)"


def test_check_is_due_when_all_replacements_are_ready_or_at_its_time() -> None:
    assert is_check_due(state(), NOW), "without replacements nothing delays the check"
    half = state(claims=("x", "y"), ready=("y",), next_check_at=after(minutes=5))
    assert not all_ready(half) and not is_check_due(half, NOW) and is_check_due(half, after(minutes=5))
    complete = half.model_copy(update={"ready": ("y", "x")})
    assert is_check_due(complete, NOW)
    assert not is_check_due(complete.model_copy(update={"failed_checks": 1}), NOW)


def test_interval_of_failed_checks_grows() -> None:
    ready = state(claims=("x",), ready=("x",))
    intervals = [next_check_at(ready.model_copy(update={"failed_checks": one}), NOW) - NOW for one in (0, 1, 3, 50)]
    assert [one.total_seconds() for one in intervals] == [10, 20, 80, 300]
    assert (next_check_at(state(claims=("x",)), NOW) - NOW).total_seconds() == 300


def test_unready_replacements_are_named_up_to_three_and_counted() -> None:
    assert describe_unready_replacements(state(claims=("v", "w", "x", "y", "z"), ready=("w",))) == "v, x, y and 1 more"


PASSES: dict[str, tuple[dict[str, Any], datetime | None]] = {
    "nothing changed and no verdict expires": ({}, None),
    "something changed": ({"has_changed": True}, NOW),
    "changed soon after the last pass": ({"has_changed": True, "last": before(seconds=3)}, after(seconds=7)),
    "changed long after the last pass": ({"has_changed": True, "last": before(minutes=3)}, before(seconds=170)),
    "a verdict expires": ({"last": before(minutes=3), "next_pass_at": after(minutes=5)}, after(minutes=5)),
    "a verdict expires soon after the last pass": ({"last": NOW, "next_pass_at": after(seconds=1)}, after(seconds=10)),
    "some candidates were not reached": (
        {"last": NOW, "next_pass_at": after(seconds=2), "first": ("a",)},
        after(seconds=2),
    ),
    "some candidates were not reached and something changed": (
        {"last": NOW, "next_pass_at": after(seconds=2), "first": ("a",), "has_changed": True},
        after(seconds=10),
    ),
    "the last pass failed": ({"last": NOW, "has_changed": True, "not_before": after(minutes=1)}, after(minutes=1)),
}


@pytest.mark.parametrize("case", PASSES)
def test_next_pass_time(case: str) -> None:
    fields, due = PASSES[case]
    assert next_pass(DisruptionState(cluster="demo", **fields), NOW) == due


def test_failed_passes_are_retried_with_growing_intervals() -> None:
    assert [retry_pass_at(one, NOW) - NOW for one in (1, 2, 3, 99)] == [
        timedelta(seconds=10),
        timedelta(seconds=20),
        timedelta(seconds=40),
        timedelta(minutes=5),
    ]


def test_next_timed_pass_is_due_at_the_earliest_end() -> None:
    pause = Pause(by="ops", reason="upgrade", until=after(minutes=20))
    backoffs = (
        CommandBackoff(claims=("a",), until=after(minutes=30)),
        CommandBackoff(claims=("b",), until=before(minutes=1)),
    )
    state = DisruptionState(cluster="demo", pause=pause, backoffs=backoffs)
    assert next_timed_pass_at(state, after(hours=1), NOW) == recheck_at(pause)
    assert next_timed_pass_at(state, after(minutes=1), NOW) == after(minutes=1)
    assert next_timed_pass_at(DisruptionState(cluster="demo"), None, NOW) is None


def test_pause_blocks_until_it_ends() -> None:
    pause = Pause(by="ops", reason="upgrade", until=after(minutes=20))
    state = DisruptionState(cluster="demo", pause=pause)
    assert [one.scope for one in cluster_blockers(state, NOW)] == ["cluster"] and "ops" in cluster_blockers(state, NOW)[
        0
    ].why
    assert cluster_blockers(state, after(minutes=20)) == ()


def test_command_that_runs_for_hours_is_lost() -> None:
    running = (run(proposal("a"), since=before(hours=3)), run(proposal("b"), since=before(hours=2)))
    assert lost_commands(running, NOW) == running[:1]
    assert next_timed_pass_at(DisruptionState(cluster="demo", under_way=running[1:]), None, NOW) == after(hours=1)


def test_command_whose_workflow_is_closed_is_lost_at_once() -> None:
    running = (run(proposal("a")).model_copy(update={"closed": True}), run(proposal("b")))
    assert lost_commands(running, NOW) == running[:1]
    assert next_timed_pass_at(DisruptionState(cluster="demo", under_way=running), None, NOW) == NOW


def proposal(*names: str, pool: str = "", **fields: Any) -> Proposal:
    candidates = tuple(CommandCandidate(node=one, claim=one, claim_uid=one, pool="default") for one in names)
    defaults: dict[str, Any] = {"id": "-".join(names), "reason": "Underutilized", "kind": "single"}
    replacements = {"replacements": 1, "replacement_pools": (pool,)} if pool else {}
    return Proposal(candidates=candidates, **{**defaults, **replacements, **fields})


def run(one: Proposal, since: datetime = NOW) -> CommandRun:
    return CommandRun(under_way=InFlightCommand(proposal=one), since=since)


FAILED_REPLACEMENT = (CommandBackoff(pool="spot", until=before(minutes=1)),)
STARTS: dict[str, tuple[Proposal, list[Proposal], tuple[CommandBackoff, ...], str]] = {
    "no conflict": (proposal("a"), [proposal("b")], (), ""),
    "Empty is not for commands": (proposal("a", reason="Empty"), [], (), "NodeClaim"),
    "already running": (proposal("a"), [proposal("a")], (), "in progress"),
    "a candidate is already disrupted": (proposal("a", "b"), [proposal("b")], (), "in progress"),
    "too many concurrent commands": (
        proposal("a"),
        [proposal(f"b{one}") for one in range(MAX_CONCURRENT_COMMANDS)],
        (),
        "25 commands",
    ),
    "in backoff": (
        proposal("a"),
        [],
        (CommandBackoff(claims=("a", "z"), until=after(minutes=1)),),
        "last command failed",
    ),
    "backoff is over": (proposal("a"), [], (CommandBackoff(claims=("a",), until=NOW),), ""),
    "replacements of its NodePool failed recently": (
        proposal("a", pool="spot"),
        [],
        (CommandBackoff(pool="spot", until=after(minutes=1)),),
        "replacements of NodePool spot failed",
    ),
    "replacements failed earlier, first command to test the NodePool": (
        proposal("a", pool="spot"),
        [],
        FAILED_REPLACEMENT,
        "",
    ),
    "replacements failed earlier, another command tests the NodePool": (
        proposal("a", pool="spot"),
        [proposal("b", pool="spot")],
        FAILED_REPLACEMENT,
        "another command tests",
    ),
    "replacements failed earlier, the other command has no replacement": (
        proposal("a", pool="spot"),
        [proposal("b")],
        FAILED_REPLACEMENT,
        "",
    ),
    "no replacement in the failing NodePool": (proposal("a"), [proposal("b", pool="spot")], FAILED_REPLACEMENT, ""),
    "another NodePool is failing": (
        proposal("a", pool="default"),
        [proposal("b", pool="default")],
        (CommandBackoff(pool="spot", until=after(minutes=1)),),
        "",
    ),
}


@pytest.mark.parametrize("case", STARTS)
def test_proposal_starts_unless_it_conflicts(case: str) -> None:
    candidate_command, others, backoffs, expected = STARTS[case]
    found = why_not_start(candidate_command, [run(one) for one in others], backoffs, NOW)
    assert (expected in found) if expected else found == ""


def drifting(*names: str, pools: tuple[str, ...] = ()) -> Proposal:
    candidates = tuple(CommandCandidate(node=one, claim=one, claim_uid=one, pool="default") for one in names)
    return Proposal(
        id="p", reason="Drifted", kind="drift", candidates=candidates, replacements=len(pools), replacement_pools=pools
    )


def command_result(ending: Ending, *nodes: str) -> CommandFinished:
    return CommandFinished(proposal_id="p", ending=ending, nodes=nodes, why=ending)


def backoff_durations(ending: Ending, times: int, failing: Proposal) -> list[timedelta]:
    """Backoffs of a proposal that fails `times` times, each retried as early as possible."""
    backoffs: CommandBackoffs = ()
    now, found = NOW, []
    for _ in range(times):
        backoffs = record_command_result(backoffs, failing, command_result(ending), now)
        (one,) = active_backoffs(backoffs, now)
        found.append(one.until - now)
        now = one.until
    return found


def minutes(*numbers: float) -> list[timedelta]:
    return [timedelta(minutes=one) for one in numbers]


@pytest.mark.parametrize(
    ("ending", "pools", "first", "longest"),
    [
        pytest.param("held", (), (5, 10, 20, 40), 24 * 60, id="nodes blocked"),
        pytest.param("stale", (), (1 / 3, 2 / 3, 4 / 3, 8 / 3), 60, id="proposal stale"),
        pytest.param("not replaced", ("spot",), (1, 2, 4, 8), 60, id="replacements failed"),
    ],
)
def test_backoffs_grow(ending: Ending, pools: tuple[str, ...], first: tuple[float, ...], longest: float) -> None:
    found = backoff_durations(ending, 12, drifting("a", pools=pools))
    assert found[:4] == minutes(*first) and found[-1:] == minutes(longest)


@pytest.mark.parametrize("ending", ["not permitted", "cancelled", "failed"])
def test_endings_unrelated_to_the_nodes_do_not_lengthen_the_backoff(ending: Ending) -> None:
    assert backoff_durations(ending, 3, drifting("a")) == minutes(5, 5, 5)


def test_backoff_after_an_outage_can_end_early() -> None:
    without_worker = command_result("failed").model_copy(update={"outage": True})
    failed = record_command_result((), drifting("a"), without_worker, NOW)
    both = record_command_result(failed, drifting("b"), command_result("failed"), NOW)
    ended = end_outage_backoffs(both, NOW)
    assert [one.claims for one in active_backoffs(both, NOW)] == [("a",), ("b",)]
    assert [one.claims for one in active_backoffs(ended, NOW)] == [("b",)]
    assert [one.times for one in ended] == [one.times for one in both]


def test_only_blocking_nodes_are_in_backoff() -> None:
    recorded = record_command_result((), drifting("a", "b", "c"), command_result("held", "b"), NOW)
    assert [one.claims for one in recorded] == [("b",)]


def test_failed_replacements_put_their_nodepool_in_backoff() -> None:
    recorded = record_command_result((), drifting("a", pools=("spot",)), command_result("not replaced"), NOW)
    assert [(one.pool, one.claims) for one in recorded] == [("spot", ())]
    assert has_failed_replacements(recorded, "spot") and not has_failed_replacements(recorded, "default")


def test_success_clears_backoffs_of_its_nodes_and_nodepool() -> None:
    recorded = record_command_result((), drifting("a", pools=("spot",)), command_result("not replaced"), NOW)
    recorded = record_command_result(recorded, drifting("a", "b"), command_result("held"), NOW)
    recorded = record_command_result(recorded, drifting("a", pools=("spot",)), command_result("done"), NOW)
    assert [one.claims for one in recorded] == [("b",)]


def test_success_without_replacement_keeps_the_nodepool_backoff() -> None:
    recorded = record_command_result((), drifting("a", pools=("default",)), command_result("not replaced"), NOW)
    assert has_failed_replacements(
        record_command_result(recorded, drifting("b"), command_result("done"), NOW), "default"
    )


def test_failure_count_of_a_node_is_kept_in_another_command() -> None:
    recorded = record_command_result((), drifting("a", "b"), command_result("held"), NOW)
    recorded = record_command_result(recorded, drifting("b", "c"), command_result("held"), NOW)
    assert [(one.claims, one.times) for one in recorded] == [(("a",), 1), (("b", "c"), 2)]


@pytest.mark.parametrize(
    "until, is_active, is_retained",
    [
        (after(minutes=1), True, True),
        (NOW, False, True),
        (before(hours=23), False, True),
        (before(hours=24), False, False),
    ],
)
def test_expired_backoff_is_retained_for_a_day(until: Any, is_active: bool, is_retained: bool) -> None:
    recorded = (CommandBackoff(claims=("a",), until=until),)
    assert bool(active_backoffs(recorded, NOW)) is is_active
    assert bool(prune_backoffs(recorded, NOW)) is is_retained


LAUNCH_REJECTED = LaunchRejection(reason="InsufficientCapacity", message="no m5.large")
REPLACEMENTS: dict[str, tuple[dict[str, Any], ReplacementMessage | None]] = {
    "ready": ({"phase": Phase.READY}, ReplacementMessage(claim="a", ready=True)),
    "registering": ({"phase": Phase.REGISTRATION}, None),
    "already reported ready": ({"phase": Phase.READY, "reported_ready": True}, None),
    "draining after it was ready": ({"phase": Phase.DRAIN, "reported_ready": True}, None),
    "deleted before it was ready": (
        {"phase": Phase.DRAIN, "disruption": "Deleted"},
        ReplacementMessage(claim="a", ready=False, why="Deleted"),
    ),
    "launch rejected": (
        {"phase": Phase.TERMINATION, "disruption": "LaunchFailed", "rejection": LAUNCH_REJECTED},
        ReplacementMessage(claim="a", ready=False, why="LaunchFailed: InsufficientCapacity no m5.large"),
    ),
}


@pytest.mark.parametrize("case", REPLACEMENTS)
def test_replacement_status_message(case: str) -> None:
    fields, expected = REPLACEMENTS[case]
    state = node(**fields)
    assert replacement_status(state) is None, "the NodeClaim replaces no node"
    identity = state.identity.model_copy(update={"replaces": "demo/disruption/1"})
    assert replacement_status(state.model_copy(update={"identity": identity})) == expected
