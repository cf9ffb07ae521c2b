"""Termination: EC2 ends the instance, the Node object goes, the NodeClaim's finalizer comes off. The last phase."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.termination import TerminationActivities
from model.lifecycle import Phase
from model.steps import TerminationAsked
from workflows.life import Life
from workflows.options import TERMINATE, named
from workflows.phases.giving_up import ref


async def termination(life: Life) -> Phase:
    """A claim that never had an instance still asks: its status may know of one that this workflow does not."""
    asked = TerminationAsked(claim=ref(life), reason=life.state.disruption or "Deleted")
    while True:
        try:
            await workflow.execute_activity_method(
                TerminationActivities.terminate_node, asked, **named(TERMINATE, "terminate the instance")
            )
            return Phase.GONE
        except ActivityError as error:
            life.block(str(error.cause or error))
            if life.overdue():
                life.mark_overdue()
            await workflow.sleep(20, summary="before terminating again")
