"""Evacuation: pods of nodes that AWS takes back are told to go by whoever reads its word, before any workflow is asked.

Of hundreds of nodes at once that is two requests each; the way through a workflow, an activity and a live look costs
many times as much, and pods have two minutes. It does what the first look of the node's drain would do and nothing that
has to be remembered: the drain finds the taint and the pods on their way, and does the rest.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from activities.drain_ports import DrainPorts
from activities.evicting import Evictor
from activities.interruption_ports import Leaving
from model.faults import Fault
from model.steps import ClaimRef, DrainAsked

log = structlog.get_logger(__name__)

WITHIN: Final = 10.0
"""Seconds; after them the node's drain does what is left."""
ONCE_IN: Final = timedelta(minutes=2)
"""Of what is repeated nothing follows anew; a node that the first word left standing has its workflow by then."""


class NodeEvacuation:
    def __init__(self, ports: DrainPorts, leaving: Leaving) -> None:
        self._ports, self._leaving = ports, leaving
        asked = DrainAsked(claim=ClaimRef(name="", uid="", node_name=leaving.node))
        self._evictor = Evictor(ports, asked, "")

    async def run(self, within: float = WITHIN) -> None:
        """Keep pods away from the node and evict those that are first. What goes wrong is the drain's to try again."""
        node = self._leaving
        try:
            async with asyncio.timeout(within):
                now = datetime.now(UTC)
                if await self._ports.nodes.mark_evacuated(node.node, node.uid, tainted=node.tainted, at=now):
                    await self._evictor.push(node.pods, deadline=None, known=None, now=now)
        except (Fault, TimeoutError) as error:
            log.warning("pods not told to go by the first word", node=node.node, error=str(error)[:300])
        except Exception as error:
            log.error("node not evacuated; its drain does it", node=node.node, error=str(error)[:300])

    @property
    def pods(self) -> Sequence[str]:
        """Told to go so far, as `namespace/name`."""
        return [f"{pod.namespace}/{pod.name}" for pod in self._evictor.evicted]

    async def tell(self) -> None:
        """Say of each of them that it was evicted."""
        try:
            await self._evictor.tell()
        except Fault as fault:
            log.warning("evictions not said", node=self._leaving.node, fault=str(fault))


class Evacuation:
    def __init__(self, ports: DrainPorts) -> None:
        self._ports = ports
        self._begun: dict[str, datetime] = {}
        """By the Node's UID."""

    def of(self, leaving: Leaving) -> NodeEvacuation | None:
        """None where there is nothing to do, or where it was begun before."""
        now = datetime.now(UTC)
        if not leaving.pods or not self._is_first(leaving.uid, now):
            return None
        return NodeEvacuation(self._ports, leaving)

    def _is_first(self, uid: str, now: datetime) -> bool:
        self._begun = {one: at for one, at in self._begun.items() if now - at < ONCE_IN}
        return self._begun.setdefault(uid, now) is now
