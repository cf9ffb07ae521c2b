"""When a pass is due, and which proposals begin."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.disruption.commands import CommandBackoff, CommandRun, DisruptionState, InFlightCommand, Proposal
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.signals import Pause
from tenure.policy.disruption.commands import (
    MAX_CONCURRENT_COMMANDS,
    cluster_blockers,
    lost_commands,
    next_pass,
    next_timed_pass_at,
    retry_pass_at,
    why_not_start,
)
from tenure.policy.lifecycle.pauses import recheck_at
from tests.unit.policy.builders import NOW, after, before

CASES: dict[str, tuple[dict[str, Any], datetime | None]] = {
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


@pytest.mark.parametrize("case", CASES)
def test_when_a_pass_is_due(case: str) -> None:
    fields, due = CASES[case]
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
    "it runs already": (proposal("a"), [proposal("a")], (), "under way"),
    "one of its nodes goes already": (proposal("a", "b"), [proposal("b")], (), "under way"),
    "too many at once": (
        proposal("a"),
        [proposal(f"b{one}") for one in range(MAX_CONCURRENT_COMMANDS)],
        (),
        "25 commands",
    ),
    "it bounced": (proposal("a"), [], (CommandBackoff(claims=("a", "z"), until=after(minutes=1)),), "came to nothing"),
    "its pause is over": (proposal("a"), [], (CommandBackoff(claims=("a",), until=NOW),), ""),
    "its pool is in trouble now": (
        proposal("a", pool="spot"),
        [],
        (CommandBackoff(pool="spot", until=after(minutes=1)),),
        "did not come up",
    ),
    "its pool was in trouble, and it is the first to try": (proposal("a", pool="spot"), [], FAILED_REPLACEMENT, ""),
    "its pool was in trouble, and another tries": (
        proposal("a", pool="spot"),
        [proposal("b", pool="spot")],
        FAILED_REPLACEMENT,
        "another command tries",
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
