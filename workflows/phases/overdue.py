"""Overdue: written to the NodeClaim beside the phase that the node is in, and taken off when it is so no more.

Only where the node is kept: what else follows a deadline ends the NodeClaim, with an event of its own. A life in which
no deadline passes has no event of this.
"""

from contextlib import suppress
from datetime import timedelta

from temporalio import workflow

from activities.disruption import DisruptionActivities
from model import labels
from model.lifecycle import ClaimState, Phase
from model.steps import Report
from policy.overdue import blocked_by, is_alarmed
from workflows.life import Life
from workflows.options import PATCH, named
from workflows.phases.beside import whenever
from workflows.phases.giving_up import ref

TOLD = "overdue-told"
"""Histories from before this was told go on without."""


async def tell_overdue(life: Life) -> None:
    """For as long as the run lasts: whenever it is overdue, or no more, say so."""
    await workflow.wait_condition(lambda: _is_news(life.state))
    if workflow.patched(TOLD):
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
