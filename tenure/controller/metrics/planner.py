"""How long calls wait for their turn at AWS and at the API server, and what AWS refused: each count is a call.

The adapters know no metrics: they are handed these methods. Rates are those of `tenure/aws/client/rate_limiter.py`
and `tenure/kube/client/rate_limiter.py`.

How long plans take and how many pods they leave: Karpenter's metrics by their names, of the one provisioner.

A gauge of which only changes are told, and 0 of what is no more.

What a pass of voluntary disruption found of budgets, and how long it took, in the worker's metrics.

Names are Karpenter's where the meaning is (reference 5.1). Gauges are of the last pass of the process that hosts the
watch.

NodeClaims that this process made, by what for: Karpenter's counter by its name (reference 5.1).
"""

from collections.abc import Mapping
from typing import Final

from temporalio.common import MetricGauge, MetricGaugeFloat, MetricMeter

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.disruption.decision import METHODS, DisruptionBudgets

AWS: Final = "tenure_aws_call_wait_seconds"
THROTTLED: Final = "tenure_aws_throttled_total"
KUBERNETES: Final = "tenure_kubernetes_call_wait_seconds"
BUCKETS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper ends, in seconds."""


class CallMetrics:
    def __init__(self, meter: MetricMeter) -> None:
        self._aws = meter.create_histogram_float(AWS, "How long a call of AWS waited for its turn", "s")
        self._throttled = meter.create_counter(THROTTLED, "Calls that AWS refused as too many")
        self._kubernetes = meter.create_histogram_float(KUBERNETES, "How long a request waited for its turn", "s")

    def record_aws_wait(self, operation: str, seconds: float) -> None:
        self._aws.record(seconds, {"operation": operation})

    def record_throttled(self, operation: str) -> None:
        self._throttled.add(1, {"operation": operation})

    def record_kubernetes_wait(self, seconds: float) -> None:
        self._kubernetes.record(seconds)


DURATION: Final = "karpenter_scheduler_scheduling_duration_seconds"
UNSCHEDULABLE: Final = "karpenter_scheduler_unschedulable_pods_count"
DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends, in seconds; a planner that takes a minute is ended."""
_WHO: Final = {"controller": "provisioner"}


class PlanMetrics:
    def __init__(self, meter: MetricMeter) -> None:
        self._duration = meter.create_histogram_float(DURATION, "How long a plan for pending pods took", "s")
        self._unschedulable = meter.create_gauge(UNSCHEDULABLE, "Pods that the last plan found no node for")

    def record_plan(self, seconds: float, unschedulable: int) -> None:
        self._duration.record(seconds, _WHO)
        self._unschedulable.set(unschedulable, _WHO)

    def record_nothing_pending(self) -> None:
        self._unschedulable.set(0, _WHO)


class LabeledGauge:
    """`names`: its labels; what it shows has a value for each of them."""

    def __init__(self, gauge: MetricGauge | MetricGaugeFloat, *names: str) -> None:
        self._gauge, self._names = gauge, names
        self._recorded: Mapping[tuple[str, ...], float] = {}

    def record(self, now: Mapping[tuple[str, ...], float]) -> None:
        for label_values in now.keys() | self._recorded.keys():
            value = now.get(label_values, 0)
            if value != self._recorded.get(label_values, 0):
                # A gauge of whole numbers is given none but those.
                self._gauge.set(value, dict(zip(self._names, label_values, strict=True)))  # type: ignore[arg-type]
        self._recorded = dict(now)


ALLOWED: Final = "karpenter_nodepools_allowed_disruptions"
CONSUMING: Final = "karpenter_nodepools_nodes_consuming_budgets"
DISRUPTION_DURATION: Final = "tenure_disruption_pass_duration_seconds"
DISRUPTION_DURATION_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper ends, in seconds."""
_Key = tuple[str, str]


class DisruptionMetrics:
    def __init__(self, meter: MetricMeter) -> None:
        self._allowed = meter.create_gauge(ALLOWED, "Nodes that budgets let go now, by NodePool and reason")
        self._consuming = meter.create_gauge(CONSUMING, "Nodes that use budgets up: NotReady, or going")
        self._duration = meter.create_histogram_float(DISRUPTION_DURATION, "How long a pass over all nodes took", "s")
        self.last_pass_seconds = 0.0
        """Seconds that the last pass took."""
        self._recorded: dict[str, dict[_Key, int]] = {ALLOWED: {}, CONSUMING: {}}

    def record_pass(self, allowed_disruptions: DisruptionBudgets, consuming: Mapping[str, int], seconds: float) -> None:
        """`consuming`: nodes by NodePool; a budget counts them for every reason."""
        budgets = [
            (pool, method, budget)
            for pool, found in allowed_disruptions.pools.items()
            for method, budget in found.items()
        ]
        self._record(ALLOWED, {(pool, method): budget.allowed for pool, method, budget in budgets})
        self._record(
            CONSUMING, {(pool, one): consuming.get(pool, 0) for pool in allowed_disruptions.pools for one in METHODS}
        )
        self._duration.record(seconds)
        self.last_pass_seconds = seconds

    def close(self) -> None:
        """Another process tells from here on."""
        self._record(ALLOWED, {})
        self._record(CONSUMING, {})

    def _record(self, name: str, now: dict[_Key, int]) -> None:
        gauge, before = self._allowed if name == ALLOWED else self._consuming, self._recorded[name]
        for pool, method in now.keys() | before.keys():
            value = now.get((pool, method), 0)
            if value != before.get((pool, method)):
                gauge.set(value, {"nodepool": pool, "reason": method.lower()})
        self._recorded[name] = now


CREATED: Final = "karpenter_nodeclaims_created_total"
PROVISIONED: Final = "provisioned"
"""For pods that wait, or a static pool's replicas; a replacement counts for its disruption's reason, in lower case."""


class CreatedNodeClaimsCounter:
    def __init__(self, meter: MetricMeter) -> None:
        self._counter = meter.create_counter(CREATED, "NodeClaims that were made, by what for")

    def increment(self, claim: NodeClaim, reason: str = PROVISIONED) -> None:
        claim_labels, annotations = claim.metadata.labels, claim.metadata.annotations
        relaxed = annotations.get(labels.NODECLAIM_MIN_VALUES_RELAXED, "false")
        pool = claim_labels.get(labels.NODEPOOL, "")
        self._counter.add(1, {"reason": reason.lower(), "nodepool": pool, "min_values_relaxed": relaxed})
