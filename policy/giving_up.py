"""What a person may say of a command that is being carried out: give it up, and leave its nodes alone for a while.

Pure; `workflows/disruption.py` hears it, `policy/bouncing.py` remembers how long the nodes are left alone.
"""

from datetime import datetime, timedelta
from typing import Final

from model.commands import CommandState, GiveUp

LONGEST: Final = timedelta(days=30)
"""What is to be kept for good has an annotation, or a pause of its NodePool."""
LONGEST_REASON: Final = 200
_LATE: Final = timedelta(minutes=10)
"""Nodes that could not be put back for so long wait for a person."""


def refusal_of(state: CommandState, said: GiveUp) -> str:
    """Why this cannot be done: field, value, what to write; empty when it can."""
    if not said.by.strip():
        return "by: nobody is named; write who says so"
    if not said.reason.strip() or len(said.reason) > LONGEST_REASON:
        return f"reason: {said.reason[:60]!r}: write why, in 1 to {LONGEST_REASON} characters"
    if not timedelta(0) <= said.keep <= LONGEST:
        return (
            f"keep: {said.keep} is not between nothing and {LONGEST.days} days; write such as 4h, or pause its NodePool"
        )
    if state.step in ("Undo", "Over"):
        how = f"{state.over.ending}: {state.over.why}" if state.over else "as it was to end"
        return f"the command has ended already ({how}); `tenure why NODE` says what became of a node"
    return ""


def given_up(state: CommandState, said: GiveUp, now: datetime) -> dict[str, object]:
    """What changes by it."""
    kept = now + said.keep if said.keep else None
    until = f", and keeps its nodes until {kept.isoformat(timespec='minutes')}" if kept else ""
    return {"recalled": f"{said.by.strip()} gave it up{until}: {said.reason.strip()}", "keep_until": kept}


def answer(state: CommandState, said: GiveUp) -> str:
    """For whoever asked."""
    if state.step == "Finish":
        return "NodeClaims are being deleted: those that are not yet are put back into service"
    replacements = ", and its replacements deleted but those that carry pods" if state.claims else ""
    return f"given up by {said.by.strip()}: its nodes are put back into service{replacements}"


def is_late(step: str, since: datetime | None, deadline: datetime | None, now: datetime) -> bool:
    """A command that waits for a person: past its step's deadline, or nodes that cannot be put back."""
    if deadline is not None:
        return deadline < now
    return step == "Undo" and since is not None and since + _LATE < now
