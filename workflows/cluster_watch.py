"""ClusterWatch keeps exactly one `watch_cluster` activity running; its heartbeat provides failover.

There is no separate leader election. When the watching process dies, the activity's heartbeat stops. Temporal then
schedules the same activity on another replica within seconds.

DisruptionPreview runs one query of an operator on the planner host. `tenure/cli/` starts it and waits for the result.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.planner_host import PlannerHostActivities
from tenure.model.errors import InvalidObjectReport
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from workflows import ids
from workflows.activity_options import PLAN, WATCH, with_summary
from workflows.current_details import IgnoresCancellation, publish_details

RETRY_AFTER = timedelta(seconds=5)


@workflow.defn(name="ClusterWatch")
class ClusterWatchWorkflow(IgnoresCancellation):
    how_to_stop = "scale the Deployment of the worker to zero"

    @workflow.init
    def __init__(self, cluster: str, invalid_objects: InvalidObjectReport | None = None) -> None:
        self._cluster = cluster
        self._invalid_objects = invalid_objects or InvalidObjectReport()

    @workflow.run
    async def run(self, cluster: str, _invalid_objects: InvalidObjectReport | None = None) -> None:
        self._set_details()
        try:
            await workflow.execute_activity_method(
                PlannerHostActivities.watch_cluster, **with_summary(WATCH, f"watch {cluster}")
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            # A fault that is not retryable ends this run, but never the watch.
            await workflow.sleep(RETRY_AFTER, summary=str(error.cause or error)[:100])
        workflow.continue_as_new(args=[cluster, self._invalid_objects])

    @workflow.signal(description="From the watch: objects that it cannot read")
    def report_invalid_objects(self, report: InvalidObjectReport) -> None:
        self._invalid_objects = report
        self._set_details()

    @workflow.query(description="Objects that the watch cannot read")
    def invalid_objects(self) -> InvalidObjectReport:
        return self._invalid_objects

    def _set_details(self) -> None:
        lines = [f"Watching cluster **{self._cluster}** from one replica at a time, with failover by heartbeat."]
        lines += [f"- {one.kind} `{one.name}`: {one.message}" for one in self._invalid_objects.objects]
        if self._invalid_objects.objects:
            lines.insert(1, "\n**Invalid objects**\n")
        if self._invalid_objects.omitted:
            lines.append(f"- and {self._invalid_objects.omitted} more")
        publish_details("\n".join(lines))


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
