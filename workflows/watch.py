"""Watch: keeps exactly one `watch_cluster` activity alive somewhere. Its heartbeat is the fail-over.

There is no leader election beside it: when the process that watches dies, the activity's heartbeat stops, and
Temporal hands the same activity to another replica within seconds.
"""

from temporalio import workflow

from activities.watch import WatchActivities
from workflows.options import WATCH, named


@workflow.defn
class WatchWorkflow:
    @workflow.run
    async def run(self, cluster: str) -> None:
        workflow.set_current_details(f"Watches cluster **{cluster}**: one replica at a time, handed on by heartbeat.")
        await workflow.execute_activity_method(WatchActivities.watch_cluster, **named(WATCH, f"watch {cluster}"))
        workflow.continue_as_new(cluster)
