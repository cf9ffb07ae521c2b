"""Tells the Provisioning workflow of pods that need a node: what changed in the caches, or a time that came.

`session.py` lets it look after every burst of changes; `calling.py` decides when it is time.
"""

import time
from collections.abc import Callable
from datetime import datetime

from tenure.controller.cache.availability import Away
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty
from tenure.controller.cache.nominations import Nominations
from tenure.controller.capacity_buffers import Buffers
from tenure.controller.signals.pending_pods import Calls, told_apart, waiting_for
from tenure.model.observations import DemandSeen


class Asking:
    """`tell` is handed what there is to say."""

    def __init__(
        self,
        caches: Caches,
        nominations: Nominations,
        away: Away,
        buffers: Buffers | None,
        tell: Callable[[DemandSeen], None],
    ) -> None:
        self._caches, self._nominations, self._away, self._buffers = caches, nominations, away, buffers
        self._tell, self._calls = tell, Calls()
        self._lapse: datetime | None = None
        """When a pod is demand again though nothing changed."""

    @property
    def moments(self) -> list[datetime]:
        """When to look again though nothing changed."""
        return [one for one in (self._calls.again, self._lapse) if one is not None]

    def look(self, dirty: Dirty, now: datetime, *, known: bool) -> None:
        """`known`: all pods are."""
        self._calls.renew(waiting_for(self._caches, dirty.volume_claims))
        if known and (dirty.pods or any(one <= now for one in self.moments)):
            self._call(now)

    def _call(self, now: datetime) -> None:
        wants = told_apart(self._caches, self._nominations, self._away, now)
        self._lapse = wants.lapse
        short = self._buffers.short() if self._buffers else []
        demand = self._calls.decide([*wants.demand, *short], now, wants.waiting)
        if demand is not None:
            self._tell(demand.model_copy(update={"number": time.time_ns()}))
