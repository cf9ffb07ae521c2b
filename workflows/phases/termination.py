"""Termination: EC2 ends the instance, the Node object goes, the NodeClaim's finalizer comes off. The last phase."""

from typing import Any

from temporalio import workflow

from activities.nodeclaim.instance import TerminationActivities
from tenure.model.nodeclaim_requests import TerminationAsked
from tenure.model.nodeclaim_state import Phase
from workflows.activity_options import SELDOM, TERMINATE, leaving
from workflows.nodeclaim_context import Life
from workflows.phases.failure import ref
from workflows.phases.hooks import run_hooks


async def termination(life: Life) -> Phase:
    """A claim that never had an instance still asks: its status may know of one that this workflow does not."""
    if life.state.launched is not None:
        await run_hooks(life, "beforeTerminate")
    options = leaving({**TERMINATE, **SELDOM}, life.state.identity.cluster, "terminate the instance")
    await life.insist(lambda options: _terminate(life, options), options)
    return Phase.GONE


async def _terminate(life: Life, options: Any) -> None:
    """Asked anew at every try: the launch group may have answered in between."""
    asked = TerminationAsked(claim=ref(life), reason=life.state.disruption or "Deleted")
    await workflow.execute_activity_method(TerminationActivities.terminate_node, asked, **options)
