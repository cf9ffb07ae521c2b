"""What voluntary disruption thinks of each node, made visible: events where it changes, and gauges by reason and cause.

`disrupting.py` hands over every pass; events are sent behind its back. `tenure why` and `tenure plan` show the last.

The planner's verdicts on NodeOverlays, written onto them: once for each that is new or other than before.

`planning.py` hands them over whenever they may have changed; what could not be written is tried again next time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Protocol

import structlog
from temporalio.common import MetricGauge, MetricMeter

from activities.ports.core import Events
from tenure.controller.cache.cluster_cache import Caches
from tenure.model.disruption.planning import METHODS, Cause, Decision, NodeVerdict
from tenure.model.errors import Fault
from tenure.scheduling.nodeoverlays import Verdict

ELIGIBLE: Final = "karpenter_voluntary_disruption_eligible_nodes"
EXCLUDED: Final = "tenure_disruption_excluded_nodes"
BLOCKED: Final = "DisruptionBlocked"
UNCONSOLIDATABLE: Final = "Unconsolidatable"
PASSING: Final[frozenset[Cause]] = frozenset(
    {"NoNode", "NotInitialized", "Deleting", "InProgress", "Nominated", "Resting", "TooYoung", "Policy", "StaticPool"}
)
"""Parts of every node's life, or what its NodePool says anyway: counted and shown, but no event."""
MOST: Final = 50
"""Nodes that events are sent of at once; the others follow after a pause."""
PAUSE: Final = 10.0
"""Seconds."""
_NAMED: Final = 3
_Said = tuple[str, str]
"""Reason and message; of what a simulation found only the reason, since its figures change all the time."""


class Verdicts:
    """`take` after each pass; run `run` in a task."""

    def __init__(self, caches: Caches, events: Events, meter: MetricMeter) -> None:
        self._caches, self._events = caches, events
        self._eligible = meter.create_gauge(ELIGIBLE, "Nodes that could be disrupted voluntarily, by reason")
        self._excluded = meter.create_gauge(EXCLUDED, "Nodes that are kept from voluntary disruption, by cause")
        self.last: Decision | None = None
        self._said: dict[str, _Said] = {}
        """By NodeClaim, where an event was sent."""
        self._shown: dict[str, Counter[str]] = {ELIGIBLE: Counter(), EXCLUDED: Counter()}
        self._news = asyncio.Event()

    def take(self, decision: Decision) -> None:
        """What a pass found."""
        self.last = decision
        self._show(self._eligible, ELIGIBLE, "reason", _by_reason(decision))
        self._show(self._excluded, EXCLUDED, "cause", decision.causes)
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if not await self.say():
                    await asyncio.sleep(PAUSE)
                    self._news.set()
        finally:
            self.close()

    async def say(self) -> bool:
        """Events of nodes of which something else was said last, or nothing. False when some are left."""
        verdicts = {one.claim: one for one in self.last.nodes} if self.last else {}
        self._said = {name: said for name, said in self._said.items() if name in verdicts}
        left = MOST
        for name, one in verdicts.items():
            reason, message = _words(one)
            said = (reason, "" if reason == UNCONSOLIDATABLE else message)
            if not reason:
                self._said.pop(name, None)
            elif self._said.get(name) != said:
                if not left:
                    return False
                left -= 1
                self._said[name] = said
                await self._publish(one, reason, message)
        return True

    def close(self) -> None:
        """Another process tells from here on."""
        self._show(self._eligible, ELIGIBLE, "reason", Counter())
        self._show(self._excluded, EXCLUDED, "cause", Counter())

    async def _publish(self, one: NodeVerdict, reason: str, message: str) -> None:
        claim, node = self._caches.claims.get(one.claim), self._caches.nodes.get(one.node)
        if claim is not None:
            await self._events.publish(kind="NodeClaim", name=claim.name, uid=claim.uid, reason=reason, message=message)
        if node is not None:
            await self._events.publish(kind="Node", name=node.name, uid=node.uid, reason=reason, message=message)

    def _show(self, gauge: MetricGauge, name: str, label: str, now: Mapping[str, int]) -> None:
        before = self._shown[name]
        for key in now.keys() | before.keys():
            if now.get(key, 0) != before[key]:
                gauge.set(now.get(key, 0), {label: key})
        self._shown[name] = Counter(now)


def _words(one: NodeVerdict) -> tuple[str, str]:
    """Karpenter's reason of an event and a sentence; empty where there is nothing to say."""
    lasting = list(dict.fromkeys(said.words for said in one.excluded if said.cause not in PASSING))
    if lasting:
        more = f"; and {len(lasting) - _NAMED} more" if len(lasting) > _NAMED else ""
        return BLOCKED, "; ".join(lasting[:_NAMED]) + more
    if one.rejected and not one.excluded:
        return UNCONSOLIDATABLE, one.rejected[0]
    return "", ""


def _by_reason(decision: Decision) -> dict[str, int]:
    """As Karpenter writes them; all of them, so that zero is told too."""
    found = Counter(method for one in decision.nodes for method in one.eligible)
    return {method.lower(): found[method] for method in METHODS}


log = structlog.get_logger(__name__)


class Overlays(Protocol):
    """NodeOverlays' status; `kube.overlays` satisfies it."""

    async def say(self, name: str, uid: str, *, reason: str = "", message: str = "", now: datetime) -> bool:
        """An empty reason: it is heeded. Nothing is written where nothing changes. False when it is gone."""
        ...


class OverlayVerdicts:
    def __init__(self, caches: Caches, overlays: Overlays, now: Callable[[], datetime]) -> None:
        self._caches, self._overlays, self._now = caches, overlays, now
        self._said: dict[str, tuple[str, int, Verdict]] = {}

    async def say(self, verdicts: Mapping[str, Verdict]) -> None:
        """A verdict speaks of the overlay as it stands in the caches. Faults are logged."""
        self._said = {name: said for name, said in self._said.items() if name in verdicts}
        for name, verdict in verdicts.items():
            known = self._caches.overlays.get(name)
            if known is None or self._said.get(name) == (known.uid, known.generation, verdict):
                continue
            try:
                await self._overlays.say(
                    name, known.uid, reason=verdict.reason, message=verdict.message, now=self._now()
                )
            except Fault as fault:
                log.warning("status of a NodeOverlay not written", name=name, fault=str(fault))
                continue
            self._said[name] = (known.uid, known.generation, verdict)
            if verdict.reason:
                log.warning("NodeOverlay is not heeded", name=name, reason=verdict.reason, message=verdict.message)
