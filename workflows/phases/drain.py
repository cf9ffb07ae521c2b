"""Drain: cordon, evict through the Eviction API, wait for pods and volumes. Before termination.

A drain without a termination grace period waits as long as a PodDisruptionBudget or a do-not-disrupt pod holds it,
and says so; the deadline makes it overdue, never forceful.
"""

from typing import Any

from temporalio import workflow

from activities.draining import DrainActivities
from model.lifecycle import Phase
from model.steps import DrainAsked, Drained
from workflows.life import Life
from workflows.options import DRAIN, named
from workflows.phases.giving_up import ref


async def drain(life: Life) -> Phase:
    while True:
        life.roll_if_due()
        answer = await life.insist(lambda options: _drain(life, options), named(DRAIN, f"drain {life.state.node_name}"))
        if answer.outcome != "waiting":
            return Phase.TERMINATION
        life.block(answer.blockers)
        if life.overdue():
            life.mark_overdue()


async def _drain(life: Life, options: Any) -> Drained:
    asked = DrainAsked(claim=ref(life), known_blockers=life.state.blocked_by)
    return await workflow.execute_activity_method(DrainActivities.drain_node, asked, **options)
