"""A gauge of the NodeClaims that are overdue, by phase and NodePool, from the condition that stands on each.

Told by the process that hosts the watch. The condition outlives any worker, so a restart forgets none; what is overdue
no more goes back to 0, also in a process that hosts the watch no more.
"""

from collections import Counter
from typing import Final

from temporalio.common import MetricMeter

from controller.caches import Caches
from controller.dirty import Dirty

NAME: Final = "tenure_nodeclaims_overdue"
_Place = tuple[str, str]
"""Phase and NodePool."""


class OverdueGauges:
    def __init__(self, caches: Caches, meter: MetricMeter) -> None:
        self._caches = caches
        self._gauge = meter.create_gauge(NAME, "NodeClaims in a phase that is past its deadline, and are kept")
        self._overdue: dict[str, _Place] = {}
        """By NodeClaim."""
        self._shown: Counter[_Place] = Counter()

    def look(self, dirty: Dirty) -> None:
        """At NodeClaims that changed, or are gone."""
        for claim in dirty.gone_claims.values():
            self._overdue.pop(claim.name, None)
        for name in dirty.claims:
            found = self._caches.claims.get(name)
            if found is not None and found.overdue:
                self._overdue[name] = (found.overdue, found.pool)
            else:
                self._overdue.pop(name, None)
        self._show(Counter(self._overdue.values()))

    def close(self) -> None:
        """Another process tells from here on."""
        self._overdue.clear()
        self._show(Counter())

    def _show(self, now: Counter[_Place]) -> None:
        for place in now.keys() | self._shown.keys():
            if now[place] != self._shown[place]:
                phase, pool = place
                self._gauge.set(now[place], {"phase": phase, "nodepool": pool})
        self._shown = now
