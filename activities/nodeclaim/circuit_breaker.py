"""The circuit breaker of node repair: too many nodes are unhealthy for the nodes to be the cause.

It counts live nodes, since counts of the watch may be outdated, and a NodeClaim without a NodePool has no NodePool
workflow.
"""

from collections.abc import Collection

from activities.ports.core import NodeFact, Ports, publish_event_on
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.nodeclaim.node_identity import NodeStatus, identify_nodes
from tenure.policy.lifecycle.repair import decide_breaker, is_unhealthy

_EVENT = "NodeRepairBlocked"


class CircuitBreaker:
    def __init__(self, ports: Ports) -> None:
        self._pools, self._claims, self._nodes, self._events = ports.pools, ports.claims, ports.nodes, ports.events

    async def check(
        self, claim: NodeClaim, node: NodeFact, pool: str, conditions: Collection[tuple[str, str]], max_unhealthy: str
    ) -> str:
        """Why no node may be repaired; empty if allowed. The Node, the NodeClaim and the NodePool get an event.

        `pool`: empty for a standalone NodeClaim.
        """
        why = await self._rejection_reason(pool, conditions, max_unhealthy)
        if why:
            scope = "nodepool" if pool else "cluster"
            message = f"more than {max_unhealthy} nodes are unhealthy in the {scope}: {why}"
            await publish_event_on(self._events, "Node", node, _EVENT, message)
            await publish_event_on(self._events, "NodeClaim", claim, _EVENT, message)
            nodepool = await self._pools.get(pool) if pool else None
            if nodepool is not None:
                await publish_event_on(self._events, "NodePool", nodepool, _EVENT, message)
        return why

    async def _rejection_reason(self, pool: str, conditions: Collection[tuple[str, str]], max_unhealthy: str) -> str:
        """A missing Node is unhealthy. For a standalone NodeClaim, the whole cluster counts (reference 3.11)."""
        selector = {labels.NODEPOOL: pool} if pool else None
        nodes = await self._nodes.list(labels=selector)
        claims = [one for one in await self._claims.list(labels=selector) if not one.metadata.is_deleting]
        identities = identify_nodes(claims, nodes).values()
        strangers = {node.name for one in identities for node in one.strangers}
        missing = sum(one.status is NodeStatus.MISSING for one in identities)
        counted = [node for node in nodes if node.name not in strangers]
        unhealthy = missing + sum(is_unhealthy(node, conditions) for node in counted)
        where = f"of NodePool {pool}" if pool else "of the cluster"
        return decide_breaker(unhealthy, missing + len(counted), max_unhealthy, where=where)
