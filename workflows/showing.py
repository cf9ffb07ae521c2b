"""Showing: asks the planner's host one question for a person, and is over. `cli/` starts it and waits."""

from datetime import timedelta

from temporalio import workflow

from activities.showing import ShowingActivities
from model.showing import ShowAsked, Shown
from workflows import ids
from workflows.options import PLAN, named

PATIENCE = timedelta(seconds=60)


@workflow.defn
class ShowWorkflow:
    @workflow.run
    async def run(self, asked: ShowAsked) -> Shown:
        about = asked.name or "what would be done"
        workflow.set_current_details(f"Asks the host of cluster **{asked.cluster}** for {about}.")
        options = named(PLAN, f"show {about}") | {
            "task_queue": ids.plan_queue(asked.cluster),
            "schedule_to_close_timeout": PATIENCE,
        }
        return await workflow.execute_activity_method(ShowingActivities.show_disruption, asked, **options)
