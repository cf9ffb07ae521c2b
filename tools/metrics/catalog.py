"""For docs/reference/metrics.md: useful metrics of the SDK, and metrics of Karpenter without an equivalent."""

from typing import Final

TEMPORALS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "temporal_workflow_task_execution_latency",
        "histogram",
        "execution time of a workflow task",
    ),
    (
        "temporal_workflow_task_schedule_to_start_latency",
        "histogram",
        "time until a worker started a workflow task",
    ),
    ("temporal_activity_schedule_to_start_latency", "histogram", "time until a worker started an activity"),
    ("temporal_activity_execution_failed", "counter", "failed attempts of activities; most are retried"),
    (
        "temporal_workflow_task_execution_failed",
        "counter",
        "failed workflow tasks: a bug, or an overloaded machine",
    ),
    ("temporal_worker_task_slots_available", "gauge", "free slots, by kind of worker"),
)
"""SDK metrics that the dashboard and the runbooks use."""

KARPENTER_ONLY: Final = (
    "nodeclaims_instance_termination_duration_seconds, nodes_lifetime_duration_seconds, "
    "nodes_current_lifetime_seconds: "
    "see `tenure why` for one node, Temporal for all",
    "nodes_allocatable, nodes_total_pod_requests, nodes_total_pod_limits, nodes_total_daemon_requests, "
    "nodes_total_daemon_limits, nodes_system_overhead, cluster_utilization_percent, pods_state: "
    "kube-state-metrics has them",
    "nodepools_cost_tracker_errors_total",
    "pods_provisioning_* and pods_scheduling_decision_duration_seconds: `karpenter_pods_bound_duration_seconds` "
    "includes them",
    "pods_unstarted_time_seconds, pods_unbound_time_seconds: one series for each pod; use `tenure_pending_pods`",
    "scheduler_queue_depth, scheduler_unfinished_work_seconds, scheduler_ignored_pods_count, "
    "scheduler_pending_pods_by_effective_zone_count",
    "cluster_state_node_count, cluster_state_synced, cluster_state_unsynced_time_seconds: "
    "there is no global state to synchronize",
    "voluntary_disruption_decision_evaluation_duration_seconds: use `tenure_disruption_pass_duration_seconds`",
    "voluntary_disruption_consolidation_timeouts_total, consolidation_score, consolidation_moves_total",
    "cloudprovider_duration_seconds, cloudprovider_errors_total, cloudprovider_batcher_*: use `tenure_aws_*`",
    "build_info, operator_*, client_go_*, controller_runtime_*, aws_sdk_go_*",
)
"""Karpenter's metrics (without the prefix `karpenter_`) that Tenure lacks, with the alternative."""
