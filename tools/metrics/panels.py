"""The rows of panels of the dashboard, with queries and units. `dashboard.py` converts them to Grafana's format."""

from typing import Final, NamedTuple

_POOL: Final = 'nodepool=~"$nodepool"'
_ATTENTION: Final = f"max by (code, nodepool) (tenure_nodeclaims_needing_attention{{{_POOL}}})"
_LAUNCH_FAILURES: Final = "karpenter_cloudprovider_instance_launch_failures_total"
_LAUNCH: Final = f'phase="Launch", {_POOL}'


class Panel(NamedTuple):
    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    """PromQL and legend of each line."""
    unit: str = "short"
    stacked: bool = False
    stat: bool = False


def _rate_query(metric: str, by: str, labels: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def _p95_query(metric: str, by: str, labels: str = "") -> str:
    buckets = _rate_query(f"{metric}_bucket", ", ".join(part for part in ("le", by) if part), labels)
    return f"histogram_quantile(0.95, {buckets})"


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Now",
        (
            Panel(
                "Nodes",
                "Existing NodeClaims.",
                ((f"sum(max by (phase, nodepool, capacity_type) (tenure_nodeclaims{{{_POOL}}}))", "nodes"),),
                stat=True,
            ),
            Panel(
                "Need attention",
                "Nodes whose blocker does not clear by itself: `tenure stuck` lists them.",
                ((f"sum({_ATTENTION}) or vector(0)", "nodes"),),
                stat=True,
            ),
            Panel(
                "Cost per hour",
                "Launched instances, at the prices that the planner uses.",
                ((f"sum(max by (nodepool) (karpenter_nodepools_cost_total{{{_POOL}}}))", "dollars"),),
                "currencyUSD",
                stat=True,
            ),
        ),
    ),
    (
        "Nodes",
        (
            Panel(
                "Nodes by phase",
                "NodeClaims in each phase of their lifecycle.",
                (
                    (
                        f"sum by (phase) (max by (phase, nodepool, capacity_type) (tenure_nodeclaims{{{_POOL}}}))",
                        "{{phase}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Nodes by NodePool",
                "NodeClaims in all phases.",
                (
                    (
                        f"sum by (nodepool) (max by (phase, nodepool, capacity_type) (tenure_nodeclaims{{{_POOL}}}))",
                        "{{nodepool}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Cost per hour by NodePool",
                "US dollars per hour.",
                ((f"max by (nodepool) (karpenter_nodepools_cost_total{{{_POOL}}})", "{{nodepool}}"),),
                "currencyUSD",
                stacked=True,
            ),
            Panel(
                "Nodes that need attention, by code",
                "Runbook: docs/operating/runbooks/node-overdue.md.",
                ((_ATTENTION, "{{code}} {{nodepool}}"),),
            ),
            Panel(
                "Launches and terminations",
                "Launched and terminated nodes per minute.",
                (
                    (
                        f"60 * {_rate_query('tenure_startup_duration_seconds_count', 'nodepool', _LAUNCH)}",
                        "{{nodepool}} launched",
                    ),
                    (
                        f"60 * {_rate_query('karpenter_nodeclaims_terminated_total', 'nodepool', _POOL)}",
                        "{{nodepool}} terminated",
                    ),
                ),
            ),
            Panel(
                "Launch failures",
                "Errors of CreateFleet per minute, by EC2 error code. "
                "Runbook: docs/operating/runbooks/alerts.md#failing-launches.",
                (
                    (
                        f"60 * {_rate_query(_LAUNCH_FAILURES, 'reason, capacity_type')}",
                        "{{reason}} {{capacity_type}}",
                    ),
                ),
            ),
            Panel(
                "Time per phase, 95th percentile",
                "Launch starts at the creation of the NodeClaim.",
                ((_p95_query("tenure_startup_duration_seconds", "phase", _POOL), "{{phase}}"),),
                "s",
            ),
            Panel(
                "Pods without a node",
                "Pods that the last plan could not schedule. Runbook: docs/operating/runbooks/no-capacity.md.",
                (("max(karpenter_scheduler_unschedulable_pods_count)", "pods"),),
            ),
            Panel(
                "Pods not bound to their node",
                "Pods that kube-scheduler does not bind to their node. "
                "Runbook: docs/operating/runbooks/pods-not-bound.md.",
                ((f"max by (nodepool) (tenure_pods_not_bound{{{_POOL}}})", "{{nodepool}}"),),
            ),
            Panel(
                "Missed deadlines",
                "Missed deadlines per hour, by phase. Runbook: docs/operating/runbooks/node-overdue.md.",
                ((f"3600 * {_rate_query('tenure_overdue_total', 'phase', _POOL)}", "{{phase}}"),),
            ),
        ),
    ),
    (
        "Disruption",
        (
            Panel(
                "Decisions",
                "Disruption commands and deleted empty nodes per hour.",
                (
                    (
                        "3600 * "
                        + _rate_query(
                            "karpenter_voluntary_disruption_decisions_by_nodepool_total", "decision, reason", _POOL
                        ),
                        "{{decision}} {{reason}}",
                    ),
                ),
            ),
            Panel(
                "Command outcomes",
                "Finished disruption commands per hour, by outcome.",
                ((f"3600 * {_rate_query('tenure_disruption_commands_total', 'ending')}", "{{ending}}"),),
            ),
            Panel(
                "Paused",
                "Paused objects by kind. `tenure resume` ends a pause.",
                (("max by (kind) (tenure_pauses)", "{{kind}}"),),
            ),
            Panel(
                "Blocked drains",
                "Runbook: docs/operating/runbooks/drain-blocked.md.",
                ((f"max by (nodepool) (tenure_nodeclaims_drain_waiting{{{_POOL}}})", "{{nodepool}}"),),
            ),
            Panel(
                "Evictions",
                "Eviction requests per second, by status code. 429: blocked by a PodDisruptionBudget.",
                ((_rate_query("karpenter_pods_eviction_requests_total", "code"), "{{code}}"),),
            ),
            Panel(
                "Allowed disruptions",
                "Nodes that budgets allow to disrupt now.",
                (
                    (
                        f"max by (nodepool, reason) (karpenter_nodepools_allowed_disruptions{{{_POOL}}})",
                        "{{nodepool}} {{reason}}",
                    ),
                ),
            ),
            Panel(
                "AWS events",
                "AWS events of nodes per hour.",
                ((f"3600 * {_rate_query('tenure_aws_events_total', 'kind', _POOL)}", "{{kind}}"),),
            ),
            Panel(
                "Age of AWS events when handled",
                "95th percentile. A spot interruption gives two minutes of notice. "
                "Runbook: docs/operating/runbooks/alerts.md#late-interruptions.",
                ((_p95_query("karpenter_interruption_message_queue_duration_seconds", ""), "95 %"),),
                "s",
            ),
            Panel(
                "Hooks",
                "Hook outcomes per hour. Runbook: docs/operating/runbooks/alerts.md#failing-hooks.",
                ((f"3600 * {_rate_query('tenure_hooks_total', 'point, outcome', _POOL)}", "{{point}} {{outcome}}"),),
            ),
        ),
    ),
    (
        "Workers",
        (
            Panel(
                "Duration of plans and disruption passes",
                "95th percentile of plans for pending pods and of disruption passes.",
                (
                    (_p95_query("karpenter_scheduler_scheduling_duration_seconds", ""), "plan"),
                    (_p95_query("tenure_disruption_pass_duration_seconds", ""), "pass"),
                ),
                "s",
            ),
            Panel(
                "Workflow tasks, 95th percentile",
                "Wait for a worker, and execution. The limit of an execution is two seconds.",
                (
                    (_p95_query("temporal_workflow_task_schedule_to_start_latency", ""), "schedule to start"),
                    (_p95_query("temporal_workflow_task_execution_latency", ""), "execution"),
                ),
                "s",
            ),
            Panel(
                "Failed activity attempts",
                "Per minute; most are retried. A failed workflow task is a bug.",
                (
                    (f"60 * {_rate_query('temporal_activity_execution_failed', 'activity_type')}", "{{activity_type}}"),
                    (
                        f"60 * {_rate_query('temporal_workflow_task_execution_failed', 'workflow_type')}",
                        "{{workflow_type}}: workflow task",
                    ),
                ),
            ),
            Panel(
                "Workflows that were not running",
                "In 10 minutes, by type. Workers start them again. "
                "Runbook: docs/operating/runbooks/alerts.md#missing-workflows.",
                (
                    (
                        "sum by (workflow) (increase(tenure_workflows_missing_total[10m]))",
                        "{{workflow}}",
                    ),
                ),
            ),
            Panel(
                "AWS calls",
                "Calls per second, by operation.",
                ((_rate_query("tenure_aws_call_wait_seconds_count", "operation"), "{{operation}}"),),
            ),
            Panel(
                "Client-side rate limiting, 95th percentile",
                "Wait before calls to AWS, by operation, and to the API server.",
                (
                    (_p95_query("tenure_aws_call_wait_seconds", "operation"), "{{operation}}"),
                    (_p95_query("tenure_kubernetes_call_wait_seconds", ""), "Kubernetes"),
                ),
                "s",
            ),
            Panel(
                "Throttled by AWS",
                "Throttled calls per minute, by operation.",
                ((f"60 * {_rate_query('tenure_aws_throttled_total', 'operation')}", "{{operation}}"),),
            ),
        ),
    ),
)
