"""Declares every metric of the worker; docs/reference/metrics.md is generated from it.

Metrics with the prefix `karpenter_` have the meaning of Karpenter's metrics (reference 5.1). Code records values with
`Metric.record` or `Metric.bind`, which reject undeclared labels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol


class Meter(Protocol):
    """The used part of `temporalio.common.MetricMeter`."""

    def create_counter(self, name: str, description: str | None = None, unit: str | None = None) -> Any: ...

    def create_gauge_float(self, name: str, description: str | None = None, unit: str | None = None) -> Any: ...

    def create_histogram_float(self, name: str, description: str | None = None, unit: str | None = None) -> Any: ...


class Recorder:
    """A metric of a meter."""

    def __init__(self, metric: "Metric", meter: Meter) -> None:
        self._labels = set(metric.labels)
        unit = "s" if metric.name.endswith("_seconds") else None
        match metric.kind:
            case "counter":
                self._record: Callable[[Any, Mapping[str, str]], None] = meter.create_counter(
                    metric.name, metric.description, unit
                ).add
            case "gauge":
                self._record = meter.create_gauge_float(metric.name, metric.description, unit).set
            case "histogram":
                self._record = meter.create_histogram_float(metric.name, metric.description, unit).record

    def record(self, value: float = 1, /, **labels: str) -> None:
        """Add `value` to a counter or histogram, or set a gauge.

        A negative value, such as a limit that a user wrote, counts as 0, because the SDK rejects it."""
        if labels.keys() != self._labels:
            raise ValueError(f"labels {sorted(labels)} are not {sorted(self._labels)}")
        self._record(max(value, 0), labels)


@dataclass(frozen=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    description: str
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in seconds."""

    def bind(self, meter: Meter) -> Recorder:
        return Recorder(self, meter)

    def record(self, meter: Meter, value: float = 1, /, **labels: str) -> None:
        Recorder(self, meter).record(value, **labels)


class GaugeFamily:
    """Records only changes of a gauge, and 0 for label values that disappear.

    `records_zero`: also record a first value of 0."""

    def __init__(self, metric: Metric, meter: Meter, *, records_zero: bool = False) -> None:
        self._names, self._recorder, self._unset = metric.labels, metric.bind(meter), None if records_zero else 0
        self._recorded: Mapping[tuple[str, ...], float] = {}

    def record(self, now: Mapping[tuple[str, ...], float]) -> None:
        """`now`: values by label values, in the order of the declared labels."""
        for label_values in now.keys() | self._recorded.keys():
            value = now.get(label_values, 0)
            if value != self._recorded.get(label_values, self._unset):
                self._recorder.record(value, **dict(zip(self._names, label_values, strict=True)))
        self._recorded = dict(now)


def _counter(name: str, labels: str, description: str) -> Metric:
    return Metric(name, "counter", tuple(labels.split()), description)


def _gauge(name: str, labels: str, description: str) -> Metric:
    return Metric(name, "gauge", tuple(labels.split()), description)


def _histogram(name: str, labels: str, description: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name, "histogram", tuple(labels.split()), description, buckets)


_DECISION: Final = "decision reason consolidation_type"
_DISRUPTION: Final = "reason nodepool capacity_type consolidation_policy termination_mode"
_OFFERING: Final = "instance_type capacity_type zone"
_TERMINATION_BUCKETS: Final = tuple(float(2**power) for power in range(12))
"""The buckets of Karpenter's metric of NodeClaims."""
_POD_BUCKETS: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0)
_REBOOT_BUCKETS: Final = tuple(10.0 * 2**power for power in range(8))
"""Karpenter's buckets, 10 s to 1280 s."""
_CALL_BUCKETS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

CLOUDPROVIDER_INSTANCE_LAUNCH_FAILURES = _counter(
    "karpenter_cloudprovider_instance_launch_failures_total",
    "zone zone_id capacity_type reason",
    "errors in CreateFleet responses; the reason is EC2's code",
)
CLOUDPROVIDER_INSTANCE_TYPE_CPU_CORES = _gauge(
    "karpenter_cloudprovider_instance_type_cpu_cores", "instance_type", "vCPUs of a type"
)
CLOUDPROVIDER_INSTANCE_TYPE_MEMORY_BYTES = _gauge(
    "karpenter_cloudprovider_instance_type_memory_bytes", "instance_type", "memory that planning uses"
)
CLOUDPROVIDER_INSTANCE_TYPE_OFFERING_AVAILABLE = _gauge(
    "karpenter_cloudprovider_instance_type_offering_available",
    _OFFERING,
    "1 if an EC2NodeClass can launch the offering",
)
CLOUDPROVIDER_INSTANCE_TYPE_OFFERING_PRICE_ESTIMATE = _gauge(
    "karpenter_cloudprovider_instance_type_offering_price_estimate", _OFFERING, "US dollars per hour"
)
EC2NODECLASSES_USERDATA_BYTES = _gauge(
    "karpenter_ec2nodeclasses_userdata_bytes", "nodeclass", "bytes of user data; EC2 accepts 16384"
)
INTERRUPTION_DELETED_MESSAGES = _counter("karpenter_interruption_deleted_messages_total", "", "messages deleted")
INTERRUPTION_INSTANCE_STATUS_UNHEALTHY = _counter(
    "karpenter_interruption_instance_status_unhealthy_total", "category", "unhealthy instance statuses reported by EC2"
)
INTERRUPTION_MESSAGE_QUEUE_DURATION = _histogram(
    "karpenter_interruption_message_queue_duration_seconds",
    "",
    "time from an event to its processing",
    (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 86400.0),
)
INTERRUPTION_RECEIVED_MESSAGES = _counter(
    "karpenter_interruption_received_messages_total", "message_type", "messages received"
)
NODECLAIMS_CREATED = _counter(
    "karpenter_nodeclaims_created_total",
    "reason nodepool min_values_relaxed",
    "NodeClaims created: `provisioned`, or the disruption reason",
)
NODECLAIMS_DISRUPTED = _counter(
    "karpenter_nodeclaims_disrupted_total",
    _DISRUPTION,
    "NodeClaims deleted for a disruption, a deadline or an AWS event",
)
NODECLAIMS_TERMINATED = _counter(
    "karpenter_nodeclaims_terminated_total", "nodepool capacity_type zone", "terminated NodeClaims"
)
NODECLAIMS_TERMINATION_DURATION = _histogram(
    "karpenter_nodeclaims_termination_duration_seconds",
    "nodepool",
    "termination time of NodeClaims, including the drain",
    _TERMINATION_BUCKETS,
)
NODECLAIMS_UNHEALTHY_DISRUPTED = _counter(
    "karpenter_nodeclaims_unhealthy_disrupted_total",
    "condition nodepool capacity_type image_id termination_mode",
    "NodeClaims deleted because their node was unhealthy; the mode follows the bound of the repair",
)
NODEPOOLS_ALLOWED_DISRUPTIONS = _gauge(
    "karpenter_nodepools_allowed_disruptions", "nodepool reason", "disruptions that budgets allow now"
)
NODEPOOLS_COST_TOTAL = _gauge(
    "karpenter_nodepools_cost_total", "nodepool", "US dollars per hour for a pool's launched instances"
)
NODEPOOLS_LIMIT = _gauge("karpenter_nodepools_limit", "nodepool resource_type", "limits of a pool")
NODEPOOLS_NODES_CONSUMING_BUDGETS = _gauge(
    "karpenter_nodepools_nodes_consuming_budgets", "nodepool reason", "nodes that consume budgets"
)
NODEPOOLS_USAGE = _gauge(
    "karpenter_nodepools_usage", "nodepool resource_type", "capacity of a pool's nodes: cores, bytes, counts"
)
NODES_CREATED = _counter("karpenter_nodes_created_total", "nodepool zone", "Nodes that registered, or were adopted")
NODES_DRAINED = _counter("karpenter_nodes_drained_total", "nodepool", "nodes without remaining pods and volumes")
NODES_REBOOTS = _counter("karpenter_nodes_reboots_total", "result", "ended reboots of unhealthy nodes")
NODES_REBOOT_DURATION = _histogram(
    "karpenter_nodes_reboot_duration_seconds", "result", "reboots, from the decision to the end", _REBOOT_BUCKETS
)
NODES_REBOOT_RECOVERY_DURATION = _histogram(
    "karpenter_nodes_reboot_recovery_duration_seconds",
    "",
    "reboots that helped, from the request to EC2 to the recovery",
    _REBOOT_BUCKETS,
)
NODES_TERMINATED = _counter("karpenter_nodes_terminated_total", "nodepool zone", "terminated Nodes")
NODES_TERMINATION_DURATION = _histogram(
    "karpenter_nodes_termination_duration_seconds",
    "nodepool",
    "termination time of registered Nodes",
    _TERMINATION_BUCKETS,
)
POD_DELETION_COST_NODES_PENDING = _gauge(
    "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes",
    "nodepool",
    "nodes whose pods do not have their deletion cost yet",
)
POD_DELETION_COST_WRITES = _counter(
    "karpenter_pod_deletion_cost_pod_annotation_writes_total",
    "result",
    "deletion costs: `updated`, `skipped_unchanged`, `skipped_notfound`, `skipped_conflict` or `error`",
)
PODS_STARTUP_DURATION = _histogram(
    "karpenter_pods_startup_duration_seconds", "", "time from the creation of a pod until it is Ready", _POD_BUCKETS
)
PODS_BOUND_DURATION = _histogram(
    "karpenter_pods_bound_duration_seconds", "", "time from the creation of a pod until it is bound", _POD_BUCKETS
)
PODS_DISRUPTION_INITIATED = _counter(
    "karpenter_pods_disruption_initiated_total",
    _DISRUPTION,
    "pods that had to leave the nodes of disrupted NodeClaims when the drain started",
)
PODS_DRAINED = _counter("karpenter_pods_drained_total", "reason", "pods evicted or deleted by drains")
PODS_EVICTION_REQUESTS = _counter(
    "karpenter_pods_eviction_requests_total",
    "code",
    "eviction requests by HTTP status, also failed ones",
)
SCHEDULER_SCHEDULING_DURATION = _histogram(
    "karpenter_scheduler_scheduling_duration_seconds",
    "controller",
    "duration of a plan: `provisioner`",
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
NODES_UNUSED = _counter(
    "tenure_nodes_unused_total",
    "nodepool",
    "nodes deleted after initialization without any pod that a node was launched for",
)
SCHEDULER_UNSCHEDULABLE_PODS_COUNT = _gauge(
    "karpenter_scheduler_unschedulable_pods_count", "controller", "pods without a node in the last plan"
)
TERMINATE_FIRST_DECISIONS = _counter(
    "karpenter_voluntary_disruption_terminate_first_decisions_total",
    "nodepool reason terminate_first_reason",
    "nodes deleted before their replacement was launched",
)
VOLUNTARY_DISRUPTION_DECISIONS_BY_NODEPOOL = _counter(
    "karpenter_voluntary_disruption_decisions_by_nodepool_total", f"nodepool {_DECISION}", "decisions by NodePool"
)
VOLUNTARY_DISRUPTION_DECISIONS = _counter(
    "karpenter_voluntary_disruption_decisions_total", _DECISION, "disruption commands started, and empty nodes"
)
VOLUNTARY_DISRUPTION_ELIGIBLE_NODES = _gauge(
    "karpenter_voluntary_disruption_eligible_nodes", "reason", "nodes eligible for disruption in the last pass"
)
VOLUNTARY_DISRUPTION_FAILED_VALIDATIONS = _counter(
    "karpenter_voluntary_disruption_failed_validations_total", "consolidation_type", "commands that failed validation"
)
VOLUNTARY_DISRUPTION_QUEUE_FAILURES = _counter(
    "karpenter_voluntary_disruption_queue_failures_total", _DECISION, "started commands that failed"
)
AWS_CALL_WAIT = _histogram(
    "tenure_aws_call_wait_seconds", "operation", "rate limiter wait; its count is AWS calls", _CALL_BUCKETS
)
AWS_EVENTS = _counter("tenure_aws_events_total", "kind nodepool", "AWS events of nodes, counted once per change")
AWS_THROTTLED = _counter("tenure_aws_throttled_total", "operation", "calls throttled by AWS")
DISRUPTION_COMMANDS = _counter(
    "tenure_disruption_commands_total", f"{_DECISION} ending", "finished disruption commands"
)
DISRUPTION_EXCLUDED_NODES = _gauge(
    "tenure_disruption_excluded_nodes", "cause", "nodes blocked from disruption in the last pass"
)
DISRUPTION_PASS_DURATION = _histogram(
    "tenure_disruption_pass_duration_seconds",
    "",
    "duration of a disruption pass over all nodes",
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
GARBAGE_COLLECTION_COLLECTED = _counter(
    "tenure_garbage_collection_collected_total",
    "kind",
    "orphaned resources that were deleted or repaired",
)
GARBAGE_COLLECTION_FAILED = _counter(
    "tenure_garbage_collection_failed_total", "kind", "orphaned resources that could not be deleted"
)
GARBAGE_COLLECTION_FAULTS = _counter(
    "tenure_garbage_collection_faults_total", "task", "failed runs of garbage collection"
)
CLOCK_OFFSET = _gauge(
    "tenure_clock_offset_seconds",
    "",
    "seconds by which the worker's clock is ahead of the API server's; 0 below 30 s, which is not corrected",
)
ENDPOINT_UNREACHABLE = _gauge(
    "tenure_endpoint_unreachable", "api", "1 while calls to an API get no response, e.g. without DNS"
)
HOOKS = _counter("tenure_hooks_total", "point outcome nodepool", "finished hooks by outcome")
INTERRUPTION_LAST_READ = _gauge(
    "tenure_interruption_last_read_seconds",
    "source",
    "Unix time at which `queue` or `status` was last read; a worker's start and its wait for Karpenter count as reads",
)
INTERRUPTION_MESSAGES_DROPPED = _counter(
    "tenure_interruption_messages_dropped_total", "why", "queue messages discarded without a signal to a node"
)
KUBERNETES_CALL_WAIT = _histogram(
    "tenure_kubernetes_call_wait_seconds",
    "",
    "rate limiter wait at `KUBE_CLIENT_QPS`; its count is requests",
    _CALL_BUCKETS,
)
NODECLAIMS = _gauge("tenure_nodeclaims", "phase nodepool capacity_type", "NodeClaims by phase")
NODECLAIMS_DRAIN_WAITING = _gauge(
    "tenure_nodeclaims_drain_waiting",
    "nodepool",
    "NodeClaims whose drain waits for pods or volumes; `tenure why` names them",
)
NODECLAIMS_NEEDING_ATTENTION = _gauge(
    "tenure_nodeclaims_needing_attention",
    "code nodepool",
    "NodeClaims whose blocker does not clear by itself; `tenure stuck` lists them",
)
OVERDUE = _counter("tenure_overdue_total", "phase nodepool", "phases that passed their deadline")
PAUSES = _gauge("tenure_pauses", "kind", "paused objects: `Cluster`, `NodePool`, `NodeClaim`")
PENDING_PODS = _gauge(
    "tenure_pending_pods",
    "code clears_by_itself",
    'pending pods by the code of their verdict; `tenure stuck` lists those with `clears_by_itself="false"`',
)
PODS_NOT_BOUND = _gauge(
    "tenure_pods_not_bound",
    "nodepool",
    "pods planned onto Ready nodes that kube-scheduler has not bound there for over a minute",
)
INVALID_OBJECTS = _gauge(
    "tenure_invalid_objects",
    "kind reason",
    "objects whose processing fails; all other objects are processed",
)
NOT_READY_OBJECTS = _gauge(
    "tenure_not_ready_objects",
    "kind condition",
    "NodePools and EC2NodeClasses whose condition is False, so that nothing is launched for them",
)
ROLLOUTS = _counter("tenure_rollouts_total", "nodepool event", "rollout events")
STARTUP_DURATION = _histogram(
    "tenure_startup_duration_seconds",
    "phase nodepool instance_type",
    "duration of Launch, Registration and Initialization; its count under `Launch` is launches",
    (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0),
)
WORKER_SERVES_CURRENT_BUILD = _gauge(
    "tenure_worker_serves_current_build",
    "",
    "1 if this worker's build is the current one, and 0 while it gets no workflow tasks",
)
WORKFLOWS_MISSING = _counter(
    "tenure_workflows_missing_total",
    "workflow",
    "long-lived workflows by type that were found not running, and started again; counted at each check until they run",
)

METRICS: Final = tuple(
    sorted((one for one in tuple(globals().values()) if isinstance(one, Metric)), key=lambda one: one.name)
)
