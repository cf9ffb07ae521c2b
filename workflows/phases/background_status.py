"""Overdue: written to the NodeClaim beside the phase that the node is in, and taken off when it is so no more.

Only where the node is kept: what else follows a deadline ends the NodeClaim, with an event of its own. A life in which
no deadline passes has no event of this.

What is written of a node beside the phase that it is in: its drift, its absences, that it is overdue.

Each is a task for as long as the run lasts (`nodeclaim.py`), and has no event while there is nothing new to say.

Away: when an initialized node was NotReady, or under a taint that passes, is counted and written to its NodeClaim.

Beside the phase that the node is in. Planning reads it there, so that the grace of a node that comes and goes is used
up and not begun anew; a node that stays has no event of this.

Drifted: what the watch finds of a node's drift is written to its NodeClaim, beside the phase that the node is in.

From registration to ready. Nothing is disrupted for it here, and a life without drift has no event of this.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from activities.nodeclaim.annotations import AbsenceActivities
from tenure.apis import labels
from tenure.model.node_health import Absence, begun, ended, lasting, merged, written
from tenure.model.nodeclaim_requests import AbsencesTold, Report
from tenure.model.nodeclaim_state import ClaimState, Phase
from tenure.model.observations import ClaimSeen
from tenure.policy.lifecycle.deadlines import blocked_by, is_alarmed
from workflows.activity_options import PATCH, named
from workflows.nodeclaim_context import Life
from workflows.phases.failure import ref

AGAIN_IN = timedelta(minutes=5)
"""After a fault that no retry helps."""
LAST_WORDS = timedelta(minutes=2)
"""A try that is lost with its worker comes again after 45 s."""


async def whenever(
    life: Life, is_news: Callable[[ClaimState], bool], write: Callable[[Life], Awaitable[None]], *, about: str
) -> None:
    """Write whenever there is news; what was written has to make it none. The run does not roll over meanwhile."""
    while True:
        await workflow.wait_condition(lambda: is_news(life.state))
        life.show()
        life.telling += 1
        written = await _is_written(life, write)
        life.telling -= 1
        if not written:
            await workflow.sleep(AGAIN_IN, summary=f"before writing of {about} again")


async def last_words(life: Life) -> None:
    """What is just being written comes to its end, before the life does."""
    if life.telling:
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: not life.telling, timeout=LAST_WORDS, timeout_summary="last words")


async def _is_written(life: Life, write: Callable[[Life], Awaitable[None]]) -> bool:
    try:
        await write(life)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return False
    return True


async def tell_overdue(life: Life) -> None:
    """For as long as the run lasts: whenever it is overdue, or no more, say so."""
    await workflow.wait_condition(lambda: _is_news(life.state))
    await whenever(life, _is_news, _tell, about="the deadline")


async def keep_time(life: Life) -> None:
    """A deadline that a LifecyclePolicy moves while an activity runs is kept all the same; waits look themselves."""
    while True:
        await workflow.wait_condition(lambda: life.insisting and life.moved)
        life.moved = False
        if life.state.deadline is not None and not life.state.overdue:
            await _keep(life, life.state.deadline - life.now)
            if life.insisting and life.overdue():
                life.mark_overdue()


async def _keep(life: Life, left: timedelta) -> None:
    if left > timedelta(0):
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: life.moved or not life.insisting or life.state.overdue,
                timeout=left,
                timeout_summary="the deadline that was moved",
            )


def _is_news(state: ClaimState) -> bool:
    if state.phase is Phase.GONE or not state.seen.exists:
        return False
    return state.told_overdue is not _to_tell(state)


def _to_tell(state: ClaimState) -> Phase | None:
    return state.phase if is_alarmed(state) else None


async def _tell(life: Life) -> None:
    state = life.state
    phase = _to_tell(state)
    report = Report(claim=ref(life), condition=labels.OVERDUE, status="")
    if phase:
        since, until = (
            moment.isoformat(timespec="seconds") if moment else "-" for moment in (state.since, state.deadline)
        )
        message = f"in {phase.value} since {since}, deadline {until}; {blocked_by(state)}"
        report = report.model_copy(
            update={
                "status": "True",
                "reason": phase.value,
                "message": message,
                "event": f"{phase.value}Overdue",
                "warning": True,
            }
        )
    summary = f"say that {phase.value} is overdue" if phase else "say that it is overdue no more"
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, summary))
    life.change(told_overdue=phase)


NOT_READY = "NotReady"
_PHASES = (Phase.INITIALIZATION, Phase.READY)


def note_absence(life: Life, seen: ClaimSeen) -> None:
    """Take into the record what the watch sees now, beside what it saw last: `life.state.seen`. A node that is going is
    away for good, which is no flap."""
    known = life.state.absences
    if seen.deleting or not seen.exists or not seen.node_name:
        return
    if seen.away_since and lasting(known) is None:
        life.change(absences=begun(known, seen.away_since), flaps=life.state.flaps + 1)
    elif seen.away_since is None and lasting(known):
        life.change(absences=_ended(life, known, seen))


def recall_absences(life: Life, known: tuple[Absence, ...]) -> None:
    """Of a life that is begun anew: what its NodeClaim says of the time before; and its end, if the node is back."""
    record, seen = merged(known, life.state.absences), life.state.seen
    if seen.node_name and seen.away_since is None and lasting(record):
        record = _ended(life, record, seen)
    life.change(absences=record, absences_told=written(known), flaps=len(record))


def _ended(life: Life, known: tuple[Absence, ...], seen: ClaimSeen) -> tuple[Absence, ...]:
    """The watch may tell late that it is Ready again, and then says since when; that a taint went it sees, or not."""
    came, left = seen.ready_since, lasting(known)
    late = NOT_READY in life.state.seen.away_for and came and left and came > left
    return ended(known, came if late and came else life.now)


async def tell_absences(life: Life) -> None:
    """For as long as the run lasts: whenever there is more to say than was written, write that."""
    await whenever(life, _is_absence_unreported, _report_absence, about="absences")


def _is_absence_unreported(state: ClaimState) -> bool:
    stays = state.phase in _PHASES and state.seen.exists and not state.seen.deleting
    return stays and written(state.absences) != state.absences_told


async def _report_absence(life: Life) -> None:
    absences = life.state.absences
    asked = AbsencesTold(claim=ref(life), absences=absences)
    summary = "write down that it is away" if lasting(absences) else "write down that it is back"
    await workflow.execute_activity_method(AbsenceActivities.record_absences, asked, **named(PATCH, summary))
    life.change(absences_told=written(absences))


_DRIFT_PHASES = (Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY)


async def tell_drift(life: Life) -> None:
    """For as long as the run lasts: whenever the watch says something else than what was written, write that."""
    await whenever(life, _is_drift_unreported, _report_drift, about="drift")


def _is_drift_unreported(state: ClaimState) -> bool:
    """A node that is going is judged no more, so what its NodeClaim says of drift stays as it is."""
    seen = state.seen
    stays = state.phase in _DRIFT_PHASES and seen.exists and not seen.deleting
    return stays and (seen.drift, seen.drift_message) != (state.drift, state.drift_message)


async def _report_drift(life: Life) -> None:
    seen = life.state.seen
    again = seen.drift == life.state.drift
    report = Report(
        claim=ref(life),
        condition=labels.DRIFTED,
        status="True" if seen.drift else "",
        reason=seen.drift,
        message=seen.drift_message,
        event=seen.drift if not again else "",
    )
    summary = f"say that it drifted: {seen.drift}" if seen.drift else "say that it has not drifted"
    await workflow.execute_activity_method(DisruptionActivities.report, report, **named(PATCH, summary))
    life.change(drift=seen.drift, drift_message=seen.drift_message)
