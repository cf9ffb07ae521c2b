"""Drain: taint the node, delete the Node object, evict pods in order, wait for pods and volumes.

The activity polls while pods leave. It returns when pods and volumes are gone, when the blockers change, or when only
known blockers are left: the workflow then waits until the watch signals a change. A drain that defers deletion deletes
neither NodeClaim nor Node until the pods are gone, so that it can be cancelled.
"""

import asyncio
from datetime import datetime

from temporalio import activity

from activities.nodeclaim.drain_pass import DrainPass
from activities.nodeclaim.eviction import BatchedFirstEviction, uncordon
from activities.ports.core import ConditionPatch, Ports, find_nodeclaim, publish_event_on
from activities.runtime import HEARTBEAT_EVERY_SECONDS, RARE_HEARTBEAT_SECONDS, background_heartbeat, map_faults
from tenure.apis import labels
from tenure.clock import utc_now
from tenure.model.base import REQUEST_PRIORITY
from tenure.model.disruption.drain import DrainStatus
from tenure.model.nodeclaim.requests import CancelDrainRequest, DrainRequest, DrainResult

FIRST_POLL_SECONDS = 0.5
MAX_POLL_SECONDS = 3.0
"""Seconds between passes over a node whose pods terminate. The interval increases by half each time."""
MIN_BLOCKED_SECONDS = 3.0
MIN_CHANGED_CODE_SECONDS = 6.0
MIN_CHANGED_SECONDS = 30.0
"""Seconds that a first blocker, another code or another message must last before it is reported, since budgets often
reject evictions for a short time. A node that becomes NotReady is reported after the shortest time."""
PROGRESS_SECONDS = 15.0
"""Seconds after the last pod left during which the activity polls, although blockers are published."""
MIN_TERMINATING_SECONDS = 60.0
"""Seconds after which a drain is reported whose pods only terminate."""
QPS_SHARE = 0.4
"""Share of the API request rate that repeated passes of all drains in a process may use."""
REQUESTS_PER_POLL = 3
"""NodeClaim, Node, pods."""


class DrainActivities:
    def __init__(self, ports: Ports, first_evictions: BatchedFirstEviction | None = None) -> None:
        """`first_evictions`: first evictions of all drains in the process."""
        self._ports = ports
        self._polls_per_second = ports.qps * QPS_SHARE / REQUESTS_PER_POLL
        self._running_drains = 0
        self._first_evictions = first_evictions or BatchedFirstEviction()

    @activity.defn
    @map_faults
    async def drain_node(self, request: DrainRequest) -> DrainResult:
        REQUEST_PRIORITY.set("bulk")
        self._running_drains += 1
        try:
            async with (
                background_heartbeat(every=HEARTBEAT_EVERY_SECONDS if request.cancellable else RARE_HEARTBEAT_SECONDS),
                self._first_evictions.track() as first_eviction,
            ):
                drain_pass = DrainPass(self._ports, request, first_eviction)
                result = await self._poll_until_changed(drain_pass, request)
                pods = {"evicted_pods": drain_pass.drained_pods, "rescheduled_pods": drain_pass.rescheduled_pods or 0}
                return result.model_copy(update=pods)
        finally:
            self._running_drains -= 1

    async def _poll_until_changed(self, drain_pass: DrainPass, request: DrainRequest) -> DrainResult:
        began, pause = utc_now(), FIRST_POLL_SECONDS
        timeout = _remaining_timeout(request, began)
        while True:
            result = await drain_pass.run_once(utc_now())
            if result is not None:
                return result
            since = (utc_now() - began).total_seconds()
            is_waiting = is_unchanged(request, drain_pass.status) and drain_pass.is_waiting(utc_now(), PROGRESS_SECONDS)
            if is_waiting or is_status_due(request, drain_pass.status, since, timeout):
                return await drain_pass.publish_status(is_waiting=is_waiting)
            shared_pause = min(self._shared_pause(), max(pause, timeout - since))
            await asyncio.sleep(max(drain_pass.next_pause(pause, utc_now()), shared_pause))
            pause = min(MAX_POLL_SECONDS, pause * 1.5)

    def _shared_pause(self) -> float:
        """Seconds between passes of one drain at the current number of drains. First passes do not wait."""
        return self._running_drains / self._polls_per_second

    @activity.defn
    @map_faults
    async def uncordon_node(self, request: CancelDrainRequest) -> bool:
        """Uncordon a node whose drain is cancelled; False if NodeClaim or Node is being deleted."""
        ref = request.claim
        claims, nodes = self._ports.claims, self._ports.nodes
        claim, node = await find_nodeclaim(claims, ref.name, ref.uid), await nodes.get(ref.node_name)
        if claim is None or claim.metadata.is_deleting or node is None or node.deleting:
            return False
        await uncordon(self._ports, ref.name, ref.uid, node.name)
        conditions = (
            ConditionPatch(type=labels.DISRUPTION_REASON, status=""),
            ConditionPatch(type=labels.DRAINED, status="False", reason=labels.DRAIN_CANCELLED, message=request.why),
        )
        await claims.patch(ref.name, ref.uid, conditions=conditions, now=utc_now())
        message = f"Uncordoned node: {request.why}"
        await publish_event_on(self._ports.events, "NodeClaim", ref, request.event, message)
        return True


def _remaining_timeout(request: DrainRequest, began: datetime) -> float:
    """Seconds for this attempt: the poll timeout minus the time of earlier attempts."""
    info = activity.info()
    used = (began - info.scheduled_time).total_seconds() if info.attempt > 1 else 0.0
    return request.poll_timeout - min(max(used, 0.0), request.poll_timeout)


def is_unchanged(request: DrainRequest, status: DrainStatus) -> bool:
    """Whether the status is published."""
    known = request.known
    return (
        known is not None
        and status.blocker_summary == known.blocker_summary
        and known.status_line == request.known_blockers
    )


def is_status_due(request: DrainRequest, status: DrainStatus, since: float, timeout: float) -> bool:
    """Whether the status is reported now, `since` seconds after this activity started. Also True if a fault has
    replaced the published status."""
    known = request.known.blocker_summary if request.known else request.known_blockers
    if since >= timeout:
        return True
    if status.blocker_summary != known:
        turned = request.known is not None and bool(request.known.not_ready_since) != bool(status.not_ready_since)
        if not known or turned:
            return since >= MIN_BLOCKED_SECONDS
        is_new_code = request.known is not None and request.known.blocker_code != status.blocker_code
        return since >= (MIN_CHANGED_CODE_SECONDS if is_new_code else MIN_CHANGED_SECONDS)
    if request.known is not None:
        return since >= MIN_BLOCKED_SECONDS and request.known.status_line != request.known_blockers
    return bool(status.eviction_blockers) and since >= MIN_TERMINATING_SECONDS
