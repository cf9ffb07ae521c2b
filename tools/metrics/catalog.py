"""For docs/reference/metrics.md: metrics of the SDK that are in use, and metrics of Karpenter that are absent."""

from typing import Final

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
