"""When what a policy says of an AWS event is due: its start, a window, or an answer, each before AWS acts. Pure.

`policy/interruption.py` asks for it, of nodes and of classes of their pods.
"""

from datetime import datetime
from typing import Final, Literal

from model.base import Value
from model.kinds.interruption_rules import Action
from model.remembered import Event
from policy.interruption_rules import Times, opening

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
