"""What a ready node does next, and when it expires."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.disruption.drain import CancelledDrain
from tenure.model.interruption.messages import EventKind
from tenure.model.node_health import ConditionInterval, Health
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.model.signals import Pause, PermitResult
from tenure.policy.lifecycle.pauses import describe_pause, recheck_at
from tenure.policy.lifecycle.ready import (
    ReadyDecision,
    consolidate_after,
    decide_ready,
    expiry_of,
    has_expired,
    is_under_budget,
)
from tests.unit.policy.builders import NOW, REJECTED, after, before, empty_for, node, permit
from tests.unit.policy.interruption_builders import interruption_message, rules
from tests.unit.policy.interruption_builders import tracked_interruptions as heard

PAUSE = Pause(by="ops", reason="upgrade", until=after(hours=1))
UNDER_BUDGET = LifecycleRules.model_validate({"expiry": {"underBudget": True}})
OVER = Pause(by="ops", reason="upgrade", until=before(hours=1))
CANCELLED_DRAIN = CancelledDrain(at=before(hours=1), retry_at=after(hours=1), why="default/web: a budget")
CANCELLED_DRAIN_REASON = "its drain was cancelled: default/web: a budget"
CANCELS_BLOCKED_DRAIN = LifecycleRules.model_validate(
    {"drain": {"whenBlocked": "giveUp", "blockedFor": "2h"}, "expiry": {"underBudget": True}}
)

DEFERS = rules(scheduledChange={"action": "deferUntilEventStart"})
DEFERRED = (
    "scheduledChange instance-retirement at 2026-06-01T14:00:00+00:00: deferred until 2026-06-01T13:50:00+00:00; "
    "drifted: AMIDrift, waits for its replacement to be planned"
)
VOLUNTARY = rules(rebalanceRecommendation={"action": "drain", "voluntary": True})


def unhealthy(**ago: float) -> Health:
    return Health(intervals=(ConditionInterval(type="Ready", status="False", since=before(**ago)),))


def rejected_permit(reason: str) -> PermitResult:
    return REJECTED.model_copy(update={"reason": reason})


def waits(code: str, blocked_by: str, **fields: Any) -> ReadyDecision:
    return ReadyDecision(do="wait", blocked_by=blocked_by, blocked_code=code, **fields)


def does(do: str, why: str = "", **fields: Any) -> ReadyDecision:
    return ReadyDecision.model_validate({"do": do, "why": why, **fields})


ASKED: dict[str, Any] = {"permit_requested_at": before(seconds=1)}
PERMITTED: dict[str, Any] = {**ASKED, "permit": permit(seconds=60)}
REFUSED: dict[str, Any] = {"permit_requested_at": before(minutes=1), "permit": REJECTED}
REBALANCE: EventKind = "rebalanceRecommendation"
CASES: dict[str, tuple[NodeClaimState, ReadyDecision]] = {
    "busy: nothing to do, nothing to say": (node(), does("wait")),
    "AWS takes it back": (
        node(interruptions=heard(interruption_message("spotInterruption"))),
        does("interrupt", "spot_interrupted"),
    ),
    "AWS will take it back, and it is drifted": (
        node(
            {"drift": "AMIDrift", "drift_message": "old", "rules": DEFERS},
            interruptions=heard(interruption_message(starts=after(hours=2))),
        ),
        waits("InterruptionDeferred", DEFERRED, until=after(minutes=110)),
    ),
    "AWS will take it back, under budget": (
        node({"rules": VOLUNTARY}, initialized=True, interruptions=heard(interruption_message(REBALANCE))),
        does("ask", "Interrupted"),
    ),
    "AWS will take it back, under budget, while it is paused": (
        node({"rules": VOLUNTARY}, initialized=True, interruptions=heard(interruption_message(REBALANCE)), pause=PAUSE),
        waits(
            "Paused",
            f"rebalanceRecommendation; the node {describe_pause(PAUSE)}",
            until=recheck_at(PAUSE),
            why="Paused",
        ),
    ),
    "drifted: it is said, and nothing is done": (
        node({"drift": "AMIDrift", "drift_message": "an old image"}),
        waits("ReplacementPending", "drifted: AMIDrift, waits for its replacement to be planned"),
    ),
    "kept for a CapacityBuffer: it is said, and it stays": (
        node({"consolidation": "WhenEmpty/0s", "needed_by_buffer": "shop/web"}),
        waits("CapacityBuffer", "room for CapacityBuffer shop/web"),
    ),
    "kept for a CapacityBuffer after it had asked to go: it withdraws": (
        node({"consolidation": "WhenEmpty/0s", "needed_by_buffer": "shop/web"}, **ASKED),
        does("withdraw"),
    ),
    "its pods do not come: it is said, and it stays": (
        node(
            {
                "consolidation": "WhenEmpty/0s",
                "awaited_pods": "pod shop/web expected here, and not bound by kube-scheduler",
            }
        ),
        waits("PodsExpected", "pod shop/web expected here, and not bound by kube-scheduler"),
    ),
    "drifted and empty: it goes as any other": (
        node({**empty_for(seconds=30), "drift": "AMIDrift"}),
        does("ask", "Empty"),
    ),
    "its drain was cancelled: it is left alone": (
        node({**empty_for(seconds=30)}, cancelled_drain=CANCELLED_DRAIN),
        waits(
            "DrainCancelled",
            "its drain was cancelled: default/web: a budget",
            until=after(hours=1),
            why="drain cancelled",
        ),
    ),
    "its drain was cancelled long ago": (
        node({**empty_for(seconds=30)}, cancelled_drain=CANCELLED_DRAIN.model_copy(update={"retry_at": NOW})),
        does("ask", "Empty"),
    ),
    "its drain was cancelled, and it expired under the budgets": (
        node({"rules": CANCELS_BLOCKED_DRAIN}, cancelled_drain=CANCELLED_DRAIN, expires=before(hours=1)),
        waits(
            "DrainCancelled",
            f"its drain was cancelled: {CANCELLED_DRAIN.why}",
            until=after(hours=1),
            why="drain cancelled",
        ),
    ),
    "its drain was cancelled, and it expired as ever": (
        node(cancelled_drain=CANCELLED_DRAIN, expires=before(hours=1)),
        does("expire", "Expired"),
    ),
    "deleted": (node({"deleting": True}), does("drain", "Deleted")),
    "deleted by a disruption": (node({"deleting": True, "disruption": "Drifted"}), does("drain", "Drifted")),
    "gone from the API server": (node({"exists": False}), does("drain", "Deleted")),
    "deleted counts before expired": (node({"deleting": True}, expires=before(hours=1)), does("drain", "Deleted")),
    "another boot id": (node({"boot_id": "boot-2"}), does("initialize", "Rebooted")),
    "no boot id seen": (node({"boot_id": ""}), does("wait")),
    "no boot id known": (node({"boot_id": "boot-2"}, boot_id=""), does("wait")),
    "expired": (node(expires=NOW), does("expire", "Expired")),
    "expires later": (node(expires=after(hours=1)), does("wait", until=after(hours=1))),
    "expired counts before paused": (node(expires=NOW, pause=PAUSE), does("expire", "Expired")),
    "expired, and rules have it ask": (node({"rules": UNDER_BUDGET}, expires=NOW), does("ask", "Expired")),
    "expired, and refused": (
        node(
            {"rules": UNDER_BUDGET},
            expires=NOW,
            permit_requested_at=before(minutes=1),
            permit_for="Expired",
            permit=rejected_permit("Expired"),
        ),
        waits("PermitDenied", REJECTED.blocked_by, until=after(minutes=9), why="the pool's permit"),
    ),
    "expired, and permitted to go for being empty": (
        node({"rules": UNDER_BUDGET}, expires=NOW, **PERMITTED),
        does("ask", "Expired"),
    ),
    "expired, and permitted": (
        node(
            {"rules": UNDER_BUDGET},
            expires=NOW,
            **ASKED,
            permit_for="Expired",
            permit=permit(seconds=60).model_copy(update={"reason": "Expired"}),
        ),
        does("disrupt", "Expired"),
    ),
    "expired, paused, and rules have it ask": (
        node({"rules": UNDER_BUDGET}, expires=NOW, pause=PAUSE),
        waits("Paused", f"the node {describe_pause(PAUSE)}", until=recheck_at(PAUSE), why="Paused"),
    ),
    "unhealthy beyond what is tolerated": (
        node(health=unhealthy(minutes=30)),
        ReadyDecision(do="repair", why="Ready=False"),
    ),
    "unhealthy, and tolerated yet": (
        node(health=unhealthy(minutes=20)),
        waits("Unhealthy", "unhealthy, Ready=False: replace at 2026-06-01T12:10:00+00:00", until=after(minutes=10)),
    ),
    "expired counts before unhealthy": (node(health=unhealthy(minutes=30), expires=NOW), does("expire", "Expired")),
    "its Node left the cluster": (node({"node_name": ""}), does("look", "NodeNotFound")),
    "NotReady is no reason to go": (node({"node_ready": False}), does("wait")),
    "empty for less than consolidateAfter": (
        node(empty_for(seconds=20)),
        does("wait", until=after(seconds=10), why="Empty"),
    ),
    "expires before it may be consolidated": (
        node(empty_for(seconds=20), expires=after(seconds=5)),
        does("wait", until=after(seconds=5), why="Empty"),
    ),
    "empty for just consolidateAfter": (node(empty_for(seconds=30)), does("ask", "Empty")),
    "consolidateAfter 0s": (node(empty_for("WhenEmpty/0s", seconds=0)), does("ask", "Empty")),
    "the other policy empties too": (node(empty_for("WhenEmptyOrUnderutilized/30s", seconds=30)), does("ask", "Empty")),
    "consolidateAfter Never": (
        node(empty_for("WhenEmpty/Never", hours=9)),
        waits("Never", "consolidateAfter of NodePool default is Never"),
    ),
    "standalone": (
        node(empty_for("", hours=9)),
        waits("NoPool", "no NodePool: a standalone NodeClaim ends only by deletion or expiration"),
    ),
    "annotated do-not-disrupt": (
        node({**empty_for(hours=9), "do_not_disrupt": True}),
        waits("NodeDoNotDisrupt", "the annotation karpenter.sh/do-not-disrupt on the Node"),
    ),
    "paused": (
        node(empty_for(hours=9), pause=PAUSE),
        waits("Paused", f"the node {describe_pause(PAUSE)}", until=recheck_at(PAUSE), why="Paused"),
    ),
    "the pause is over": (node(empty_for(hours=9), pause=OVER), does("ask", "Empty")),
    "asked and not answered": (
        node(empty_for(hours=9), permit_requested_at=before(seconds=10)),
        does("wait", until=after(seconds=20), why="the pool's permit"),
    ),
    "asked and never answered": (
        node(empty_for(hours=9), permit_requested_at=before(seconds=30)),
        does("ask", "Empty"),
    ),
    "refused": (
        node(empty_for(hours=9), **REFUSED),
        waits("PermitDenied", REJECTED.blocked_by, until=after(minutes=9), why="the pool's permit"),
    ),
    "refused long ago": (
        node(empty_for(hours=9), permit_requested_at=before(minutes=10), permit=REJECTED),
        does("ask", "Empty"),
    ),
    "permitted": (node(empty_for(hours=9), **PERMITTED), does("disrupt", "Empty")),
    "the permit has lapsed": (
        node(empty_for(hours=9), permit_requested_at=before(minutes=5), permit=permit(seconds=0)),
        does("ask", "Empty"),
    ),
    "not ready a while ago": (node(unready_since=before(minutes=1)), does("wait", until=after(minutes=1))),
    "not ready for long": (node(unready_since=before(minutes=2)), does("look", "NodeNotReady")),
    "permitted and busy again": (node(**PERMITTED), does("withdraw")),
    "permitted and paused": (node(empty_for(hours=9), **PERMITTED, pause=PAUSE), does("withdraw", "Paused")),
    "asked, used and empty again": (node(empty_for(seconds=5), **ASKED), does("withdraw", "Empty")),
}


@pytest.mark.parametrize("case", CASES)
def test_a_ready_node(case: str) -> None:
    state, decision = CASES[case]
    assert decide_ready(state, NOW) == decision


def test_table_covers_every_decision() -> None:
    field: Any = ReadyDecision.model_fields["do"]
    assert {decision.do for _, decision in CASES.values()} == set(field.annotation.__args__)


def test_waiting_until_a_time_changes_the_decision_at_that_time() -> None:
    for state, decision in CASES.values():
        if decision.do == "wait" and decision.until is not None:
            assert decide_ready(state, decision.until) != decision


@pytest.mark.parametrize(
    ("consolidation", "seconds"), [("WhenEmpty/30s", 30), ("WhenEmpty/1h", 3600), ("WhenEmpty/Never", None), ("", None)]
)
def test_consolidate_after_is_read_from_the_digest(consolidation: str, seconds: int | None) -> None:
    found = consolidate_after(consolidation)
    assert (found.total_seconds() if found is not None else None) == seconds


LIFETIME = timedelta(hours=100)
BORN = before(hours=1)
LATEST = BORN + LIFETIME


def aging(uid: str = "uid-a", *, expiry: dict[str, Any] | None = None, **state: Any) -> NodeClaimState:
    rules = LifecycleRules.model_validate({"expiry": expiry}) if expiry is not None else None
    made = node({"rules": rules}, born=BORN, **{"expires": LATEST, "lifetime": LIFETIME, **state})
    return made.model_copy(update={"identity": made.identity.model_copy(update={"uid": uid})})


def expiries(**kwargs: Any) -> list[datetime]:
    found = [expiry_of(aging(f"uid-{number}", **kwargs)) for number in range(1000)]
    return [one for one in found if one is not None]


@pytest.mark.parametrize(
    ("expiry", "hours"), [(None, 5), ({}, 5), ({"jitter": "10%"}, 10), ({"jitter": "1%"}, 1), ({"jitter": "100%"}, 100)]
)
def test_nodes_born_together_expire_over_the_whole_of_the_jitter_and_none_too_late(
    expiry: dict[str, Any] | None, hours: float
) -> None:
    found = expiries(expiry=expiry)
    assert LATEST - timedelta(hours=hours) < min(found) and max(found) <= LATEST
    for tenth in range(10):
        begin = LATEST - timedelta(hours=hours * (tenth + 1) / 10)
        assert 60 <= sum(begin <= one < begin + timedelta(hours=hours / 10) for one in found) <= 140


def test_without_jitter_a_node_expires_at_karpenters_moment() -> None:
    assert set(expiries(expiry={"jitter": "0%"})) == {LATEST}


def test_the_moment_is_the_same_whenever_it_is_asked_for() -> None:
    assert expiries() == expiries()


def test_a_life_that_began_without_jitter_keeps_its_moment() -> None:
    assert expiry_of(aging(lifetime=None)) == LATEST


def test_a_node_that_never_expires() -> None:
    state = aging(expires=None, lifetime=None)
    assert expiry_of(state) is None and not has_expired(state, after(hours=10**5))


def test_it_has_expired_from_its_moment_on() -> None:
    state = aging(expiry={"jitter": "0%"})
    assert not has_expired(state, LATEST - timedelta(seconds=1)) and has_expired(state, LATEST)
    assert not has_expired(state, NOW)


def test_only_rules_make_expiry_ask_and_a_node_without_a_pool_has_nobody_to_ask() -> None:
    assert is_under_budget(aging(expiry={"underBudget": True}))
    assert not any(is_under_budget(aging(expiry=one)) for one in (None, {}, {"underBudget": False}))
    under_budget = aging(expiry={"underBudget": True})
    assert not is_under_budget(
        under_budget.model_copy(update={"identity": under_budget.identity.model_copy(update={"pool": ""})})
    )
