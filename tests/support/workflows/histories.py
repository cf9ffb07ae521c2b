"""Replays the histories of tests."""

from collections.abc import AsyncIterator

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.support.fakes.permit_granter import PermitGranterWorkflow
from tests.support.fakes.permit_requester import PermitRequesterWorkflow
from tests.support.workflows.eventually import list_closed_runs, list_open_runs
from workflows import activity_options
from workflows.runner import WORKFLOWS, OrderedWorkflowRunner


def create_replayer() -> Replayer:
    """Debug mode disables the deadlock detector, which would fail a task after two seconds."""
    return Replayer(
        workflows=[*WORKFLOWS, PermitRequesterWorkflow, PermitGranterWorkflow],
        data_converter=pydantic_data_converter,
        workflow_runner=OrderedWorkflowRunner(),
        debug_mode=True,
    )


async def replay_histories(client: Client, id_prefix: str) -> None:
    """Replay the runs of the workflows with this ID prefix, each once from its first event
    (docs/decisions/test-tiers.md). A test lowers the event limit while a run continues as new. Such a run would take
    another decision now, so a run below the present limit is replayed only if it is the newest.

    Raises NondeterminismError.
    """
    histories = _fetch_histories(client, id_prefix)
    await create_replayer().replay_workflows(histories, raise_on_replay_failure=True)


async def _fetch_histories(client: Client, id_prefix: str) -> AsyncIterator[WorkflowHistory]:
    runs = [*await list_open_runs(client, id_prefix), *await list_closed_runs(client, id_prefix)]
    newest: set[str] = set()
    for one in sorted(runs, key=_start_nanoseconds, reverse=True):
        workflow_id = one.execution.workflow_id
        history = await client.get_workflow_handle(workflow_id, run_id=one.execution.run_id).fetch_history()
        if workflow_id not in newest or len(history.events) >= activity_options.CONTINUE_AS_NEW_AT_EVENTS:
            yield history
        newest.add(workflow_id)


def _start_nanoseconds(execution: WorkflowExecutionInfo) -> int:
    return execution.start_time.ToNanoseconds()
