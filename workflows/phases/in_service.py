"""In service: a node that was to go and does not takes pods again, and uses no budget up.

Whoever deletes a NodeClaim taints its node first. Where the permit lapsed meanwhile, or a person paused the node,
nothing stands behind the taint any more.
"""

from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from workflows.life import Life
from workflows.options import PATCH, named
from workflows.phases.giving_up import ref

PUTS_BACK: Final = "marks-put-back"
"""Histories from before such taints were taken off go on without."""
TRIES_FOR: Final = timedelta(seconds=30)
"""At a stretch: the node may have to go for another reason meanwhile."""
TRIES_AGAIN: Final = timedelta(minutes=1)


async def put_back(life: Life) -> bool:
    """Whether it was, just now. What fails is tried again for as long as it takes."""
    if not life.state.marked:
        return False
    if not workflow.patched(PUTS_BACK):
        life.change(marked=False)
        return False
    options = {**named(PATCH, "put the node back into service"), "schedule_to_close_timeout": TRIES_FOR}
    try:
        await workflow.execute_activity_method(DisruptionActivities.put_back, ref(life), **options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return False
    life.change(marked=False)
    return True


def again_if_marked(life: Life, until: datetime | None) -> datetime | None:
    """No later than this one is waited, where the node is still to be put back."""
    again = life.now + TRIES_AGAIN if life.state.marked else None
    return min((one for one in (until, again) if one is not None), default=None)
