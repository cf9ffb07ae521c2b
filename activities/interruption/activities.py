"""Kubernetes events, conditions of the Node and the annotation about the AWS events of a node."""

from temporalio import activity

from activities.node_conditions import set_node_conditions
from activities.nodeclaim.eviction import BatchedFirstEviction
from activities.ports.core import Named, Ports, find_node, publish_event_on
from activities.runtime import map_faults
from tenure.apis.labels import INTERRUPTIONS, MAINTENANCE_UNTIL
from tenure.model.base import REQUEST_PRIORITY
from tenure.model.interruption.records import InterruptionNotification


class NodeInterruptionActivities:
    def __init__(self, ports: Ports, first_evictions: BatchedFirstEviction) -> None:
        """`first_evictions`: first evictions of all drains. Events are published after them."""
        self._claims, self._nodes, self._events = ports.claims, ports.nodes, ports.events
        self._first_evictions = first_evictions

    @activity.defn
    @map_faults
    async def publish_interruption_events(self, request: InterruptionNotification) -> None:
        """Write the annotation before the events: an event may be repeated, but the annotation must not be lost."""
        REQUEST_PRIORITY.set("bulk")
        await self._first_evictions.wait_for_others()
        ref = request.claim
        if request.write:
            maintenance_until = (
                request.maintenance_until.isoformat(timespec="seconds") if request.maintenance_until else None
            )
            await self._claims.patch_annotations(
                ref.name, {INTERRUPTIONS: request.text or None, MAINTENANCE_UNTIL: maintenance_until}, uid=ref.uid
            )
        if not (request.events or request.node_conditions):
            return
        node = await find_node(self._nodes, ref.node_name, ref.provider_id)
        objects: list[tuple[str, Named]] = [("NodeClaim", ref), *([("Node", node)] if node is not None else ())]
        for event in request.events:
            for kind, about in objects:
                await publish_event_on(self._events, kind, about, event.reason, event.message)
        # The API server may reject updates of Nodes, and events do not depend on them.
        if node is not None and request.node_conditions:
            await set_node_conditions(self._nodes, node.name, request.node_conditions)
