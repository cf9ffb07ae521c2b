"""Watch: keeps exactly one `watch_cluster` activity alive somewhere. Its heartbeat is the fail-over.

There is no leader election beside it: when the process that watches dies, the activity's heartbeat stops, and
Temporal hands the same activity to another replica within seconds.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.watch import WatchActivities
from workflows.options import WATCH, named

AGAIN_IN = timedelta(seconds=5)


@workflow.defn
class WatchWorkflow:
    @workflow.run
    async def run(self, cluster: str) -> None:
        workflow.set_current_details(f"Watches cluster **{cluster}**: one replica at a time, handed on by heartbeat.")
        try:
            await workflow.execute_activity_method(WatchActivities.watch_cluster, **named(WATCH, f"watch {cluster}"))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            # A fault that no retry helps ends a run and never the watch.
            await workflow.sleep(AGAIN_IN, summary=str(error.cause or error)[:100])
        workflow.continue_as_new(cluster)
