"""Failed workflow tasks and unused nodes are counted from the worker's metrics."""

from tenure.cli.sandbox.probes import failed_tasks, format_failed_tasks, unused_nodes

EXPOSITION = """\
# HELP temporal_workflow_task_execution_failed Count of workflow task execution failures
# TYPE temporal_workflow_task_execution_failed counter
temporal_workflow_task_execution_failed{failure_reason="WorkflowError",workflow_type="NodePool"} 11
temporal_workflow_task_execution_failed{failure_reason="NonDeterminism",workflow_type="NodePool"} 1
temporal_workflow_task_execution_failed{failure_reason="WorkflowError",workflow_type="ClusterWatch"} 0
# HELP temporal_workflow_completed Count of completed workflows
# TYPE temporal_workflow_completed counter
temporal_workflow_completed{workflow_type="NodeClaim"} 5
# HELP tenure_nodes_unused_total nodes deleted after initialization
# TYPE tenure_nodes_unused_total counter
tenure_nodes_unused_total{nodepool="a"} 2
tenure_nodes_unused_total{nodepool="b"} 0
"""


def test_failures_are_summed_by_workflow_without_zeros() -> None:
    assert failed_tasks(EXPOSITION) == {"NodePool": 12}
    assert format_failed_tasks(failed_tasks(EXPOSITION)).endswith("tasks: NodePool 12")


def test_no_failures_give_empty_text() -> None:
    assert format_failed_tasks(failed_tasks("")) == ""


def test_unused_nodes_are_counted_by_nodepool() -> None:
    assert unused_nodes(EXPOSITION) == {"a": 2}
