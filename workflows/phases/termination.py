"""Termination: EC2 ends the instance, the Node object goes, the NodeClaim's finalizer comes off. The last phase."""

from typing import Any

from temporalio import workflow

from activities.termination import TerminationActivities
from model.lifecycle import Phase
from model.steps import TerminationAsked
from workflows.life import Life
from workflows.options import TERMINATE, named
from workflows.phases.giving_up import ref


async def termination(life: Life) -> Phase:
    """A claim that never had an instance still asks: its status may know of one that this workflow does not."""
    await life.insist(lambda options: _terminate(life, options), named(TERMINATE, "terminate the instance"))
    return Phase.GONE


async def _terminate(life: Life, options: Any) -> None:
    """Asked anew at every try: the launch group may have answered in between."""
    asked = TerminationAsked(claim=ref(life), reason=life.state.disruption or "Deleted")
    await workflow.execute_activity_method(TerminationActivities.terminate_node, asked, **options)
