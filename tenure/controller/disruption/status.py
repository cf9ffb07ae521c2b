"""Publishes blockers of disruption as events, and writes the status of NodeOverlays."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Protocol

import structlog

from activities.ports.core import Events
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.kube.client.resources import NODE_CLAIMS, NODE_OVERLAYS
from tenure.model.disruption.decision import Cause, Decision, NodeVerdict
from tenure.model.errors import Fault
from tenure.model.invalid_objects import ObjectKey
from tenure.model.nodeoverlays import OverlayFact
from tenure.scheduling.nodeoverlays import OverlayValidation

BLOCKED: Final = "DisruptionBlocked"
UNCONSOLIDATABLE: Final = "Unconsolidatable"
TRANSIENT_CAUSES: Final[frozenset[Cause]] = frozenset(
    {"NoNode", "NotInitialized", "Deleting", "InProgress", "Nominated", "Resting", "TooYoung", "Policy", "StaticPool"}
)
"""Causes that occur in every node's lifecycle or follow from its NodePool: counted and shown, but without an event."""
MAX_EVENTS: Final = 50
"""Nodes with events in one burst; the others follow after EVENT_PAUSE_SECONDS."""
EVENT_PAUSE_SECONDS: Final = 10.0
_NAMED: Final = 3
_EventText = tuple[str, str]
"""Reason and message. Unconsolidatable has no message here, since the figures of simulations change constantly."""


class VerdictReporter:
    """Call `update` after each pass; run `run` in a task."""

    def __init__(self, cache: ClusterCache, events: Events) -> None:
        self._cache, self._events = cache, events
        self.last: Decision | None = None
        self._published: dict[str, _EventText] = {}
        """By NodeClaim, the last event."""
        self._updated = asyncio.Event()

    def update(self, decision: Decision) -> None:
        self.last = decision
        self._updated.set()

    async def run(self) -> None:
        while True:
            await self._updated.wait()
            self._updated.clear()
            if not await self.publish_events():
                await asyncio.sleep(EVENT_PAUSE_SECONDS)
                self._updated.set()

    async def publish_events(self) -> bool:
        """Publish an event for each node whose text differs from its last event. False when some remain."""
        verdicts = {one.claim: one for one in self.last.nodes} if self.last else {}
        self._published = {name: event_text for name, event_text in self._published.items() if name in verdicts}
        remaining = MAX_EVENTS
        for name, one in verdicts.items():
            if not remaining:
                return False
            with self._cache.invalid_objects.guard(ObjectKey(NODE_CLAIMS.kind, name, step="disruption event")):
                remaining -= await self._publish_change(name, one)
        return True

    async def _publish_change(self, name: str, one: NodeVerdict) -> bool:
        """Whether the text differs from the last event."""
        reason, message = _event_text(one)
        event_text = (reason, "" if reason == UNCONSOLIDATABLE else message)
        if not reason:
            self._published.pop(name, None)
        if not reason or self._published.get(name) == event_text:
            return False
        await self._publish(one, reason, message)
        self._published[name] = event_text
        return True

    async def _publish(self, one: NodeVerdict, reason: str, message: str) -> None:
        claim, node = self._cache.nodeclaims.get(one.claim), self._cache.nodes.get(one.node)
        if claim is not None:
            await self._events.publish(kind="NodeClaim", name=claim.name, uid=claim.uid, reason=reason, message=message)
        if node is not None:
            await self._events.publish(kind="Node", name=node.name, uid=node.uid, reason=reason, message=message)


def _event_text(one: NodeVerdict) -> tuple[str, str]:
    """Karpenter's event reason, and a message; empty if there is nothing to report."""
    messages = list(
        dict.fromkeys(
            ineligibility.message for ineligibility in one.excluded if ineligibility.cause not in TRANSIENT_CAUSES
        )
    )
    if messages:
        more = f"; and {len(messages) - _NAMED} more" if len(messages) > _NAMED else ""
        return BLOCKED, "; ".join(messages[:_NAMED]) + more
    if one.rejected and not one.excluded:
        return UNCONSOLIDATABLE, one.rejected[0]
    return "", ""


log = structlog.get_logger(__name__)


class Overlays(Protocol):
    """Status of NodeOverlays; `kube.overlays` implements it."""

    async def write_validation(
        self, name: str, uid: str, *, reason: str = "", message: str = "", now: datetime
    ) -> bool:
        """Write the validation; an empty reason means that the overlay is valid. An unchanged status is not written.
        False when the NodeOverlay is gone."""
        ...


class OverlayStatusWriter:
    def __init__(self, cache: ClusterCache, overlays: Overlays, now: Callable[[], datetime]) -> None:
        self._cache, self._overlays, self._now = cache, overlays, now
        self._written: dict[str, tuple[str, int, OverlayValidation]] = {}

    async def write(self, validations: Mapping[str, OverlayValidation]) -> None:
        """Write each validation once per generation of the cached overlay. Faults are logged."""
        self._written = {name: written for name, written in self._written.items() if name in validations}
        for name, validation in validations.items():
            known = self._cache.overlays.get(name)
            if known is None or self._written.get(name) == (known.uid, known.generation, validation):
                continue
            with self._cache.invalid_objects.guard(ObjectKey(NODE_OVERLAYS.kind, name, known.uid, "status")):
                await self._write(known, validation)

    async def _write(self, known: OverlayFact, validation: OverlayValidation) -> None:
        name, reason, message = known.name, validation.reason, validation.message
        try:
            await self._overlays.write_validation(name, known.uid, reason=reason, message=message, now=self._now())
        except Fault as fault:
            log.warning("status of a NodeOverlay not written", name=name, fault=str(fault))
            return
        self._written[name] = (known.uid, known.generation, validation)
        if reason:
            log.warning("NodeOverlay rejected", name=name, reason=reason, error=message)
