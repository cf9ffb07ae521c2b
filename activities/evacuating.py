"""Evacuation: pods of nodes that AWS takes back are told to go by whoever reads its word, before any workflow is asked.

Of hundreds of nodes at once that is two requests each; the way through a workflow, an activity and a live look costs
many times as much, and pods have two minutes. It does what the first look of the node's drain would do and nothing that
has to be remembered: the drain finds the taint and the pods on their way, and does the rest.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Evacuated:
    """`pods` were told to go, as `namespace/name`; `tell` says so of each."""

    pods: Sequence[str]
    evictor: Evictor

    async def tell(self) -> None:
        try:
            await self.evictor.tell()
        except Fault as fault:
            log.warning("evictions not said", pods=len(self.pods), fault=str(fault))


class Evacuation:
    def __init__(self, ports: DrainPorts) -> None:
        self._ports = ports
        self._begun: dict[str, datetime] = {}
        """By the Node's UID."""

    async def begin(self, leaving: Leaving) -> Evacuated | None:
        """Keep pods away from the node and evict those that are first. None where there was nothing to do; what goes
        wrong is the drain's to try again."""
        now = datetime.now(UTC)
        if not leaving.pods or not self._is_first(leaving.uid, now):
            return None
        asked = DrainAsked(claim=ClaimRef(name="", uid="", node_name=leaving.node))
        evictor = Evictor(self._ports, asked, "")
        try:
            async with asyncio.timeout(WITHIN):
                if await self._ports.nodes.mark_disrupted_at_once(leaving.node, leaving.uid, tainted=leaving.tainted):
                    await evictor.push(leaving.pods, deadline=None, known=None, now=now)
        except (Fault, TimeoutError) as error:
            log.warning("pods not told to go by the first word", node=leaving.node, error=str(error)[:300])
        pods = [f"{pod.namespace}/{pod.name}" for pod in evictor.evicted]
        return Evacuated(pods, evictor) if pods else None

    def _is_first(self, uid: str, now: datetime) -> bool:
        self._begun = {one: at for one, at in self._begun.items() if now - at < ONCE_IN}
        return self._begun.setdefault(uid, now) is now
