"""Watch: keeps exactly one `watch_cluster` activity alive somewhere. Its heartbeat is the fail-over.

There is no leader election beside it: when the process that watches dies, the activity's heartbeat stops, and
Temporal hands the same activity to another replica within seconds.

Showing: asks the planner's host one question for a person, and is over. `cli/` starts it and waits.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.planner_host import PlannerHostActivities
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from workflows import ids
from workflows.activity_options import PLAN, WATCH, with_summary

RETRY_AFTER = timedelta(seconds=5)


@workflow.defn(name="ClusterWatch")
class ClusterWatchWorkflow:
    @workflow.run
    async def run(self, cluster: str) -> None:
        workflow.set_current_details(f"Watches cluster **{cluster}**: one replica at a time, handed on by heartbeat.")
        try:
            await workflow.execute_activity_method(
                PlannerHostActivities.watch_cluster, **with_summary(WATCH, f"watch {cluster}")
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            # A fault that no retry helps ends a run and never the watch.
            await workflow.sleep(RETRY_AFTER, summary=str(error.cause or error)[:100])
        workflow.continue_as_new(cluster)


PREVIEW_TIMEOUT = timedelta(seconds=60)


@workflow.defn(name="DisruptionPreview")
class DisruptionPreviewWorkflow:
    @workflow.run
    async def run(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        subject = request.name or "what would be done"
        workflow.set_current_details(f"Asks the host of cluster **{request.cluster}** for {subject}.")
        options = with_summary(PLAN, f"show {subject}") | {
            "task_queue": ids.plan_queue(request.cluster),
            "schedule_to_close_timeout": PREVIEW_TIMEOUT,
        }
        return await workflow.execute_activity_method(PlannerHostActivities.preview_disruption, request, **options)
