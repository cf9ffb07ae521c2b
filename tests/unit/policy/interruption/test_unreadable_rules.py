"""Decisions on events while the rules of a LifecyclePolicy are invalid."""

from datetime import timedelta
from typing import Any, get_args

import pytest

from tenure.model.interruption.messages import EventKind
from tenure.model.interruption.records import InstanceStopStart
from tenure.policy.interruption.decision import (
    decide_interruption,
)
from tenure.policy.interruption.events import event_key
from tests.unit.policy.builders import NOW, after
from tests.unit.policy.interruption_builders import (
    IN_TWO_DAYS,
    KARPENTER_DEFAULTS,
    UNREAD,
    WHY,
    interruption_message,
    node_with_events,
)


@pytest.mark.parametrize("kind", get_args(EventKind))
def test_only_deferrable_events_wait_for_unreadable_rules(kind: EventKind) -> None:
    decision = decide_interruption(node_with_events(interruption_message(kind), observed=UNREAD), NOW)
    if kind not in ("scheduledChange", "instanceStatus", "systemStatus"):
        assert decision.do == KARPENTER_DEFAULTS[kind], (
            "urgent kinds do not wait, and a recommendation has no action by default"
        )
    else:
        assert (decision.do, decision.until, decision.what) == ("wait", None, WHY)


@pytest.mark.parametrize(
    ("action", "do"), [("drain", "wait"), ("terminate", "wait"), ("stopStart", "wait"), ("notify", "nothing")]
)
def test_other_policy_does_not_end_the_wait_for_unreadable_rules(action: str, do: str) -> None:
    state = node_with_events(IN_TWO_DAYS, event_rules={"scheduledChange": {"action": action}}, observed=UNREAD)
    assert decide_interruption(state, NOW).do == do


def test_wait_for_unreadable_rules_ends_in_time_for_the_event() -> None:
    state = node_with_events(IN_TWO_DAYS, observed=UNREAD)
    decision = decide_interruption(state, NOW)
    latest = after(hours=48) - timedelta(minutes=10)
    assert (decision.do, decision.until) == ("wait", latest)
    assert decision.what == f"{WHY}; it is drained at {latest.isoformat()} at the latest"
    assert decide_interruption(state, latest).do == "drain"


def test_ignore_and_notify_rules_apply_despite_unreadable_rules() -> None:
    for kind, action in (("spotInterruption", "ignore"), ("scheduledChange", "ignore"), ("systemStatus", "notify")):
        state = node_with_events(interruption_message(kind), event_rules={kind: {"action": action}}, observed=UNREAD)  # type: ignore[arg-type]
        assert decide_interruption(state, NOW).do == "nothing", kind


@pytest.mark.parametrize(("step", "do"), [("drain", "wait"), ("stop", "stop"), ("back", "stop"), ("failed", "drain")])
def test_stop_start_continues_despite_unreadable_rules(step: Any, do: str) -> None:
    stop = InstanceStopStart(key=event_key(IN_TWO_DAYS), step=step, since=NOW)
    assert decide_interruption(node_with_events(IN_TWO_DAYS, observed=UNREAD, stop=stop), NOW).do == do
