"""When what a policy says of an AWS event is due: its start, a window, or an answer, each before AWS acts. Pure.

`tenure/policy/interruption/decision.py` asks for it, of nodes and of classes of their pods.

When what EC2 reports of an instance's status is worth telling its node, and when it is over. Reference 5.1.

A failing check counts once it has failed for two minutes, a scheduled event at once. What was told and is not reported
any more is over.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.lifecyclepolicy_events import Action
from tenure.model.base import Value
from tenure.model.interruption.notices import FailedCheck, Notice, OpenNotice, StatusReport
from tenure.model.interruption.records import Event
from tenure.policy.interruption.rules import Times, opening

APPROVE: Final = "tenure approve {name} lets it go"


class Timely(Value):
    """Whether something is due. `leave`: it never will be."""

    do: Literal["go", "wait", "leave"]
    until: datetime | None = None
    why: str = ""


def timely_for(action: Action, times: Times, event: Event, name: str, now: datetime) -> Timely:
    """Whether an action is due for an event of the node `name`."""
    match action:
        case "notify" | "ignore":
            return Timely(do="leave")
        case "deferUntilEventStart":
            return _deferred(times, event, now)
        case "window":
            return _windowed(times, event, now)
        case "waitForApproval":
            return _approved(times, event, name, now)
        case "stopStart" if times.windows:
            return _windowed(times, event, now)
        case _:
            return Timely(do="go")


def last_moment(event: Event, times: Times) -> datetime | None:
    """The last at which a drain has its lead; None where nobody knows when AWS acts."""
    return event.starts - times.lead if event.starts else None


def _deferred(times: Times, event: Event, now: datetime) -> Timely:
    last = last_moment(event, times)
    if last is None or now >= last:
        return Timely(do="go")
    return Timely(do="wait", until=last, why=f"deferred until {moment(last)}")


def _windowed(times: Times, event: Event, now: datetime) -> Timely:
    last, opens = last_moment(event, times), opening(times.windows, now)
    if opens is not None and opens <= now:
        return Timely(do="go")
    if last is not None and now >= last:
        return Timely(do="leave" if times.leave else "go")
    if last is not None and (opens is None or opens >= last):
        then = "then it is left to AWS" if times.leave else "it is drained then"
        return Timely(do="wait", until=last, why=f"no window opens before {moment(last)}, {then}")
    why = f"waits for its window, which opens at {moment(opens)}" if opens else "no window ever opens"
    return Timely(do="wait", until=opens, why=why)


def _approved(times: Times, event: Event, name: str, now: datetime) -> Timely:
    """A refusal ends the waiting for a person, not AWS's own time. What AWS moves is asked for anew."""
    answer, last, asked = event.answer, last_moment(event, times), event.moved or event.heard
    if answer and answer.approved:
        return Timely(do="go")
    own = asked + times.deadline if times.deadline and answer is None else None
    until = min((moment for moment in (own, last) if moment), default=None)
    if until is not None and now >= until:
        return Timely(do="leave" if times.leave else "go")
    said = f"rejected by {answer.by}" + (f": {answer.reason}" if answer.reason else "") if answer else ""
    if until is None:
        waits = f"waits for approval: {APPROVE.format(name=name)}"
        return Timely(do="leave", why=said) if answer else Timely(do="wait", why=waits)
    if answer and times.leave:
        return Timely(do="leave", why=said)
    then = "then it is left to AWS" if times.leave else "it is drained then"
    if answer:
        return Timely(do="wait", until=until, why=f"{said}; AWS acts soon after {moment(until)}, {then}")
    return Timely(
        do="wait",
        until=until,
        why=f"waits for approval until {moment(until)}, {then}; {APPROVE.format(name=name)}",
    )


def moment(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") if at else "-"


UNHEALTHY_AFTER: Final = timedelta(seconds=120)

Seen = Mapping[tuple[str, str], datetime]
"""By instance and kind: since when a check is seen to fail of which EC2 does not say since when."""


class StatusVerdict(Value):
    tell: dict[str, tuple[Notice, ...]]
    """By instance."""
    seen: dict[tuple[str, str], datetime]
    """To be handed in the next time."""


def decide_status(
    reports: Iterable[StatusReport], *, told: Sequence[OpenNotice], seen: Seen, now: datetime
) -> StatusVerdict:
    """`reports` is all that EC2 has to say of these nodes. A check of unknown age is as old as we have seen it fail:
    it is never taken to have failed for ever."""
    still: dict[tuple[str, str], datetime] = {}
    tell: dict[str, list[Notice]] = {}
    for report in reports:
        notices = tell.setdefault(report.instance_id, [])
        notices += report.events
        for check in report.failed:
            key = (report.instance_id, check.kind)
            since = check.since or still.setdefault(key, seen.get(key, now))
            known = [one.notice for one in told if (one.instance_id, one.notice.kind) == key]
            if check.since is None and known:
                notices += known
            elif now - since >= UNHEALTHY_AFTER:
                notices.append(_failing(check, since, now))
    for one in told:
        reported = tell.setdefault(one.instance_id, [])
        if not any(_same(one.notice, notice) for notice in reported):
            reported.append(one.notice.model_copy(update={"status": "over", "at": now}))
    return StatusVerdict(tell={key: tuple(notices) for key, notices in tell.items() if notices}, seen=still)


def still_open(told: Sequence[OpenNotice], instance_id: str, notices: Iterable[Notice]) -> tuple[OpenNotice, ...]:
    """What is open once a node was told these. What says nothing new stays as it was."""
    said = {(one.kind, one.id): one for one in notices}
    kept = []
    for one in told:
        new = said.pop((one.notice.kind, one.notice.id), None) if one.instance_id == instance_id else None
        if new is None or _as_before(one.notice, new):
            kept.append(one)
        elif new.status == "announced":
            kept.append(OpenNotice(instance_id=instance_id, notice=new))
    more = [OpenNotice(instance_id=instance_id, notice=one) for one in said.values() if one.status == "announced"]
    return (*kept, *more)


def _failing(check: FailedCheck, since: datetime, now: datetime) -> Notice:
    text = f"the check fails since {since.isoformat()}"
    return Notice(kind=check.kind, id=since.isoformat(), source="status", at=now, code="impaired", text=text)


def _same(one: Notice, other: Notice) -> bool:
    return (one.kind, one.id) == (other.kind, other.id)


def _as_before(one: Notice, other: Notice) -> bool:
    return (one.status, one.starts, one.ends) == (other.status, other.starts, other.ends)
