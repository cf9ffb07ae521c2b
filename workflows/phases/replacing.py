"""A replacement tells the workflow of its disruption when it is ready, or as soon as it is clear that it never will be.

Whoever made the NodeClaim wrote that workflow on it; a node that replaces none has no event of this.
"""

from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import FailureError

from policy.replacing import replacement_says
from workflows.life import Life


async def tell_replaced(life: Life) -> None:
    """Once. A disruption that is over needs no telling."""
    said = replacement_says(life.state)
    if said is None:
        return
    with suppress(FailureError):
        await workflow.get_external_workflow_handle(life.state.identity.replaces).signal("replacement", said)
    life.change(said_ready=said.ready)
