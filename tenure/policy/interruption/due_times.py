"""When the rule for an AWS event is due (its start, a window, an approval), and which instance statuses count.

Reference 5.1: a failing check counts after two minutes, a scheduled event immediately. A reported event that EC2 no
longer lists is over.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.lifecyclepolicy_events import Action
from tenure.model.base import Value
from tenure.model.interruption.messages import FailedCheck, InterruptionMessage, OpenInterruption, StatusReport
from tenure.model.interruption.records import Event
from tenure.policy.interruption.rules import EventTiming, next_window_opening

APPROVE: Final = "run tenure approve {name}"


class TimingDecision(Value):
    """Whether the action is due. `leave`: the event is left to AWS."""

    do: Literal["go", "wait", "leave"]
    until: datetime | None = None
    why: str = ""


def decide_timing(action: Action, times: EventTiming, event: Event, name: str, now: datetime) -> TimingDecision:
    match action:
        case "notify" | "ignore":
            return TimingDecision(do="leave")
        case "deferUntilEventStart":
            return _decide_deferred(times, event, now)
        case "window":
            return _decide_window(times, event, now)
        case "waitForApproval":
            return _decide_approval(times, event, name, now)
        case "stopStart" if times.windows:
            return _decide_window(times, event, now)
        case _:
            return TimingDecision(do="go")


def last_drain_start(event: Event, times: EventTiming) -> datetime | None:
    """The latest start of a drain that still has its lead time; None if AWS's start time is unknown."""
    return event.starts - times.lead if event.starts else None


def _decide_deferred(times: EventTiming, event: Event, now: datetime) -> TimingDecision:
    last = last_drain_start(event, times)
    if last is None or now >= last:
        return TimingDecision(do="go")
    return TimingDecision(do="wait", until=last, why=f"deferred until {format_timestamp(last)}")


def _decide_window(times: EventTiming, event: Event, now: datetime) -> TimingDecision:
    last, opens = last_drain_start(event, times), next_window_opening(times.windows, now)
    if opens is not None and opens <= now:
        return TimingDecision(do="go")
    if last is not None and now >= last:
        return TimingDecision(do="leave" if times.notify_only else "go")
    if last is not None and (opens is None or opens >= last):
        then = "then it is left to AWS" if times.notify_only else "it is drained then"
        return TimingDecision(do="wait", until=last, why=f"no window opens before {format_timestamp(last)}, {then}")
    why = f"waits for its window, which opens at {format_timestamp(opens)}" if opens else "its windows never open"
    return TimingDecision(do="wait", until=opens, why=why)


def _decide_approval(times: EventTiming, event: Event, name: str, now: datetime) -> TimingDecision:
    """A rejection ends only the wait for approval; AWS's time still applies. A moved event needs a new approval."""
    decision, last, requested_at = event.decision, last_drain_start(event, times), event.moved or event.received_at
    if decision and decision.approved:
        return TimingDecision(do="go")
    own = requested_at + times.deadline if times.deadline and decision is None else None
    until = min((at for at in (own, last) if at), default=None)
    if until is not None and now >= until:
        return TimingDecision(do="leave" if times.notify_only else "go")
    rejection = f"rejected by {decision.by}" + (f": {decision.reason}" if decision.reason else "") if decision else ""
    if until is None:
        waits = f"waits for approval: {APPROVE.format(name=name)}"
        return TimingDecision(do="leave", why=rejection) if decision else TimingDecision(do="wait", why=waits)
    if decision and times.notify_only:
        return TimingDecision(do="leave", why=rejection)
    then = "then it is left to AWS" if times.notify_only else "it is drained then"
    if decision:
        return TimingDecision(
            do="wait", until=until, why=f"{rejection}; AWS acts soon after {format_timestamp(until)}, {then}"
        )
    return TimingDecision(
        do="wait",
        until=until,
        why=f"waits for approval until {format_timestamp(until)}, {then}; {APPROVE.format(name=name)}",
    )


def format_timestamp(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") if at else "-"


UNHEALTHY_AFTER: Final = timedelta(seconds=120)

FailingSince = Mapping[tuple[str, str], datetime]
"""By instance and kind: when a failing check was first seen, if EC2 does not report its start."""


class StatusMessages(Value):
    by_instance: dict[str, tuple[InterruptionMessage, ...]]
    failing_since: dict[tuple[str, str], datetime]


def decide_status(
    reports: Iterable[StatusReport],
    *,
    open_messages: Sequence[OpenInterruption],
    failing_since: FailingSince,
    now: datetime,
) -> StatusMessages:
    """`reports`: the complete status of all nodes. A failed check without a start time counts from its first report."""
    still_failing: dict[tuple[str, str], datetime] = {}
    by_instance: dict[str, list[InterruptionMessage]] = {}
    for report in reports:
        messages = by_instance.setdefault(report.instance_id, [])
        messages += report.events
        for check in report.failed_checks:
            key = (report.instance_id, check.kind)
            since = check.since or still_failing.setdefault(key, failing_since.get(key, now))
            known = [one.message for one in open_messages if (one.instance_id, one.message.kind) == key]
            if check.since is None and known:
                messages += known
            elif now - since >= UNHEALTHY_AFTER:
                messages.append(_failing_check_message(check, since, now))
    for one in open_messages:
        reported = by_instance.setdefault(one.instance_id, [])
        if not any(_is_same_message(one.message, message) for message in reported):
            reported.append(one.message.model_copy(update={"status": "over", "at": now}))
    return StatusMessages(
        by_instance={key: tuple(messages) for key, messages in by_instance.items() if messages},
        failing_since=still_failing,
    )


def update_open_messages(
    open_messages: Sequence[OpenInterruption], instance_id: str, messages: Iterable[InterruptionMessage]
) -> tuple[OpenInterruption, ...]:
    """The open messages after a node has received `messages`. An unchanged message keeps its entry."""
    by_id = {(one.kind, one.id): one for one in messages}
    retained = []
    for one in open_messages:
        new = by_id.pop((one.message.kind, one.message.id), None) if one.instance_id == instance_id else None
        if new is None or _is_unchanged(one.message, new):
            retained.append(one)
        elif new.status == "announced":
            retained.append(OpenInterruption(instance_id=instance_id, message=new))
    more = [
        OpenInterruption(instance_id=instance_id, message=one) for one in by_id.values() if one.status == "announced"
    ]
    return (*retained, *more)


def _failing_check_message(check: FailedCheck, since: datetime, now: datetime) -> InterruptionMessage:
    text = f"the check has failed since {since.isoformat()}"
    return InterruptionMessage(
        kind=check.kind, id=since.isoformat(), source="status", at=now, code="impaired", text=text
    )


def _is_same_message(one: InterruptionMessage, other: InterruptionMessage) -> bool:
    return (one.kind, one.id) == (other.kind, other.id)


def _is_unchanged(one: InterruptionMessage, other: InterruptionMessage) -> bool:
    return (one.status, one.starts, one.ends) == (other.status, other.starts, other.ends)
