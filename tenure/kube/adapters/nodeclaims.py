"""NodeClaims: implements the port `Claims`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from tenure.apis.labels import DO_NOT_DISRUPT, TERMINATION_FINALIZER, WORKFLOW_URL
from tenure.apis.nodeclaim import NodeClaim
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.patches import AnnotationPatcher, StatusObjects
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.provider_results import ConditionPatch

PageUrl = Callable[[str, str], str]
_IDENTITY: Final = ("name", "uid", "labels", "creationTimestamp", "deletionTimestamp", "finalizers")


class KubeNodeClaims(AnnotationPatcher):
    def __init__(self, client: KubeClient, events: KubeEvents, page_url: PageUrl | None = None) -> None:
        """`page_url`: the page of a NodeClaim's workflow, by name and UID, for an annotation."""
        self._page_url = page_url
        self._claims = StatusObjects(client, NODE_CLAIMS, events)
        super().__init__(self._claims)

    async def get(self, name: str) -> NodeClaim | None:
        return _read(await self._claims.get(name))

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[NodeClaim]:
        """An invalid NodeClaim has only its identity and conditions, and is protected from disruption."""
        return await self._claims.read_each(NodeClaim.from_object, _read_identity, labels)

    async def check_access(self) -> None:
        """Raises Fault if NodeClaims cannot be listed."""
        await self._claims.check_access()

    async def create(self, claim: NodeClaim) -> NodeClaim:
        return NodeClaim.from_object(await self._claims.create(claim.to_object()))

    async def ensure_finalizer(self, name: str, uid: str) -> bool:
        return await self._claims.add_finalizer(name, TERMINATION_FINALIZER, uid=uid)

    async def patch(
        self,
        name: str,
        uid: str,
        *,
        default_labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        now: datetime,
    ) -> NodeClaim | None:
        """Also writes the annotation with the page of the workflow, if it is missing."""
        item: Json | None = None
        url = self._page_url(name, uid) if self._page_url else ""
        own = {WORKFLOW_URL: url} if url else {}
        if default_labels or annotations:
            item = await self._claims.patch_metadata(
                name, uid=uid, default_labels=default_labels, annotations={**own, **(annotations or {})}
            )
            if item is None:
                return None
        if status or conditions:
            item = await self._claims.patch_status(name, uid=uid, status=status, conditions=conditions, now=now)
        if own and item and WORKFLOW_URL not in (item["metadata"].get("annotations") or {}):
            item = await self._claims.patch_metadata(name, uid=uid, annotations=own)
        return _read(item)

    async def patch_labels(self, name: str, uid: str, labels: Mapping[str, str | None]) -> bool:
        return await self._claims.patch_metadata(name, uid=uid, labels=labels) is not None

    async def delete(self, name: str, uid: str) -> bool:
        return await self._claims.delete(name, uid=uid)

    async def release(self, name: str, uid: str) -> bool:
        released = await self._claims.drop_finalizer(name, TERMINATION_FINALIZER, uid=uid)
        if released:
            await self._claims.publish(name, uid, "Finalized", f"Finalized {TERMINATION_FINALIZER}")
        return released


def _read_identity(item: Json) -> NodeClaim:
    metadata, status = item["metadata"], item.get("status") or {}
    conditions = status.get("conditions") or ()
    return NodeClaim.from_object(
        {
            "metadata": {
                **{key: metadata[key] for key in _IDENTITY if key in metadata},
                "annotations": {**(metadata.get("annotations") or {}), DO_NOT_DISRUPT: "true"},
            },
            "status": {
                **{key: status[key] for key in ("nodeName", "providerID") if key in status},
                "conditions": [{"type": one["type"], "status": one["status"]} for one in conditions],
            },
        }
    )


def _read(item: Json | None) -> NodeClaim | None:
    return NodeClaim.from_object(item) if item else None
