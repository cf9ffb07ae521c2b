"""ClusterWatch shows the worker that hosts the watch, and the objects that the watch cannot read.

DisruptionPreview runs one query of an operator on the planner host. `tenure/cli/` starts it and waits for the result.
"""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from activities.planner_host import PlannerHostActivities
from tenure.model.errors import InvalidObjectReport
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.workflow_states import ClusterWatchState, WatchHost
from workflows import ids
from workflows.activity_options import PLAN, is_continue_as_new_due, with_summary
from workflows.current_details import IgnoresCancellation, publish_details, render_cluster_watch


@workflow.defn(name="ClusterWatch")
class ClusterWatchWorkflow(IgnoresCancellation):
    how_to_stop = "scale the Deployment of the worker to zero"

    @workflow.init
    def __init__(self, state: ClusterWatchState) -> None:
        self._state = state

    @workflow.run
    async def run(self, state: ClusterWatchState) -> None:
        self._update_state()
        await workflow.wait_condition(is_continue_as_new_due)
        workflow.continue_as_new(self._state)

    @workflow.signal(description="From a worker that hosts the watch, or can no longer host it")
    def report_host(self, host: WatchHost) -> None:
        self._update_state(host=host)

    @workflow.signal(description="From the watch: objects that it cannot read")
    def report_invalid_objects(self, report: InvalidObjectReport) -> None:
        self._update_state(invalid_objects=report)

    @workflow.query(description="Objects that the watch cannot read")
    def invalid_objects(self) -> InvalidObjectReport:
        return self._state.invalid_objects

    def _update_state(self, **fields: Any) -> None:
        self._state = self._state.model_copy(update=fields)
        publish_details(render_cluster_watch(self._state))


PREVIEW_TIMEOUT = timedelta(seconds=60)


@workflow.defn(name="DisruptionPreview")
class DisruptionPreviewWorkflow:
    @workflow.run
    async def run(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        subject = request.name or "what would be done"
        workflow.set_current_details(f"Querying the planner host of cluster **{request.cluster}** for {subject}.")
        options = with_summary(PLAN, f"show {subject}") | {
            "task_queue": ids.plan_queue(request.cluster),
            "schedule_to_close_timeout": PREVIEW_TIMEOUT,
        }
        return await workflow.execute_activity_method(PlannerHostActivities.preview_disruption, request, **options)
