"""The next step of a drain (reference 3.12 to 3.15, and the drain rules of LifecyclePolicies)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.base import parse_timestamp
from tenure.model.disruption.drain import DeploymentRollout, DrainState, DrainStatus
from tenure.model.provider_results import DrainPod
from tenure.policy.drain import decision
from tenure.policy.drain.blockers import terminating_blocker
from tenure.policy.drain.decision import (
    DrainDecision,
    decide_drain,
    decide_drain_status,
    fallback_after,
    next_change_at,
    terminates_soon,
)
from tests.unit.policy.builders import NOW, after, before
from tests.unit.policy.drain.drain_builders import blocked_drain, blocker, pod, rules

ESCALATE = rules(whenBlocked="escalate", blockedFor="2h")
GIVE_UP = rules(whenBlocked="giveUp", blockedFor="2h")
BLOCKED = "default/web: a budget"

STEPS: dict[str, tuple[DrainRules | None, DrainState, DrainDecision]] = {
    "no rules": (None, blocked_drain(blocked_since=before(days=3)), DrainDecision(do="wait")),
    "rules say wait": (
        rules(whenBlocked="wait"),
        blocked_drain(blocked_since=before(days=3)),
        DrainDecision(do="wait"),
    ),
    "no status yet": (ESCALATE, DrainState(), DrainDecision(do="wait")),
    "nothing blocks": (ESCALATE, blocked_drain(), DrainDecision(do="wait")),
    "blocked for less than blockedFor": (
        ESCALATE,
        blocked_drain(blocked_since=before(hours=1)),
        DrainDecision(do="wait", until=after(hours=1)),
    ),
    "blocked for blockedFor": (
        ESCALATE,
        blocked_drain(blocked_since=before(hours=2)),
        DrainDecision(do="escalate", why=BLOCKED),
    ),
    "given up after blockedFor": (
        GIVE_UP,
        blocked_drain(cancellable=True, blocked_since=before(hours=2)),
        DrainDecision(do="cancel", why=BLOCKED),
    ),
    "cannot be cancelled after deletion of the NodeClaim": (
        GIVE_UP,
        blocked_drain(blocked_since=before(hours=2)),
        DrainDecision(do="wait"),
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_decision_for_a_blocked_drain(case: str) -> None:
    found, state, step = STEPS[case]
    assert decide_drain(found, state, NOW) == step


@pytest.mark.parametrize(
    ("found", "cancellable", "prefix"),
    [
        (None, False, ""),
        (rules(whenBlocked="wait"), False, ""),
        (ESCALATE, False, "escalates at 2026-06-01T13:00:00+00:00"),
        (GIVE_UP, True, "is cancelled at 2026-06-01T13:00:00+00:00"),
        (GIVE_UP, False, "can no longer be cancelled, since its NodeClaim is being deleted"),
    ],
)
def test_next_step_is_described(found: DrainRules | None, cancellable: bool, prefix: str) -> None:
    text = decision.describe_next_step(found, before(hours=1), cancellable=cancellable)
    assert text.startswith(prefix) and bool(text) is bool(prefix)
    assert decision.describe_next_step(found, None, cancellable=cancellable) == ""


YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)
"""Go writes an unset time like this. No grace period can be subtracted from it."""


def test_next_step_without_pods_names_the_volumes() -> None:
    text = decision.describe_next_step(ESCALATE, before(hours=1), cancellable=False, has_pods=False)
    assert text == "escalates at 2026-06-01T13:00:00+00:00: the instance terminates with its volumes attached"


def test_unset_rules_have_defaults() -> None:
    assert decision.not_ready_for(None) == decision.not_ready_for(rules()) == timedelta(minutes=5)
    assert decision.not_ready_for(rules(nodeNotReady="30s")) == timedelta(seconds=30)
    assert (
        not decision.has_surge(None)
        and not decision.has_surge(rules())
        and decision.has_surge(rules(surgeSingleReplicas=True))
    )
    assert (
        not decision.can_cancel_drain(None)
        and not decision.can_cancel_drain(ESCALATE)
        and decision.can_cancel_drain(GIVE_UP)
    )


def test_cancelled_drain_is_retried_after_blocked_for() -> None:
    assert decision.retry_drain_at(GIVE_UP, NOW) == after(hours=2)
    assert decision.retry_drain_at(rules(whenBlocked="giveUp", blockedFor="1s"), NOW) == after(minutes=10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-06-01T12:00:00Z", NOW),
        ("2026-06-01T14:00:00+02:00", NOW),
        ("2026-06-01T12:00:00", None),
        ("soon", None),
        ("", None),
    ],
)
def test_termination_timestamp_requires_a_time_zone(text: str, expected: datetime | None) -> None:
    assert parse_timestamp(text) == expected


def test_earliest_deadline_counts() -> None:
    assert decision.earliest_deadline(None, None) is None
    assert decision.earliest_deadline(after(hours=1), None, after(hours=2)) == after(hours=1)


def test_escalation_deadline_is_the_longest_grace_period() -> None:
    pods = [pod(grace_seconds=30), pod("db", grace_seconds=90, group=3)]
    deadline = decision.escalation_deadline(pods, NOW)
    assert deadline == after(seconds=90)
    assert [decision.is_late(one, deadline, after(seconds=1)) for one in pods] == [False, True]
    assert decision.is_late(pods[0], deadline, after(seconds=61))


def test_escalation_deadline_is_at_least_five_seconds() -> None:
    assert decision.escalation_deadline([pod(grace_seconds=0)], NOW) == after(seconds=5)


@pytest.mark.parametrize(
    ("found", "deadline", "late"),
    [
        (pod(grace_seconds=30), None, False),
        (pod(grace_seconds=30), after(seconds=31), False),
        (pod(grace_seconds=30), after(seconds=29), True),
        (pod(grace_seconds=30, group=3, evictable=False), before(hours=1), True),
        (pod(grace_seconds=30), YEAR_1, True),
        (pod(grace_seconds=30, deletion=after(seconds=10)), after(seconds=20), False),
        (pod(grace_seconds=300, deletion=after(seconds=290)), after(seconds=20), True),
        (pod(deletion=before(seconds=10)), before(seconds=5), False),
    ],
)
def test_pod_is_late_if_its_grace_period_exceeds_the_deadline(
    found: DrainPod, deadline: datetime | None, late: bool
) -> None:
    """A pod that terminates in time is not late."""
    assert decision.is_late(found, deadline, NOW) is late


@pytest.mark.parametrize(
    ("restarted_at", "needed"),
    [("", True), ("2026-06-01T11:00:00Z", True), ("2026-06-01T12:00:00Z", False), ("2026-06-01T13:00:00+00:00", False)],
)
def test_rollout_is_restarted_once_per_drain(restarted_at: str, needed: bool) -> None:
    found = DeploymentRollout(
        namespace="default", name="web", uid="u", replicas=1, surges=True, restarted_at=restarted_at
    )
    assert decision.needs_restart(found, NOW) is needed


@pytest.mark.parametrize(("min_ready", "minutes"), [(0, 10), (300, 15)])
def test_old_pod_waits_longer_if_the_new_one_must_stay_ready(min_ready: int, minutes: int) -> None:
    found = DeploymentRollout(
        namespace="default", name="web", uid="u", replicas=1, surges=True, min_ready_seconds=min_ready
    )
    assert decision.surge_limit(found) == timedelta(minutes=minutes)


def test_only_single_replica_that_surges_is_restarted() -> None:
    single = DeploymentRollout(namespace="default", name="web", uid="u", replicas=1, surges=True)
    assert decision.creates_pod_first(single) and not decision.creates_pod_first(None)
    assert not decision.creates_pod_first(single.model_copy(update={"replicas": 2}))
    assert not decision.creates_pod_first(single.model_copy(update={"surges": False}))


def status_after(known: DrainStatus | None, *subjects: str, pods: int = 2, cause: str = "budget") -> DrainStatus:
    waiting_pods = [pod(f"p{number}", group=number) for number in range(pods)]
    eviction_blockers = [blocker(one, cause=cause) for one in subjects]
    return decide_drain_status(eviction_blockers, known, waited=waiting_pods, began=before(hours=5), now=NOW)


def test_blocker_keeps_its_start_time() -> None:
    known = DrainStatus(eviction_blockers=(blocker("a", since=before(hours=1)),), pods=2, blocked_since=before(hours=1))
    found = status_after(known, "a", "b")
    assert [one.since for one in found.eviction_blockers] == [before(hours=1), NOW]
    assert found.blocked_since == before(hours=1) and (found.pods, found.pods_in_later_groups) == (2, 1)


def test_blocked_time_continues_across_blockers_until_a_pod_leaves() -> None:
    known = DrainStatus(eviction_blockers=(blocker("a", since=before(hours=1)),), pods=2, blocked_since=before(hours=1))
    assert status_after(known, "b").blocked_since == before(hours=1)
    left = status_after(known, "a", pods=1)
    assert left.blocked_since == NOW and left.progress == NOW


def test_attached_volume_counts_as_blocked_since_the_last_pod_left() -> None:
    known = DrainStatus(eviction_blockers=(blocker("a", since=before(hours=1)),), pods=1, blocked_since=before(hours=1))
    attached = status_after(known, "v", pods=0, cause="volume")
    assert attached.blocked_since == NOW
    assert status_after(attached, "v", pods=0, cause="volume").blocked_since == NOW


@pytest.mark.parametrize("cause", ["terminating", "surge"])
def test_self_clearing_blocker_does_not_count_as_blocked(cause: str) -> None:
    assert status_after(None, "a", cause=cause).blocked_since is None


def test_unchanged_drain_status_has_same_status_line() -> None:
    first = status_after(None, *(f"default/p{number}" for number in range(7)))
    sent = first.truncate()
    assert first.status_line == sent.status_line and len(sent.eviction_blockers) == 5 and sent.unnamed_blockers == 2
    assert len(status_after(None, "n" * 300).status_line) == 250
    assert status_after(None, "default/web", cause="terminating").status_line == "pods are terminating: default/web"


def test_drain_status_survives_serialization() -> None:
    state = blocked_drain(
        cancellable=True, blocked_since=NOW, deadline=after(hours=1), not_ready_since=NOW, not_ready_until=NOW
    )
    assert DrainState.model_validate_json(state.model_dump_json()) == state
    assert any("NotReady since" in line for line in (state.status or DrainStatus()).status_lines)


# --- the time of the next pass ---


@pytest.mark.parametrize(
    ("idle_passes", "status", "seconds"),
    [
        (0, {}, 10),
        (3, {}, 80),
        (1_000, {}, 1_800),
        (1_000, {"eviction_blockers": (blocker(cause="refused", passes="unknown"),)}, 60),
        (1_000, {"not_ready_since": NOW}, 60),
    ],
)
def test_fallback_grows_more_for_blockers_that_the_watch_sees(
    idle_passes: int, status: dict[str, Any], seconds: int
) -> None:
    drain = blocked_drain(**status).model_copy(update={"idle_passes": idle_passes})
    assert fallback_after(drain) == timedelta(seconds=seconds)


@pytest.mark.parametrize(("seconds", "leaves"), [(-11, False), (-9, True), (60, True), (61, False)])
def test_pod_leaves_around_the_end_of_its_grace_period(seconds: int, leaves: bool) -> None:
    assert terminates_soon(terminating_blocker(pod(deletion=after(seconds=seconds))), NOW) is leaves
    assert not terminates_soon(blocker(passes_at=after(seconds=70)), NOW)


def test_next_change_is_the_earliest_known_time() -> None:
    protected = blocker(passes="at", passes_at=after(hours=3))
    assert next_change_at([blocker()], [pod()], None, None, NOW) is None
    assert next_change_at([protected, blocker(passes_at=before(hours=1))], [pod()], None, None, NOW) == after(hours=3)
    assert next_change_at([protected], [pod()], None, after(hours=2), NOW) == after(hours=2)
    deadline, slow = after(hours=1), pod(grace_seconds=600)
    assert next_change_at([protected], [pod(), slow], deadline, None, NOW) == after(minutes=50)
    terminating = slow.model_copy(update={"deletion": after(minutes=59)})
    assert next_change_at([], [terminating], deadline, None, NOW) == deadline
    assert next_change_at([], [slow], YEAR_1, None, NOW) is None
