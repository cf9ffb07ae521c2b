"""How long plans take and how many pods they leave: Karpenter's metrics by their names, of the one provisioner."""

from typing import Final

from temporalio.common import MetricMeter

DURATION: Final = "karpenter_scheduler_scheduling_duration_seconds"
UNSCHEDULABLE: Final = "karpenter_scheduler_unschedulable_pods_count"
DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends, in seconds; a planner that takes a minute is ended."""
_WHO: Final = {"controller": "provisioner"}


class PlanMeasures:
    def __init__(self, meter: MetricMeter) -> None:
        self._duration = meter.create_histogram_float(DURATION, "How long a plan for pending pods took", "s")
        self._unschedulable = meter.create_gauge(UNSCHEDULABLE, "Pods that the last plan found no node for")

    def planned(self, seconds: float, unplaced: int) -> None:
        self._duration.record(seconds, _WHO)
        self._unschedulable.set(unplaced, _WHO)

    def nothing_pending(self) -> None:
        self._unschedulable.set(0, _WHO)
