"""Reports invalid objects: an event on each object, a metric, and the list that `tenure stuck` and `doctor` show."""

import asyncio
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.ports.core import Events
from tenure import metrics
from tenure.clock import CLOCK, Clock, wait_until_set
from tenure.controller.cache.changes import ChangeBatch
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.settings import ControllerSettings
from tenure.controller.signals.digests import short_hash
from tenure.controller.signals.signaller import Signal, SignalQueue
from tenure.kube.client.resources import PODS
from tenure.metrics import GaugeFamily, Meter
from tenure.model.errors import InvalidObject
from tenure.model.invalid_objects import INVALID_ANNOTATION, ObjectKey
from workflows import ids

log = structlog.get_logger(__name__)

REPEAT_AFTER: Final = timedelta(hours=1)
"""Kubernetes deletes events after an hour."""
_POD_EFFECT: Final = "no node is planned for it, and its node is protected from voluntary disruption until it is fixed"
_EFFECT: Final = "its last known state is used until it is fixed"
INVALID_CLOCK: Final = "InvalidClock"


class ClockError(ValueError):
    """The clock of this worker is wrong; its code is `INVALID_CLOCK`."""


class InvalidObjectReporter:
    def __init__(
        self,
        settings: ControllerSettings,
        cache: ClusterCache,
        events: Events,
        signal_queue: SignalQueue,
        meter: Meter,
        now: Callable[[], datetime],
        *,
        clock: Clock = CLOCK,
    ) -> None:
        self._worker = ObjectKey(PODS.kind, f"{settings.namespace}/{socket.gethostname()}", step="clock")
        """The pod of this worker, on which a wrong clock is reported."""
        self._clock = clock
        self._workflow_id, self._cache, self._events = ids.watch(settings.cluster), cache, events
        self._signal_queue, self._now = signal_queue, now
        self._gauge = GaugeFamily(metrics.INVALID_OBJECTS, meter)
        self._published: dict[ObjectKey, tuple[InvalidObject, datetime]] = {}
        self._changed = asyncio.Event()

    def on_changes(self, _: ChangeBatch) -> None:
        invalid = self._cache.invalid_objects
        with invalid.guard(self._worker):
            if problem := self._clock.describe_offset():
                raise ClockError(problem)
        if not invalid.take_changed():
            return
        self._gauge.record(invalid.count())
        report = invalid.report()
        if report.objects or self._signal_queue.last_digest(self._workflow_id):
            digest = short_hash(report.model_dump_json())
            self._signal_queue.enqueue(Signal(self._workflow_id, "report_invalid_objects", report, digest))
        self._changed.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await wait_until_set(self._changed, self._seconds_until_repeat())
            self._changed.clear()
            await self.publish_events()

    def _seconds_until_repeat(self) -> float | None:
        """None while no object is invalid."""
        repeats = [at + REPEAT_AFTER for _, at in self._published.values()]
        return max((min(repeats) - self._now()).total_seconds(), 0.0) if repeats else None

    async def publish_events(self) -> None:
        """Publish an event for each object whose problem changed, or was last published an hour ago."""
        found, now = self._cache.invalid_objects.items(), self._now()
        self._published = {key: one for key, one in self._published.items() if key in found}
        for key, one in found.items():
            published, at = self._published.get(key, (None, now))
            if one == published and now - at < REPEAT_AFTER:
                continue
            self._published[key] = one, now
            log.error("object is invalid", step=key.step, **one.model_dump())
            with self._cache.invalid_objects.guard(key._replace(step="event")):
                await self._events.publish(
                    kind=one.kind,
                    name=key.object_name,
                    namespace=key.namespace,
                    uid=key.uid,
                    reason="InvalidObject",
                    message=_with_effect(one),
                )

    def close(self) -> None:
        self._gauge.record({})


def _with_effect(one: InvalidObject) -> str:
    if one.reason in (INVALID_ANNOTATION, INVALID_CLOCK):
        return one.message
    return f"{one.message}; {_POD_EFFECT if one.kind == PODS.kind else _EFFECT}"
