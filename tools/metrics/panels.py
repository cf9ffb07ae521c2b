"""What the dashboard shows: rows of panels, each with queries and a unit; `dashboard.py` puts it in Grafana's form."""

from typing import Final, NamedTuple

_POOL: Final = 'nodepool=~"$nodepool"'
_LAUNCH_FAILURES: Final = "karpenter_cloudprovider_instance_launch_failures_total"
_LAUNCH: Final = f'phase="Launch", {_POOL}'


class Panel(NamedTuple):
    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    """PromQL, and what a line is called."""
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
                "NodeClaims that are there.",
                ((f"sum(max by (phase, nodepool, capacity_type) (tenure_nodeclaims{{{_POOL}}}))", "nodes"),),
                stat=True,
            ),
            Panel(
                "Overdue",
                "Past the deadline of a phase: `tenure stuck` lists them.",
                ((f"sum(max by (phase, nodepool) (tenure_nodeclaims_overdue{{{_POOL}}})) or vector(0)", "overdue"),),
                stat=True,
            ),
            Panel(
                "Cost per hour",
                "Of launched instances, at the prices that planning goes by.",
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
                "Where NodeClaims are in their lives.",
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
                "In every phase.",
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
                "US dollars.",
                ((f"max by (nodepool) (karpenter_nodepools_cost_total{{{_POOL}}})", "{{nodepool}}"),),
                "currencyUSD",
                stacked=True,
            ),
            Panel(
                "Overdue by phase",
                "Runbook: docs/runbooks/node-overdue.md.",
                ((f"max by (phase, nodepool) (tenure_nodeclaims_overdue{{{_POOL}}})", "{{phase}} {{nodepool}}"),),
            ),
            Panel(
                "Launches and ends",
                "Nodes launched, and NodeClaims that are over, per minute.",
                (
                    (
                        f"60 * {_rate_query('tenure_startup_duration_seconds_count', 'nodepool', _LAUNCH)}",
                        "{{nodepool}} launched",
                    ),
                    (
                        f"60 * {_rate_query('karpenter_nodeclaims_terminated_total', 'nodepool', _POOL)}",
                        "{{nodepool}} over",
                    ),
                ),
            ),
            Panel(
                "Launch failures",
                "Errors in CreateFleet's answers, per minute, by EC2's code.",
                (
                    (
                        f"60 * {_rate_query(_LAUNCH_FAILURES, 'reason, capacity_type')}",
                        "{{reason}} {{capacity_type}}",
                    ),
                ),
            ),
            Panel(
                "Time per phase, 95th percentile",
                "Launch counts from the NodeClaim's birth.",
                ((_p95_query("tenure_startup_duration_seconds", "phase", _POOL), "{{phase}}"),),
                "s",
            ),
            Panel(
                "Pods without a node",
                "That the last plan found no node for.",
                (("max(karpenter_scheduler_unschedulable_pods_count)", "pods"),),
            ),
            Panel(
                "Pods not bound to their node",
                "That has room, and kube-scheduler does not bind them. Runbook: docs/runbooks/pods-not-bound.md.",
                ((f"max by (nodepool) (tenure_pods_not_bound{{{_POOL}}})", "{{nodepool}}"),),
            ),
            Panel(
                "Deadlines that passed",
                "Per hour.",
                ((f"3600 * {_rate_query('tenure_overdue_total', 'phase', _POOL)}", "{{phase}}"),),
            ),
        ),
    ),
    (
        "Disruption",
        (
            Panel(
                "Decisions",
                "Commands and empty nodes, per hour.",
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
                "How commands end",
                "Per hour.",
                ((f"3600 * {_rate_query('tenure_disruption_commands_total', 'ending')}", "{{ending}}"),),
            ),
            Panel("Paused", "By kind: `tenure resume`.", (("max by (kind) (tenure_pauses)", "{{kind}}"),)),
            Panel(
                "Drains that wait",
                "Runbook: docs/runbooks/drain-blocked.md.",
                ((f"max by (nodepool) (tenure_nodeclaims_drain_waiting{{{_POOL}}})", "{{nodepool}}"),),
            ),
            Panel(
                "Evictions",
                "Asked for per second, by the answer: 429 is a budget.",
                ((_rate_query("karpenter_pods_eviction_requests_total", "code"), "{{code}}"),),
            ),
            Panel(
                "What budgets leave",
                "Nodes that may go now.",
                (
                    (
                        f"max by (nodepool, reason) (karpenter_nodepools_allowed_disruptions{{{_POOL}}})",
                        "{{nodepool}} {{reason}}",
                    ),
                ),
            ),
            Panel(
                "What AWS says",
                "Events of nodes, per hour.",
                ((f"3600 * {_rate_query('tenure_aws_events_total', 'kind', _POOL)}", "{{kind}}"),),
            ),
            Panel(
                "Age of what AWS says when it is handled",
                "95th percentile; two minutes is all the notice of a spot interruption.",
                ((_p95_query("karpenter_interruption_message_queue_duration_seconds", ""), "95 %"),),
                "s",
            ),
            Panel(
                "Hooks",
                "Outcomes per hour.",
                ((f"3600 * {_rate_query('tenure_hooks_total', 'point, outcome', _POOL)}", "{{point}} {{outcome}}"),),
            ),
        ),
    ),
    (
        "The workers",
        (
            Panel(
                "Time of plans and passes",
                "95th percentile: plans for pending pods, passes of disruption.",
                (
                    (_p95_query("karpenter_scheduler_scheduling_duration_seconds", ""), "plan"),
                    (_p95_query("tenure_disruption_pass_duration_seconds", ""), "pass"),
                ),
                "s",
            ),
            Panel(
                "Workflow tasks, 95th percentile",
                "Waiting for a worker, and computing; two seconds is the limit.",
                (
                    (_p95_query("temporal_workflow_task_schedule_to_start_latency", ""), "waiting"),
                    (_p95_query("temporal_workflow_task_execution_latency", ""), "computing"),
                ),
                "s",
            ),
            Panel(
                "Failed tries of activities",
                "Per minute; most are retried. A task that fails is a bug.",
                (
                    (f"60 * {_rate_query('temporal_activity_execution_failed', 'activity_type')}", "{{activity_type}}"),
                    (
                        f"60 * {_rate_query('temporal_workflow_task_execution_failed', 'workflow_type')}",
                        "{{workflow_type}}: task",
                    ),
                ),
            ),
            Panel(
                "AWS calls",
                "Per second.",
                ((_rate_query("tenure_aws_call_wait_seconds_count", "operation"), "{{operation}}"),),
            ),
            Panel(
                "Waiting for a turn, 95th percentile",
                "At AWS by operation, and at the API server.",
                (
                    (_p95_query("tenure_aws_call_wait_seconds", "operation"), "{{operation}}"),
                    (_p95_query("tenure_kubernetes_call_wait_seconds", ""), "Kubernetes"),
                ),
                "s",
            ),
            Panel(
                "Throttled by AWS",
                "Per minute.",
                ((f"60 * {_rate_query('tenure_aws_throttled_total', 'operation')}", "{{operation}}"),),
            ),
        ),
    ),
)
