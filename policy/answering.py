"""What a person may say of a node's events, and what comes of it. Pure: `workflows/answers.py` takes it."""

from datetime import datetime

from model.lifecycle import ClaimState
from model.messages import Verdict
from model.remembered import Answer
from policy.interruption import approvable, decide_interruption, words

LONGEST = 300


def problem_of(state: ClaimState, by: str, reason: str) -> str:
    """Why it is refused: what is wrong, and what to write; empty where it is taken."""
    if not by.strip():
        return f"by: {by!r} is no name; write who says so, such as ann@example.com"
    if len(reason) > LONGEST:
        return f"reason: {reason[:60]!r} of {len(reason)} characters; write at most {LONGEST}"
    if not approvable(state):
        name = state.identity.name
        events = f"`tenure events {name}` says what AWS announced"
        return f"NodeClaim {name} has no event that waits for approval, in phase {state.phase.value}; {events}"
    return ""


def answer_of(by: str, reason: str, now: datetime, *, approved: bool) -> Answer:
    return Answer(approved=approved, by=by.strip(), reason=" ".join(reason.split())[:LONGEST], at=now)


def verdict_of(state: ClaimState, answer: Answer, now: datetime) -> Verdict:
    """What follows, of a state in which the answer stands."""
    said = ", ".join(words(event) for event in approvable(state))
    name, follows = state.identity.name, decide_interruption(state, now)
    if answer.approved:
        return Verdict(message=f"NodeClaim {name} goes for {said}, approved by {answer.by}")
    if follows.do == "wait" and follows.until:
        until = follows.until.isoformat(timespec="seconds")
        return Verdict(message=f"NodeClaim {name} is kept until {until}, before AWS acts: {follows.what}")
    return Verdict(message=f"NodeClaim {name} is kept, whatever comes of {said}: rejected by {answer.by}")
