"""NodePools. Satisfies `activities.ports.Pools`; the NodePool workflow keeps their status here."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from kube.client import KubeClient
from kube.events import KubeEvents
from kube.objects import Objects
from kube.patches import Annotating, patch_metadata, patch_status
from kube.resources import NODE_POOLS
from kube.turns import Teller
from model.kinds import NodePool
from model.labels import NODEPOOL_CONDITIONS
from model.outcomes import ConditionPatch


class KubePools(Annotating):
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._pools = Objects(client, NODE_POOLS)
        super().__init__(self._pools)
        self._teller = Teller(events, NODE_POOLS.kind)

    async def get(self, name: str) -> NodePool | None:
        item = await self._pools.get(name)
        return NodePool.from_object(item) if item else None

    async def list(self) -> Sequence[NodePool]:
        return [NodePool.from_object(item) for item in await self._pools.list()]

    async def patch_status(
        self,
        name: str,
        *,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        annotations: Mapping[str, str] | None = None,
        now: datetime,
    ) -> bool:
        """False when the NodePool is gone."""
        if annotations and await patch_metadata(self._pools, name, annotations=annotations) is None:
            return False
        item = await patch_status(
            self._pools,
            name,
            status=status,
            conditions=conditions,
            dependents=NODEPOOL_CONDITIONS,
            now=now,
            teller=self._teller,
        )
        return item is not None
