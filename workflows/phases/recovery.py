"""Recall: a workflow that is younger than its NodeClaim finds out how far the life had come. First step of launch.

Temporal's store may have been lost, or a run ended by hand: what the NodeClaim and EC2 know counts, and nothing is
bought before they were asked.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodeclaim.recovery import RecallActivities
from tenure.model.nodeclaim_state import Phase
from workflows.activity_options import PATCH, named
from workflows.nodeclaim_context import Life
from workflows.phases.background_status import recall_absences
from workflows.phases.failure import ref
from workflows.phases.interruption import recall_notices

PROMPT = timedelta(seconds=30)
"""A life that begins so soon after its NodeClaim's birth is taken for its first."""


def is_late(life: Life) -> bool:
    """Nothing has been done in this phase yet, and the NodeClaim has been there for a while, has an instance, or goes:
    of one that goes, no more than that is told."""
    state = life.state
    untouched = state.group is None and state.launched is None and state.refused is None
    if not untouched or state.since is None:
        return False
    lived = state.seen.deleting or bool(state.seen.provider_id)
    return state.since - state.identity.created > PROMPT or lived


async def recall(life: Life) -> Phase | None:
    """The phase to go on with; None when there is no instance, as far as anyone knows."""
    found = await workflow.execute_activity_method(
        RecallActivities.recall_life, ref(life), **named(PATCH, "what is known of this NodeClaim?")
    )
    if found.launched is None:
        return None
    life.change(
        launched=found.launched,
        node_name=found.node_name,
        registered=found.registered,
        initialized=found.initialized,
        boot_id=found.boot_id,
        expires=found.expires,
        lifetime=found.lifetime,
        drift=found.drift,
        drift_message=found.drift_message,
        told_overdue=Phase(found.told_overdue) if found.told_overdue in list(Phase) else None,
    )
    recall_absences(life, found.absences)
    recall_notices(life, found.interruptions)
    if found.initialized:
        return Phase.READY
    return Phase.INITIALIZATION if found.registered else Phase.REGISTRATION


async def stands(life: Life) -> bool:
    """Whether the NodeClaim is there, from a live read: what follows where it is not cannot be undone."""
    try:
        return await workflow.execute_activity_method(
            RecallActivities.claim_stands, ref(life), **named(PATCH, "is the NodeClaim gone?")
        )
    except ActivityError:
        return True
