"""Every metric of the worker's own: name, type, labels and what it tells; docs/reference/metrics.md is made of it.

The code that tells a metric has its name as a constant; tests/unit/tools/test_reference.py compares the two.
A name that begins with `karpenter_` is Karpenter's and means the same (reference 5.1).
"""

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Measure(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    description: str


def _define_measure(name: str, kind: Kind, labels: str, description: str) -> Measure:
    return Measure(name, kind, tuple(labels.split()), description)


_DECISION: Final = "decision reason consolidation_type"
_OFFERING: Final = "instance_type capacity_type zone"

MEASURES: Final = tuple(
    sorted(
        (
            _define_measure("tenure_nodeclaims", "gauge", "phase nodepool capacity_type", "NodeClaims by phase"),
            _define_measure(
                "tenure_nodeclaims_overdue", "gauge", "phase nodepool", "NodeClaims past the deadline of their phase"
            ),
            _define_measure(
                "tenure_nodeclaims_drain_waiting",
                "gauge",
                "nodepool",
                "NodeClaims whose drain waits for pods or volumes; `tenure why` says for which",
            ),
            _define_measure(
                "tenure_pods_not_bound",
                "gauge",
                "nodepool",
                "pods planned onto nodes that are up, and not bound there by kube-scheduler for over a minute",
            ),
            _define_measure("tenure_pauses", "gauge", "kind", "what is paused: `Cluster`, `NodePool`, `NodeClaim`"),
            _define_measure("tenure_overdue_total", "counter", "phase nodepool", "deadlines that passed"),
            _define_measure(
                "tenure_startup_duration_seconds",
                "histogram",
                "phase nodepool instance_type",
                "how long nodes took for Launch, Registration and Initialization; its count under `Launch` is launches",
            ),
            _define_measure("tenure_hooks_total", "counter", "point outcome nodepool", "what became of hooks"),
            _define_measure(
                "tenure_aws_events_total", "counter", "kind nodepool", "what AWS said of nodes, each change once"
            ),
            _define_measure(
                "tenure_rollouts_total", "counter", "nodepool event", "what became of roll-outs, by their events"
            ),
            _define_measure(
                "tenure_disruption_commands_total", "counter", f"{_DECISION} ending", "commands that are over"
            ),
            _define_measure(
                "tenure_disruption_excluded_nodes", "gauge", "cause", "nodes kept from disruption, last pass"
            ),
            _define_measure(
                "tenure_disruption_pass_duration_seconds", "histogram", "", "how long a pass over all nodes took"
            ),
            _define_measure(
                "tenure_interruption_messages_dropped_total", "counter", "why", "messages no node was told of"
            ),
            _define_measure(
                "tenure_interruption_last_read_seconds",
                "gauge",
                "source",
                "Unix time at which `queue` or `status` was last read; each worker's start counts as a read",
            ),
            _define_measure(
                "tenure_garbage_collection_collected_total",
                "counter",
                "kind",
                "things that upkeep put away or put right",
            ),
            _define_measure(
                "tenure_garbage_collection_failed_total", "counter", "kind", "things that upkeep could not put away"
            ),
            _define_measure(
                "tenure_garbage_collection_faults_total", "counter", "task", "runs of upkeep that came to nothing"
            ),
            _define_measure(
                "tenure_aws_call_wait_seconds", "histogram", "operation", "wait for a turn; its count is AWS calls"
            ),
            _define_measure("tenure_aws_throttled_total", "counter", "operation", "calls that AWS refused as too many"),
            _define_measure(
                "tenure_kubernetes_call_wait_seconds",
                "histogram",
                "",
                "wait for a turn at `KUBE_CLIENT_QPS`; its count is requests",
            ),
            _define_measure(
                "karpenter_nodeclaims_disrupted_total",
                "counter",
                "reason nodepool capacity_type",
                "NodeClaims deleted for a disruption, a deadline, or what AWS says",
            ),
            _define_measure(
                "karpenter_nodeclaims_created_total",
                "counter",
                "reason nodepool min_values_relaxed",
                "NodeClaims made: `provisioned`, or for a disruption's reason",
            ),
            _define_measure(
                "karpenter_nodes_created_total", "counter", "nodepool zone", "Nodes that registered, or were taken over"
            ),
            _define_measure("karpenter_nodes_terminated_total", "counter", "nodepool zone", "Nodes that are over"),
            _define_measure(
                "karpenter_nodeclaims_terminated_total",
                "counter",
                "nodepool capacity_type zone",
                "NodeClaims that are over",
            ),
            _define_measure(
                "karpenter_nodeclaims_termination_duration_seconds",
                "histogram",
                "nodepool",
                "how long NodeClaims took to go, drain included",
            ),
            _define_measure(
                "karpenter_nodes_termination_duration_seconds",
                "histogram",
                "nodepool",
                "the same of those whose Node had registered",
            ),
            _define_measure(
                "karpenter_nodes_drained_total", "counter", "nodepool", "nodes whose pods and volumes have left"
            ),
            _define_measure(
                "karpenter_pods_drained_total", "counter", "reason", "pods that were told to leave their node"
            ),
            _define_measure(
                "karpenter_pods_eviction_requests_total", "counter", "code", "evictions asked for, by the answer's code"
            ),
            _define_measure(
                "karpenter_nodepools_usage",
                "gauge",
                "nodepool resource_type",
                "capacity of a pool's nodes: cores, bytes, counts",
            ),
            _define_measure(
                "karpenter_nodepools_limit", "gauge", "nodepool resource_type", "what a pool's limits allow"
            ),
            _define_measure(
                "karpenter_nodepools_cost_total",
                "gauge",
                "nodepool",
                "US dollars an hour of a pool's launched instances",
            ),
            _define_measure(
                "karpenter_nodepools_allowed_disruptions", "gauge", "nodepool reason", "nodes that budgets let go now"
            ),
            _define_measure(
                "karpenter_nodepools_nodes_consuming_budgets", "gauge", "nodepool reason", "nodes that use budgets up"
            ),
            _define_measure(
                "karpenter_scheduler_scheduling_duration_seconds",
                "histogram",
                "controller",
                "how long a plan took: `provisioner`",
            ),
            _define_measure(
                "karpenter_scheduler_unschedulable_pods_count",
                "gauge",
                "controller",
                "pods the last plan found no node for",
            ),
            _define_measure(
                "karpenter_voluntary_disruption_decisions_total",
                "counter",
                _DECISION,
                "commands begun, and empty nodes",
            ),
            _define_measure(
                "karpenter_voluntary_disruption_decisions_by_nodepool_total",
                "counter",
                f"nodepool {_DECISION}",
                "the same by NodePool",
            ),
            _define_measure(
                "karpenter_voluntary_disruption_eligible_nodes", "gauge", "reason", "nodes that could go, last pass"
            ),
            _define_measure(
                "karpenter_voluntary_disruption_failed_validations_total",
                "counter",
                "consolidation_type",
                "commands that went stale",
            ),
            _define_measure(
                "karpenter_voluntary_disruption_queue_failures_total",
                "counter",
                _DECISION,
                "commands begun that came to nothing",
            ),
            _define_measure(
                "karpenter_interruption_received_messages_total", "counter", "message_type", "messages received"
            ),
            _define_measure("karpenter_interruption_deleted_messages_total", "counter", "", "messages deleted"),
            _define_measure(
                "karpenter_interruption_message_queue_duration_seconds",
                "histogram",
                "",
                "from an event to its handling",
            ),
            _define_measure(
                "karpenter_interruption_instance_status_unhealthy_total",
                "counter",
                "category",
                "what EC2's status said of instances",
            ),
            _define_measure(
                "karpenter_cloudprovider_instance_launch_failures_total",
                "counter",
                "zone zone_id capacity_type reason",
                "errors in CreateFleet's answers; the reason is EC2's code",
            ),
            _define_measure(
                "karpenter_cloudprovider_instance_type_cpu_cores", "gauge", "instance_type", "vCPUs of a type"
            ),
            _define_measure(
                "karpenter_cloudprovider_instance_type_memory_bytes",
                "gauge",
                "instance_type",
                "memory, as planned with",
            ),
            _define_measure(
                "karpenter_cloudprovider_instance_type_offering_available",
                "gauge",
                _OFFERING,
                "1 where some EC2NodeClass can be launched so",
            ),
            _define_measure(
                "karpenter_cloudprovider_instance_type_offering_price_estimate",
                "gauge",
                _OFFERING,
                "US dollars an hour",
            ),
            _define_measure(
                "karpenter_ec2nodeclasses_userdata_bytes", "gauge", "nodeclass", "bytes of user data; EC2 takes 16384"
            ),
        )
    )
)

TEMPORALS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "temporal_workflow_task_execution_latency",
        "histogram",
        "how long the worker computed on a workflow task",
    ),
    (
        "temporal_workflow_task_schedule_to_start_latency",
        "histogram",
        "how long workflow tasks waited for a worker",
    ),
    ("temporal_activity_schedule_to_start_latency", "histogram", "how long activities waited for a worker"),
    ("temporal_activity_execution_failed", "counter", "tries of activities that failed; most are retried"),
    (
        "temporal_workflow_task_execution_failed",
        "counter",
        "workflow tasks that failed: a bug, or a machine too busy",
    ),
    ("temporal_worker_task_slots_available", "gauge", "free slots, by kind of worker"),
)
"""Of the SDK's metrics those that the dashboard and the runbooks use."""

KARPENTER_ONLY: Final = (
    "nodeclaims_unhealthy_disrupted_total: `NodeClaim` events `Unhealthy` tell them",
    "nodeclaims_instance_termination_duration_seconds, nodes_lifetime_duration_seconds, "
    "nodes_current_lifetime_seconds: "
    "`tenure why` tells one node's times, Temporal lists them all",
    "pods_disruption_initiated_total",
    "nodes_allocatable, nodes_total_pod_requests, nodes_total_pod_limits, nodes_total_daemon_requests, "
    "nodes_total_daemon_limits, nodes_system_overhead, cluster_utilization_percent, pods_state: "
    "kube-state-metrics has them",
    "nodepools_cost_tracker_errors_total",
    "pods_startup_duration_seconds and the other durations and ages of pods",
    "scheduler_queue_depth, scheduler_unfinished_work_seconds, scheduler_ignored_pods_count, "
    "scheduler_pending_pods_by_effective_zone_count",
    "cluster_state_node_count, cluster_state_synced, cluster_state_unsynced_time_seconds: "
    "there is no global state to sync",
    "voluntary_disruption_decision_evaluation_duration_seconds: use `tenure_disruption_pass_duration_seconds`",
    "voluntary_disruption_consolidation_timeouts_total, consolidation_score, consolidation_moves_total",
    "cloudprovider_duration_seconds, cloudprovider_errors_total, cloudprovider_batcher_*: use `tenure_aws_*`",
    "build_info, operator_*, client_go_*, controller_runtime_*, aws_sdk_go_*",
)
"""Karpenter's metrics (without `karpenter_`) that there are none of here, and what to use."""
