"""The next decision of a ready node, and its expiration."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.disruption.drain import CancelledDrain
from tenure.model.interruption.messages import EventKind
from tenure.model.node_health import ConditionInterval, Health, Reboot
from tenure.model.nodeclaim.requests import InstanceStatus
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
EXPIRY_UNDER_BUDGET = LifecycleRules.model_validate({"expiry": {"underBudget": True}})
EXPIRED_PAUSE = Pause(by="ops", reason="upgrade", until=before(hours=1))
CANCELLED_DRAIN = CancelledDrain(at=before(hours=1), retry_at=after(hours=1), why="default/web: a budget")
CANCELS_BLOCKED_DRAIN = LifecycleRules.model_validate(
    {"drain": {"whenBlocked": "giveUp", "blockedFor": "2h"}, "expiry": {"underBudget": True}}
)

DEFER_RULES = rules(scheduledChange={"action": "deferUntilEventStart"})
DEFERRED = (
    "scheduledChange instance-retirement at 2026-06-01T14:00:00+00:00: deferred until 2026-06-01T13:50:00+00:00; "
    "drifted: AMIDrift, waits for its replacement to be planned"
)
VOLUNTARY = rules(rebalanceRecommendation={"action": "drain", "voluntary": True})


def unhealthy(**ago: float) -> Health:
    return Health(intervals=(ConditionInterval(type="Ready", status="False", since=before(**ago)),))


def rejected_permit(reason: str) -> PermitResult:
    return REJECTED.model_copy(update={"reason": reason})


def wait_decision(code: str, blocked_by: str, **fields: Any) -> ReadyDecision:
    return ReadyDecision(do="wait", blocked_by=blocked_by, blocked_code=code, **fields)


def decision_of(do: str, why: str = "", **fields: Any) -> ReadyDecision:
    return ReadyDecision.model_validate({"do": do, "why": why, **fields})


REQUESTED: dict[str, Any] = {"permit_requested_at": before(seconds=1)}
GRANTED: dict[str, Any] = {**REQUESTED, "permit": permit(seconds=60)}
DENIED: dict[str, Any] = {"permit_requested_at": before(minutes=1), "permit": REJECTED}
REBALANCE: EventKind = "rebalanceRecommendation"
REBOOTS = LifecycleRules.model_validate({"repair": {"steps": ["reboot", "replace"]}})
MAINTENANCE = REBOOTS.model_copy(
    update={"interruption": rules(instanceStopping={"action": "ignore", "away": "30m"}).interruption}
)
REBOOT = Reboot(requested_at=NOW, condition="Ready=False", boot_id="boot-1", begun=True)
ISSUED = REBOOT.model_copy(update={"issued": True})
GRANTED_REBOOT: dict[str, Any] = {
    **REQUESTED,
    "permit_for": "Unhealthy",
    "permit": permit(seconds=60).model_copy(update={"reason": "Unhealthy"}),
}


def rebootable(
    *,
    rules: LifecycleRules = REBOOTS,
    mode: str = "reboot",
    reboot: Reboot | None = None,
    step_at: datetime | None = None,
    boot_id: str = "",
    **state: Any,
) -> NodeClaimState:
    """A node that a LifecyclePolicy reboots."""
    observed = {"rules": rules}
    fields = {"mode": mode, "reboot": reboot, "step_at": step_at, "boot_id": boot_id}
    return node(observed, health=unhealthy(minutes=30).model_copy(update=fields), **state)


CASES: dict[str, tuple[NodeClaimState, ReadyDecision]] = {
    "occupied": (node(), decision_of("wait")),
    "interrupted": (
        node(interruptions=heard(interruption_message("spotInterruption"))),
        decision_of("interrupt", "spot_interrupted"),
    ),
    "created again by its kubelet": (
        node({"registration_gaps": ("label karpenter.sh/registered",), "boot_id": "boot-2"}),
        decision_of("register", "Unregistered"),
    ),
    "registered since the last observation": (
        node({"registration_gaps": ("label karpenter.sh/registered",), "number": 5}, registration_checked=5),
        decision_of("wait"),
    ),
    "deferred interruption and drift": (
        node(
            {"drift": "AMIDrift", "drift_message": "old", "rules": DEFER_RULES},
            interruptions=heard(interruption_message(starts=after(hours=2))),
        ),
        wait_decision("InterruptionDeferred", DEFERRED, until=after(minutes=110)),
    ),
    "voluntary interruption": (
        node({"rules": VOLUNTARY}, initialized=True, interruptions=heard(interruption_message(REBALANCE))),
        decision_of("ask", "Interrupted"),
    ),
    "voluntary interruption while paused": (
        node({"rules": VOLUNTARY}, initialized=True, interruptions=heard(interruption_message(REBALANCE)), pause=PAUSE),
        wait_decision(
            "Paused",
            f"rebalanceRecommendation; the node {describe_pause(PAUSE)}",
            until=recheck_at(PAUSE),
            why="Paused",
        ),
    ),
    "voluntary interruption while paused, expires": (
        node(
            {"rules": VOLUNTARY},
            initialized=True,
            interruptions=heard(interruption_message(REBALANCE)),
            pause=PAUSE,
            expires=after(minutes=5),
        ),
        wait_decision(
            "Paused",
            f"rebalanceRecommendation; the node {describe_pause(PAUSE)}",
            until=after(minutes=5),
            why="Paused",
        ),
    ),
    "drifted": (
        node({"drift": "AMIDrift", "drift_message": "an old image"}),
        wait_decision("ReplacementPending", "drifted: AMIDrift, waits for its replacement to be planned"),
    ),
    "needed by a CapacityBuffer": (
        node({"consolidation": "WhenEmpty/0s", "needed_by_buffer": "shop/web"}),
        wait_decision("CapacityBuffer", "room for CapacityBuffer shop/web"),
    ),
    "needed by a CapacityBuffer after a permit request": (
        node({"consolidation": "WhenEmpty/0s", "needed_by_buffer": "shop/web"}, **REQUESTED),
        decision_of("withdraw"),
    ),
    "nominated pods are not bound": (
        node(
            {
                "consolidation": "WhenEmpty/0s",
                "awaited_pods": "pod shop/web expected here, and not bound by kube-scheduler",
            }
        ),
        wait_decision("PodsExpected", "pod shop/web expected here, and not bound by kube-scheduler"),
    ),
    "drifted and empty": (
        node({**empty_for(seconds=30), "drift": "AMIDrift"}),
        decision_of("ask", "Empty"),
    ),
    "drain cancelled recently": (
        node({**empty_for(seconds=30)}, cancelled_drain=CANCELLED_DRAIN),
        wait_decision(
            "DrainCancelled",
            "its drain was cancelled: default/web: a budget",
            until=after(hours=1),
            why="drain cancelled",
        ),
    ),
    "drain cancelled long ago": (
        node({**empty_for(seconds=30)}, cancelled_drain=CANCELLED_DRAIN.model_copy(update={"retry_at": NOW})),
        decision_of("ask", "Empty"),
    ),
    "drain cancelled, expired under budget": (
        node({"rules": CANCELS_BLOCKED_DRAIN}, cancelled_drain=CANCELLED_DRAIN, expires=before(hours=1)),
        wait_decision(
            "DrainCancelled",
            f"its drain was cancelled: {CANCELLED_DRAIN.why}",
            until=after(hours=1),
            why="drain cancelled",
        ),
    ),
    "drain cancelled, expired": (
        node(cancelled_drain=CANCELLED_DRAIN, expires=before(hours=1)),
        decision_of("expire", "Expired"),
    ),
    "deleted": (node({"deleting": True}), decision_of("drain", "Deleted")),
    "deleted by a disruption": (node({"deleting": True, "disruption": "Drifted"}), decision_of("drain", "Drifted")),
    "missing on the API server": (node({"exists": False}), decision_of("drain", "Deleted")),
    "deletion precedes expiration": (
        node({"deleting": True}, expires=before(hours=1)),
        decision_of("drain", "Deleted"),
    ),
    "changed boot ID": (node({"boot_id": "boot-2"}), decision_of("initialize", "Rebooted")),
    "no boot ID observed": (node({"boot_id": ""}), decision_of("wait")),
    "no boot ID known": (node({"boot_id": "boot-2"}, boot_id=""), decision_of("wait")),
    "expired": (node(expires=NOW), decision_of("expire", "Expired")),
    "expires later": (node(expires=after(hours=1)), decision_of("wait", until=after(hours=1))),
    "expiration precedes pause": (node(expires=NOW, pause=PAUSE), decision_of("expire", "Expired")),
    "expired under budget": (node({"rules": EXPIRY_UNDER_BUDGET}, expires=NOW), decision_of("ask", "Expired")),
    "expired under budget, permit denied": (
        node(
            {"rules": EXPIRY_UNDER_BUDGET},
            expires=NOW,
            permit_requested_at=before(minutes=1),
            permit_for="Expired",
            permit=rejected_permit("Expired"),
        ),
        wait_decision("PermitDenied", REJECTED.blocked_by, until=after(minutes=9), why="the pool's permit"),
    ),
    "expired under budget, permit for Empty": (
        node({"rules": EXPIRY_UNDER_BUDGET}, expires=NOW, **GRANTED),
        decision_of("ask", "Expired"),
    ),
    "expired under budget, permit granted": (
        node(
            {"rules": EXPIRY_UNDER_BUDGET},
            expires=NOW,
            **REQUESTED,
            permit_for="Expired",
            permit=permit(seconds=60).model_copy(update={"reason": "Expired"}),
        ),
        decision_of("disrupt", "Expired"),
    ),
    "expired under budget, paused": (
        node({"rules": EXPIRY_UNDER_BUDGET}, expires=NOW, pause=PAUSE),
        wait_decision("Paused", f"the node {describe_pause(PAUSE)}", until=recheck_at(PAUSE), why="Paused"),
    ),
    "unhealthy beyond the toleration": (
        node(health=unhealthy(minutes=30)),
        ReadyDecision(do="repair", why="Ready=False"),
    ),
    "unhealthy within the toleration": (
        node(health=unhealthy(minutes=20)),
        wait_decision(
            "Unhealthy", "unhealthy, Ready=False: replace at 2026-06-01T12:10:00+00:00", until=after(minutes=10)
        ),
    ),
    "reboot due": (rebootable(), decision_of("ask", "Unhealthy")),
    "reboot due, in the legacy mode": (rebootable(mode="legacy"), decision_of("repair", "Ready=False")),
    "reboot due, paused": (
        rebootable(pause=PAUSE),
        wait_decision("Paused", f"the node {describe_pause(PAUSE)}", until=recheck_at(PAUSE), why="Paused"),
    ),
    "reboot due, permit of another reason": (rebootable(**GRANTED), decision_of("ask", "Unhealthy")),
    "reboot due, permit granted": (rebootable(**GRANTED_REBOOT), decision_of("repair", "Unhealthy")),
    "reboot due, permit granted, paused": (
        rebootable(**GRANTED_REBOOT, pause=PAUSE),
        decision_of("withdraw", "Paused"),
    ),
    "reboot in progress": (rebootable(reboot=REBOOT), decision_of("repair", "Ready=False")),
    "reboot in progress, in maintenance by AWS": (
        rebootable(rules=MAINTENANCE, reboot=REBOOT, interruptions=heard(interruption_message("instanceStopping"))),
        decision_of("repair", "Ready=False"),
    ),
    "rebooted": (
        rebootable(reboot=ISSUED, step_at=NOW, boot_id="boot-1"),
        wait_decision("Unhealthy", "rebooted for ", until=after(minutes=20), why="its reboot"),
    ),
    "expiration precedes repair": (node(health=unhealthy(minutes=30), expires=NOW), decision_of("expire", "Expired")),
    "Node missing": (node({"node_name": ""}), decision_of("look", "NodeNotFound")),
    "NotReady": (node({"node_ready": False}), decision_of("wait")),
    "empty for less than consolidateAfter": (
        node(empty_for(seconds=20)),
        decision_of("wait", until=after(seconds=10), why="Empty"),
    ),
    "expires before consolidateAfter": (
        node(empty_for(seconds=20), expires=after(seconds=5)),
        decision_of("wait", until=after(seconds=5), why="Empty"),
    ),
    "held for the first plan of a new host": (
        node({**empty_for(hours=9), "hold_until": after(seconds=5)}, **GRANTED),
        decision_of("withdraw", "Empty"),
    ),
    "held until now": (node({**empty_for(hours=9), "hold_until": NOW}), decision_of("ask", "Empty")),
    "empty for exactly consolidateAfter": (node(empty_for(seconds=30)), decision_of("ask", "Empty")),
    "consolidateAfter 0s": (node(empty_for("WhenEmpty/0s", seconds=0)), decision_of("ask", "Empty")),
    "empty with WhenEmptyOrUnderutilized": (
        node(empty_for("WhenEmptyOrUnderutilized/30s", seconds=30)),
        decision_of("ask", "Empty"),
    ),
    "consolidateAfter Never": (
        node(empty_for("WhenEmpty/Never", hours=9)),
        wait_decision("Never", "consolidateAfter of NodePool default is Never"),
    ),
    "standalone": (
        node(empty_for("", hours=9)),
        wait_decision("NoPool", "no NodePool: a standalone NodeClaim ends only by deletion or expiration"),
    ),
    "annotated do-not-disrupt": (
        node({**empty_for(hours=9), "do_not_disrupt": True}),
        wait_decision("NodeDoNotDisrupt", "the annotation karpenter.sh/do-not-disrupt on the Node"),
    ),
    "drained by another controller": (
        node({**empty_for(hours=9), "maintenance": "another controller has set the condition DrainInProgress"}),
        wait_decision("NodeMaintenance", "another controller has set the condition DrainInProgress"),
    ),
    "paused": (
        node(empty_for(hours=9), pause=PAUSE),
        wait_decision("Paused", f"the node {describe_pause(PAUSE)}", until=recheck_at(PAUSE), why="Paused"),
    ),
    "pause expired": (node(empty_for(hours=9), pause=EXPIRED_PAUSE), decision_of("ask", "Empty")),
    "permit requested recently": (
        node(empty_for(hours=9), permit_requested_at=before(seconds=10)),
        decision_of("wait", until=after(seconds=20), why="the pool's permit"),
    ),
    "permit request without response": (
        node(empty_for(hours=9), permit_requested_at=before(seconds=30)),
        decision_of("ask", "Empty"),
    ),
    "permit denied": (
        node(empty_for(hours=9), **DENIED),
        wait_decision("PermitDenied", REJECTED.blocked_by, until=after(minutes=9), why="the pool's permit"),
    ),
    "permit denied long ago": (
        node(empty_for(hours=9), permit_requested_at=before(minutes=10), permit=REJECTED),
        decision_of("ask", "Empty"),
    ),
    "permit granted": (node(empty_for(hours=9), **GRANTED), decision_of("disrupt", "Empty")),
    "permit expired": (
        node(empty_for(hours=9), permit_requested_at=before(minutes=5), permit=permit(seconds=0)),
        decision_of("ask", "Empty"),
    ),
    "NotReady for four seconds": (
        node(unready_since=before(seconds=4), is_newly_unready=True),
        decision_of("wait", until=after(seconds=1)),
    ),
    "NotReady for five seconds": (
        node(unready_since=before(seconds=5), is_newly_unready=True),
        decision_of("look", "NodeNotReady"),
    ),
    "NotReady for one minute": (node(unready_since=before(minutes=1)), decision_of("wait", until=after(minutes=1))),
    "NotReady for two minutes": (node(unready_since=before(minutes=2)), decision_of("look", "NodeNotReady")),
    "empty with a consolidateAfter that only the CRD accepts": (
        node(empty_for(f"WhenEmpty/{'9' * 60}h", hours=1)),
        wait_decision("Never", "consolidateAfter of NodePool default is invalid"),
    ),
    "NotReady with a stopped instance": (
        node(
            {"consolidation": "WhenEmpty/Never"},
            node_name="ip-1",
            unready_since=before(minutes=1),
            instance_status=InstanceStatus(state="stopped", reason="Client.UserInitiatedShutdown"),
        ),
        wait_decision(
            "InstanceStopped",
            "Node ip-1 is NotReady; EC2: its instance is stopped (Client.UserInitiatedShutdown)",
            until=after(minutes=1),
        ),
    ),
    "permit granted, occupied again": (node(**GRANTED), decision_of("withdraw")),
    "permit granted, paused": (node(empty_for(hours=9), **GRANTED, pause=PAUSE), decision_of("withdraw", "Paused")),
    "permit requested, empty again only recently": (
        node(empty_for(seconds=5), **REQUESTED),
        decision_of("withdraw", "Empty"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_decision_for_a_ready_node(case: str) -> None:
    state, decision = CASES[case]
    assert decide_ready(state, NOW) == decision


def test_waiting_until_a_time_changes_the_decision_at_that_time() -> None:
    for state, decision in CASES.values():
        if decision.do == "wait" and decision.until is not None:
            assert decide_ready(state, decision.until) != decision


@pytest.mark.parametrize(
    ("consolidation", "seconds"),
    [
        ("WhenEmpty/30s", 30),
        ("WhenEmpty/1h", 3600),
        ("WhenEmpty/Never", None),
        (f"WhenEmpty/{'9' * 60}h", None),
        ("", None),
    ],
)
def test_consolidate_after_is_read_from_the_digest(consolidation: str, seconds: int | None) -> None:
    found = consolidate_after(consolidation)
    assert (found.total_seconds() if found is not None else None) == seconds


LIFETIME = timedelta(hours=100)
CREATED = before(hours=1)
LATEST = CREATED + LIFETIME


def aging(uid: str = "uid-a", *, expiry: dict[str, Any] | None = None, **state: Any) -> NodeClaimState:
    rules = LifecycleRules.model_validate({"expiry": expiry}) if expiry is not None else None
    aged = node({"rules": rules}, created=CREATED, **{"expires": LATEST, "lifetime": LIFETIME, **state})
    return aged.model_copy(update={"identity": aged.identity.model_copy(update={"uid": uid})})


def expiries(**kwargs: Any) -> list[datetime]:
    found = [expiry_of(aging(f"uid-{number}", **kwargs)) for number in range(1000)]
    return [one for one in found if one is not None]


@pytest.mark.parametrize(
    ("expiry", "hours"), [(None, 5), ({}, 5), ({"jitter": "10%"}, 10), ({"jitter": "1%"}, 1), ({"jitter": "100%"}, 100)]
)
def test_expirations_are_spread_over_the_jitter(expiry: dict[str, Any] | None, hours: float) -> None:
    found = expiries(expiry=expiry)
    assert LATEST - timedelta(hours=hours) < min(found) and max(found) <= LATEST
    for tenth in range(10):
        begin = LATEST - timedelta(hours=hours * (tenth + 1) / 10)
        assert 60 <= sum(begin <= one < begin + timedelta(hours=hours / 10) for one in found) <= 140


def test_expiration_is_deterministic() -> None:
    assert expiries() == expiries()


def test_state_without_lifetime_has_no_jitter() -> None:
    assert expiry_of(aging(lifetime=None)) == LATEST


def test_node_without_expiration_never_expires() -> None:
    state = aging(expires=None, lifetime=None)
    assert expiry_of(state) is None and not has_expired(state, after(hours=10**5))


def test_node_has_expired_from_its_expiration_on() -> None:
    state = aging(expiry={"jitter": "0%"})
    assert not has_expired(state, LATEST - timedelta(seconds=1)) and has_expired(state, LATEST)
    assert not has_expired(state, NOW)


def test_expiry_is_under_budget_only_by_rule_and_with_a_nodepool() -> None:
    assert is_under_budget(aging(expiry={"underBudget": True}))
    assert not any(is_under_budget(aging(expiry=one)) for one in (None, {}, {"underBudget": False}))
    under_budget = aging(expiry={"underBudget": True})
    assert not is_under_budget(
        under_budget.model_copy(update={"identity": under_budget.identity.model_copy(update={"pool": ""})})
    )
