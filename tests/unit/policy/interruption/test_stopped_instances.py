"""Nodes whose instance is stopped: by a user, by AWS, or by Tenure for maintenance."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.interruption.records import InstanceStopStart
from tenure.model.node_health import NotReadyInterval
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.interruption.decision import (
    decide_interruption,
    maintenance_until,
)
from tenure.policy.interruption.events import event_key
from tests.unit.policy import interruption_builders as ev
from tests.unit.policy.builders import NOW, after, before
from tests.unit.policy.interruption_builders import IN_TWO_DAYS, interruption_message, node_with_events

STOPPED = interruption_message("instanceStopping")
IGNORED_STOP = {"instanceStopping": {"action": "ignore", "away": "20m"}}
UNTIL = before(minutes=5) + timedelta(minutes=20)


@pytest.mark.parametrize(
    ("state", "do", "until"),
    [
        (node_with_events(STOPPED, event_rules={"instanceStopping": {"action": "ignore"}}), "nothing", None),
        (node_with_events(STOPPED, event_rules=IGNORED_STOP), "wait", UNTIL),
        (node_with_events(STOPPED, event_rules=IGNORED_STOP, observed={"node_ready": False}), "wait", UNTIL),
        (node_with_events(STOPPED.model_copy(update={"status": "over"}), event_rules=IGNORED_STOP), "nothing", None),
        (node_with_events(STOPPED, event_rules=IGNORED_STOP, launched=ev.launched("spot")), "nothing", None),
    ],
)
def test_ignored_stop_waits_for_the_instance_during_away(
    state: NodeClaimState, do: str, until: datetime | None
) -> None:
    decision = decide_interruption(state, NOW)
    assert (decision.do, decision.until, maintenance_until(state)) == (do, until, until)


def test_stopped_instance_that_does_not_return_is_drained() -> None:
    assert decide_interruption(node_with_events(STOPPED, event_rules=IGNORED_STOP), UNTIL).do == "drain"


def test_ignored_maintenance_keeps_the_notready_node_during_away() -> None:
    event_rules = {"scheduledChange": {"action": "ignore", "away": "20m"}}
    not_ready_intervals = (NotReadyInterval(since=before(minutes=1)),)
    not_ready = node_with_events(
        interruption_message(starts=before(minutes=2)),
        event_rules=event_rules,
        not_ready_intervals=not_ready_intervals,
        observed={"node_ready": False},
    )
    assert (decide_interruption(not_ready, NOW).do, maintenance_until(not_ready)) == ("wait", after(minutes=19))
    early = node_with_events(
        IN_TWO_DAYS, event_rules=event_rules, not_ready_intervals=not_ready_intervals, observed={"node_ready": False}
    )
    assert (decide_interruption(early, NOW).do, maintenance_until(early)) == ("nothing", None)


@pytest.mark.parametrize("step", ["stop", "start", "back"])
@pytest.mark.parametrize("status", ["announced", "over", "withdrawn"])
def test_stop_start_in_progress_continues_despite_other_messages(step: str, status: str) -> None:
    state = stopping(step, status, event_rules={"scheduledChange": {"action": "notify"}})
    assert decide_interruption(state, NOW).do == "stop"
    assert decide_interruption(stopping("failed", status), NOW).do == "drain"
    assert decide_interruption(stopping("done", "over"), NOW).do == "nothing"


def stopping(step: str, status: str, **fields: Any) -> NodeClaimState:
    one = interruption_message(starts=after(hours=48), status=status)
    stop = InstanceStopStart.model_validate({"key": event_key(one), "step": step, "since": before(minutes=1)})
    return node_with_events(one, stop=stop, **fields)
