"""What commands of voluntary disruption wait for, when passes are due, and what failed disruptions cost."""

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


def test_a_permit_holds_while_its_lease_lasts() -> None:
    permits = {"a": granted(after(seconds=1)), "b": granted(NOW)}
    assert names(candidates_without_permit(state(permits=permits), NOW)) == ["b"]
    assert names(candidates_without_permit(state(permits={"a": REJECTED}), NOW)) == ["a", "b"]
    assert candidates_without_permit(state(permits={"a": granted(), "b": granted()}), NOW) == ()


def test_permits_are_asked_for_at_first_and_in_time_before_they_lapse() -> None:
    assert is_permit_request_due(state(), NOW)
    assert not is_permit_request_due(state(permits_renewed_at=before(seconds=80)), NOW) and is_permit_request_due(
        state(permits_renewed_at=before(seconds=90)), NOW
    )


def test_who_was_refused_is_answered_without_asking_again() -> None:
    requesting = state(permits={"a": REJECTED})
    assert names(candidates_to_request(requesting)) == ["b"] and names(rejected_candidates(requesting)) == ["a"]


def test_a_refusal_is_said_in_the_pools_words() -> None:
    assert explain_unpermitted(state(permits={"b": REJECTED}), CANDIDATES) == "budget 0 of 2 nodes (2 of 2 nodes)"
    assert explain_unpermitted(state(), CANDIDATES[:1]) == "NodePool default does not answer (1 of 2 nodes)"


def test_it_looks_once_all_replacements_spoke_or_when_it_is_time() -> None:
    assert is_check_due(state(), NOW), "nothing to wait for"
    half = state(claims=("x", "y"), ready=("y",), next_check_at=after(minutes=5))
    assert not all_ready(half) and not is_check_due(half, NOW) and is_check_due(half, after(minutes=5))
    complete = half.model_copy(update={"ready": ("y", "x")})
    assert is_check_due(complete, NOW)
    assert not is_check_due(complete.model_copy(update={"failed_checks": 1}), NOW)


def test_looks_that_change_nothing_become_rare() -> None:
    ready = state(claims=("x",), ready=("x",))
    waits = [next_check_at(ready.model_copy(update={"failed_checks": one}), NOW) - NOW for one in (0, 1, 3, 50)]
    assert [one.total_seconds() for one in waits] == [10, 20, 80, 300]
    assert (next_check_at(state(claims=("x",)), NOW) - NOW).total_seconds() == 300


def test_replacements_that_start_are_named_and_the_rest_is_counted() -> None:
    assert describe_unready_replacements(state(claims=("v", "w", "x", "y", "z"), ready=("w",))) == "v, x, y and 1 more"


PASSES: dict[str, tuple[dict[str, Any], datetime | None]] = {
    "nothing changed, and no verdict ends": ({}, None),
    "something changed": ({"has_changed": True}, NOW),
    "it changes all the time": ({"has_changed": True, "last": before(seconds=3)}, after(seconds=7)),
    "it changed after a while": ({"has_changed": True, "last": before(minutes=3)}, before(seconds=170)),
    "a verdict ends": ({"last": before(minutes=3), "next_pass_at": after(minutes=5)}, after(minutes=5)),
    "a verdict ends at once": ({"last": NOW, "next_pass_at": after(seconds=1)}, after(seconds=10)),
    "some were not reached": ({"last": NOW, "next_pass_at": after(seconds=2), "first": ("a",)}, after(seconds=2)),
    "some were not reached, and it changes": (
        {"last": NOW, "next_pass_at": after(seconds=2), "first": ("a",), "has_changed": True},
        after(seconds=10),
    ),
    "the last came to nothing": ({"last": NOW, "has_changed": True, "not_before": after(minutes=1)}, after(minutes=1)),
}


@pytest.mark.parametrize("case", PASSES)
def test_when_a_pass_is_due(case: str) -> None:
    fields, due = PASSES[case]
    assert next_pass(DisruptionState(cluster="demo", **fields), NOW) == due


def test_faults_are_tried_again_ever_more_slowly() -> None:
    assert [retry_pass_at(one, NOW) - NOW for one in (1, 2, 3, 99)] == [
        timedelta(seconds=10),
        timedelta(seconds=20),
        timedelta(seconds=40),
        timedelta(minutes=5),
    ]


def test_the_next_pass_comes_with_whatever_ends_first() -> None:
    pause = Pause(by="ops", reason="upgrade", until=after(minutes=20))
    backoffs = (
        CommandBackoff(claims=("a",), until=after(minutes=30)),
        CommandBackoff(claims=("b",), until=before(minutes=1)),
    )
    state = DisruptionState(cluster="demo", pause=pause, backoffs=backoffs)
    assert next_timed_pass_at(state, after(hours=1), NOW) == recheck_at(pause)
    assert next_timed_pass_at(state, after(minutes=1), NOW) == after(minutes=1)
    assert next_timed_pass_at(DisruptionState(cluster="demo"), None, NOW) is None


def test_a_pause_holds_until_it_ends() -> None:
    pause = Pause(by="ops", reason="upgrade", until=after(minutes=20))
    state = DisruptionState(cluster="demo", pause=pause)
    assert [one.scope for one in cluster_blockers(state, NOW)] == ["cluster"] and "ops" in cluster_blockers(state, NOW)[
        0
    ].why
    assert cluster_blockers(state, after(minutes=20)) == ()


def test_a_command_that_says_nothing_for_hours_is_lost() -> None:
    running = (run(proposal("a"), since=before(hours=3)), run(proposal("b"), since=before(hours=2)))
    assert lost_commands(running, NOW) == running[:1]
    assert next_timed_pass_at(DisruptionState(cluster="demo", under_way=running[1:]), None, NOW) == after(hours=1)


def proposal(*names: str, pool: str = "", **fields: Any) -> Proposal:
    candidates = tuple(CommandCandidate(node=one, claim=one, claim_uid=one, pool="default") for one in names)
    defaults: dict[str, Any] = {"id": "-".join(names), "reason": "Underutilized", "kind": "single"}
    bought = {"replacements": 1, "replacement_pools": (pool,)} if pool else {}
    return Proposal(candidates=candidates, **{**defaults, **bought, **fields})


def run(one: Proposal, since: datetime = NOW) -> CommandRun:
    return CommandRun(under_way=InFlightCommand(proposal=one), since=since)


FAILED_REPLACEMENT = (CommandBackoff(pool="spot", until=before(minutes=1)),)
STARTS: dict[str, tuple[Proposal, list[Proposal], tuple[CommandBackoff, ...], str]] = {
    "nothing stands against it": (proposal("a"), [proposal("b")], (), ""),
    "empty nodes see to themselves": (proposal("a", reason="Empty"), [], (), "NodeClaim"),
    "it runs already": (proposal("a"), [proposal("a")], (), "in progress"),
    "one of its nodes goes already": (proposal("a", "b"), [proposal("b")], (), "in progress"),
    "too many at once": (
        proposal("a"),
        [proposal(f"b{one}") for one in range(MAX_CONCURRENT_COMMANDS)],
        (),
        "25 commands",
    ),
    "it bounced": (
        proposal("a"),
        [],
        (CommandBackoff(claims=("a", "z"), until=after(minutes=1)),),
        "last command failed",
    ),
    "its pause is over": (proposal("a"), [], (CommandBackoff(claims=("a",), until=NOW),), ""),
    "its pool is in trouble now": (
        proposal("a", pool="spot"),
        [],
        (CommandBackoff(pool="spot", until=after(minutes=1)),),
        "replacements of NodePool spot failed",
    ),
    "its pool was in trouble, and it is the first to try": (proposal("a", pool="spot"), [], FAILED_REPLACEMENT, ""),
    "its pool was in trouble, and another tries": (
        proposal("a", pool="spot"),
        [proposal("b", pool="spot")],
        FAILED_REPLACEMENT,
        "another command tests",
    ),
    "its pool was in trouble, and another only takes away": (
        proposal("a", pool="spot"),
        [proposal("b")],
        FAILED_REPLACEMENT,
        "",
    ),
    "it buys nothing of the pool in trouble": (proposal("a"), [proposal("b", pool="spot")], FAILED_REPLACEMENT, ""),
    "another pool is in trouble": (
        proposal("a", pool="default"),
        [proposal("b", pool="default")],
        (CommandBackoff(pool="spot", until=after(minutes=1)),),
        "",
    ),
}


@pytest.mark.parametrize("case", STARTS)
def test_which_proposals_begin(case: str) -> None:
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


def pauses(ending: Ending, times: int, failing: Proposal) -> list[timedelta]:
    """When the same comes to nothing again and again, each time as soon as it may be tried."""
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
        pytest.param("held", (), (5, 10, 20, 40), 24 * 60, id="nodes that had to stay"),
        pytest.param("stale", (), (1 / 3, 2 / 3, 4 / 3, 8 / 3), 60, id="the world had moved"),
        pytest.param("not replaced", ("spot",), (1, 2, 4, 8), 60, id="a pool"),
    ],
)
def test_pauses_grow(ending: Ending, pools: tuple[str, ...], first: tuple[float, ...], longest: float) -> None:
    found = pauses(ending, 12, drifting("a", pools=pools))
    assert found[:4] == minutes(*first) and found[-1:] == minutes(longest)


@pytest.mark.parametrize("ending", ["not permitted", "cancelled", "failed"])
def test_what_says_nothing_of_the_nodes_makes_no_pause_longer(ending: Ending) -> None:
    assert pauses(ending, 3, drifting("a")) == minutes(5, 5, 5)


def test_only_the_nodes_that_were_the_reason_are_left_alone() -> None:
    memory = record_command_result((), drifting("a", "b", "c"), command_result("held", "b"), NOW)
    assert [one.claims for one in memory] == [("b",)]


def test_replacements_that_do_not_come_up_are_their_pools_trouble_and_no_nodes() -> None:
    memory = record_command_result((), drifting("a", pools=("spot",)), command_result("not replaced"), NOW)
    assert [(one.pool, one.claims) for one in memory] == [("spot", ())]
    assert has_failed_replacements(memory, "spot") and not has_failed_replacements(memory, "default")


def test_a_success_is_forgotten_with_its_pools_trouble() -> None:
    memory = record_command_result((), drifting("a", pools=("spot",)), command_result("not replaced"), NOW)
    memory = record_command_result(memory, drifting("a", "b"), command_result("held"), NOW)
    memory = record_command_result(memory, drifting("a", pools=("spot",)), command_result("done"), NOW)
    assert [one.claims for one in memory] == [("b",)]


def test_a_removal_without_a_replacement_says_nothing_of_its_pools_trouble() -> None:
    memory = record_command_result((), drifting("a", pools=("default",)), command_result("not replaced"), NOW)
    assert has_failed_replacements(record_command_result(memory, drifting("b"), command_result("done"), NOW), "default")


def test_a_node_in_another_company_keeps_its_count() -> None:
    memory = record_command_result((), drifting("a", "b"), command_result("held"), NOW)
    memory = record_command_result(memory, drifting("b", "c"), command_result("held"), NOW)
    assert [(one.claims, one.times) for one in memory] == [(("a",), 1), (("b", "c"), 2)]


@pytest.mark.parametrize(
    "until, is_active, is_retained",
    [
        (after(minutes=1), True, True),
        (NOW, False, True),
        (before(hours=23), False, True),
        (before(hours=24), False, False),
    ],
)
def test_a_pause_that_is_over_is_still_remembered_for_a_day(until: Any, is_active: bool, is_retained: bool) -> None:
    memory = (CommandBackoff(claims=("a",), until=until),)
    assert bool(active_backoffs(memory, NOW)) is is_active
    assert bool(prune_backoffs(memory, NOW)) is is_retained


LAUNCH_REJECTED = LaunchRejection(reason="InsufficientCapacity", message="no m5.large")
REPLACEMENTS: dict[str, tuple[dict[str, Any], ReplacementMessage | None]] = {
    "ready": ({"phase": Phase.READY}, ReplacementMessage(claim="a", ready=True)),
    "on its way": ({"phase": Phase.REGISTRATION}, None),
    "it came late": ({"phase": Phase.READY, "reported_ready": True}, None),
    "it went later": ({"phase": Phase.DRAIN, "reported_ready": True}, None),
    "deleted before": (
        {"phase": Phase.DRAIN, "disruption": "Deleted"},
        ReplacementMessage(claim="a", ready=False, why="Deleted"),
    ),
    "refused": (
        {"phase": Phase.TERMINATION, "disruption": "LaunchFailed", "rejection": LAUNCH_REJECTED},
        ReplacementMessage(claim="a", ready=False, why="LaunchFailed: InsufficientCapacity no m5.large"),
    ),
}


@pytest.mark.parametrize("case", REPLACEMENTS)
def test_what_it_says(case: str) -> None:
    fields, expected = REPLACEMENTS[case]
    state = node(**fields)
    assert replacement_status(state) is None, "it replaces none"
    identity = state.identity.model_copy(update={"replaces": "demo/disruption/1"})
    assert replacement_status(state.model_copy(update={"identity": identity})) == expected
