"""NodeClaim workflows from visibility: continued runs are merged, and a closed workflow is complete."""

from datetime import UTC, datetime, timedelta

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import WorkflowExecution
from temporalio.client import WorkflowExecutionStatus as Status
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.contrib.pydantic import pydantic_data_converter

from tenure.cli.nodes.workflows import merge_runs, nodeclaim_name, summarize_run
from workflows import ids, search_attributes

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def execution(
    name: str, status: Status, *, after: int = 0, events: int = 10, phase: str = "Ready"
) -> WorkflowExecution:
    begun = START + timedelta(seconds=after)
    return WorkflowExecution(
        close_time=None if status is Status.RUNNING else begun + timedelta(seconds=60),
        execution_time=begun,
        history_length=events,
        id=ids.nodeclaim("demo", name, "0123456789"),
        namespace="default",
        parent_id=None,
        parent_run_id=None,
        raw_info=WorkflowExecutionInfo(),
        root_id=None,
        root_run_id=None,
        run_id=f"{name}-{after}",
        search_attributes={},
        start_time=begun,
        status=status,
        task_queue="demo",
        typed_search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(search_attributes.PHASE, phase),
                SearchAttributePair(search_attributes.OVERDUE, True),
                SearchAttributePair(search_attributes.DEADLINE, START),
                SearchAttributePair(search_attributes.INSTANCE_ID, "i-0a"),
            ]
        ),
        workflow_type="NodeClaim",
        _context_free_data_converter=pydantic_data_converter,
    )


def test_nodeclaim_name_is_part_of_workflow_id() -> None:
    assert nodeclaim_name(ids.nodeclaim("a/b", "default-x7k", "0123456789")) == "default-x7k"


def test_running_workflow_shows_its_attributes() -> None:
    nodeclaim = summarize_run(execution("one", Status.RUNNING))
    assert (nodeclaim.name, nodeclaim.phase, nodeclaim.instance_id) == ("one", "Ready", "i-0a")
    assert nodeclaim.overdue and nodeclaim.deadline == START and nodeclaim.open


def test_completed_workflow_has_no_deadline() -> None:
    nodeclaim = summarize_run(execution("one", Status.COMPLETED))
    assert (nodeclaim.phase, nodeclaim.overdue, nodeclaim.deadline) == ("Gone", False, None)
    assert nodeclaim.since == START + timedelta(seconds=60)
    assert not nodeclaim.open


def test_continued_runs_are_merged_with_all_events() -> None:
    (nodeclaim,) = merge_runs(
        [
            execution("one", Status.CONTINUED_AS_NEW, events=500),
            execution("one", Status.RUNNING, after=60, events=7, phase="Drain"),
        ]
    )
    assert (nodeclaim.events, nodeclaim.phase, nodeclaim.open) == (507, "Drain", True)


def test_terminated_workflow_is_not_completed() -> None:
    nodeclaim = summarize_run(execution("one", Status.TERMINATED, phase="Drain"))
    assert (nodeclaim.open, nodeclaim.phase, nodeclaim.status) == (False, "Drain", "TERMINATED")
