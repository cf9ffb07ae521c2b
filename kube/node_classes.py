"""EC2NodeClasses. Satisfies `activities.ports.NodeClasses`; the NodeClass workflow keeps their status here."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from kube.client import KubeClient
from kube.events import KubeEvents
from kube.objects import Objects
from kube.patches import patch_metadata, patch_status
from kube.resources import EC2_NODE_CLASSES
from kube.turns import Teller
from model.kinds import EC2NodeClass
from model.labels import NODECLASS_CONDITIONS, NODECLASS_TERMINATION_FINALIZER
from model.outcomes import ConditionPatch


class KubeNodeClasses:
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._classes = Objects(client, EC2_NODE_CLASSES)
        self._teller = Teller(events, EC2_NODE_CLASSES.kind)

    async def get(self, name: str) -> EC2NodeClass | None:
        item = await self._classes.get(name)
        return EC2NodeClass.from_object(item) if item else None

    async def list(self) -> Sequence[EC2NodeClass]:
        return [EC2NodeClass.from_object(item) for item in await self._classes.list()]

    async def ensure_finalizer(self, name: str) -> bool:
        return await self._classes.add_finalizer(name, NODECLASS_TERMINATION_FINALIZER)

    async def patch_status(
        self,
        name: str,
        *,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        annotations: Mapping[str, str] | None = None,
        now: datetime,
    ) -> bool:
        """False when the EC2NodeClass is gone."""
        if annotations and await patch_metadata(self._classes, name, annotations=annotations) is None:
            return False
        item = await patch_status(
            self._classes,
            name,
            status=status,
            conditions=conditions,
            dependents=NODECLASS_CONDITIONS,
            now=now,
            teller=self._teller,
        )
        return item is not None

    async def release(self, name: str) -> bool:
        return await self._classes.drop_finalizer(name, NODECLASS_TERMINATION_FINALIZER)
