"""Drifted: what the watch finds of a node's drift is written to its NodeClaim, beside the phase that the node is in.

From registration to ready. Nothing is disrupted for it here, and a life without drift has no event of this.
"""

from temporalio import workflow

from activities.disruption import DisruptionActivities
from model import labels
from model.lifecycle import ClaimState, Phase
from model.steps import Report
from workflows.life import Life
from workflows.options import PATCH, named
from workflows.phases.beside import whenever
from workflows.phases.giving_up import ref

_PHASES = (Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY)


async def tell_drift(life: Life) -> None:
    """For as long as the run lasts: whenever the watch says something else than what was written, write that."""
    await whenever(life, _is_news, _tell, about="drift")


def _is_news(state: ClaimState) -> bool:
    """A node that is going is judged no more, so what its NodeClaim says of drift stays as it is."""
    seen = state.seen
    stays = state.phase in _PHASES and seen.exists and not seen.deleting
    return stays and (seen.drift, seen.drift_message) != (state.drift, state.drift_message)


async def _tell(life: Life) -> None:
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
