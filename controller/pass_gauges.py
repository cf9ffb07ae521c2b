"""What a pass of voluntary disruption found of budgets, and how long it took, in the worker's metrics.

Names are Karpenter's where the meaning is (reference 5.1). Gauges are of the last pass of the process that hosts the
watch.
"""

from collections.abc import Mapping
from typing import Final

from temporalio.common import MetricMeter

from model.disruption import METHODS, Allowances

ALLOWED: Final = "karpenter_nodepools_allowed_disruptions"
CONSUMING: Final = "karpenter_nodepools_nodes_consuming_budgets"
DURATION: Final = "tenure_disruption_pass_duration_seconds"
DURATION_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper ends, in seconds."""
_Key = tuple[str, str]


class PassGauges:
    def __init__(self, meter: MetricMeter) -> None:
        self._allowed = meter.create_gauge(ALLOWED, "Nodes that budgets let go now, by NodePool and reason")
        self._consuming = meter.create_gauge(CONSUMING, "Nodes that use budgets up: NotReady, or going")
        self._duration = meter.create_histogram_float(DURATION, "How long a pass over all nodes took", "s")
        self.took = 0.0
        """Seconds that the last pass took."""
        self._shown: dict[str, dict[_Key, int]] = {ALLOWED: {}, CONSUMING: {}}

    def take(self, allowances: Allowances, consuming: Mapping[str, int], seconds: float) -> None:
        """`consuming`: nodes by NodePool; a budget counts them for every reason."""
        rooms = [(pool, method, room) for pool, found in allowances.pools.items() for method, room in found.items()]
        self._show(ALLOWED, {(pool, method): room.allowed for pool, method, room in rooms})
        self._show(CONSUMING, {(pool, one): consuming.get(pool, 0) for pool in allowances.pools for one in METHODS})
        self._duration.record(seconds)
        self.took = seconds

    def close(self) -> None:
        """Another process tells from here on."""
        self._show(ALLOWED, {})
        self._show(CONSUMING, {})

    def _show(self, name: str, now: dict[_Key, int]) -> None:
        gauge, before = self._allowed if name == ALLOWED else self._consuming, self._shown[name]
        for pool, method in now.keys() | before.keys():
            value = now.get((pool, method), 0)
            if value != before.get((pool, method)):
                gauge.set(value, {"nodepool": pool, "reason": method.lower()})
        self._shown[name] = now
