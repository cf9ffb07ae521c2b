"""Pauses on their objects: the annotation that says so to everybody, and an event.

It stands beside the workflow's own state so that a pause outlives the loss of Temporal's store.
"""

from collections.abc import Mapping
from typing import Protocol

from temporalio import activity

from activities.errors import faults_mapped
from activities.ports import Events
from model.labels import PAUSE
from model.pauses import MirrorAsked


class Annotated(Protocol):
    """Objects of a kind that carry annotations; the adapters of Nodes, NodeClaims, NodePools and Namespaces are."""

    async def annotate(
        self,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str = "",
        only: Mapping[str, str] | None = None,
    ) -> str:
        """Set annotations; None takes one off. Nothing is changed where an annotation is not as `only` has it. The UID
        of the object, empty when it, or the one with this UID, is gone."""
        ...


class PauseActivities:
    def __init__(
        self,
        *,
        claims: Annotated,
        nodes: Annotated,
        pools: Annotated,
        namespaces: Annotated,
        events: Events,
        namespace: str,
    ) -> None:
        """`namespace`: the worker's own, which carries a pause of the whole cluster."""
        self._claims, self._nodes, self._pools, self._namespaces = claims, nodes, pools, namespaces
        self._events, self._namespace = events, namespace

    @activity.defn
    @faults_mapped
    async def mirror_pause(self, asked: MirrorAsked) -> None:
        """Write the pause down, or take it off, and say so."""
        objects, kind, name = self._of(asked)
        wanted = {PAUSE: asked.text or None} if asked.write else {}
        only = {PAUSE: asked.only} if asked.only else None
        uid = await objects.annotate(name, wanted, uid=asked.uid, only=only)
        if asked.write and asked.node_name:
            # The NodeClaim's counts; one on its Node would stay, and hold, when that is gone.
            await self._nodes.annotate(asked.node_name, {PAUSE: None}, only=only)
        if uid and asked.event:
            await self._events.publish(
                kind=kind, name=name, uid=uid, reason=asked.event, message=asked.message, warning=asked.warning
            )

    def _of(self, asked: MirrorAsked) -> tuple[Annotated, str, str]:
        match asked.kind:
            case "Cluster":
                return self._namespaces, "Namespace", self._namespace
            case "NodePool":
                return self._pools, "NodePool", asked.name
            case "NodeClaim":
                return self._claims, "NodeClaim", asked.name
