"""The workflows of a worker and their runner. Tests and the replayer use the same ones.

The workflows run without the SDK's sandbox: banned APIs in the linter and import contracts keep them deterministic.
docs/decisions/workflow-runner.md has the measurement, and the bug with queries that `OrderedWorkflowRunner` prevents.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from temporalio import workflow
from temporalio.converter import PayloadConverter
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

from tenure.model.signals import REPEAT_QUERY
from workflows.cluster_watch import ClusterWatchWorkflow, DisruptionPreviewWorkflow
from workflows.current_details import CANCELLATION_SIGNAL
from workflows.disruption.cluster import ClusterWorkflow
from workflows.disruption.command import DisruptionWorkflow
from workflows.garbage_collection import GarbageCollectorWorkflow
from workflows.interruption import InterruptionWorkflow
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodeclass import NodeClassWorkflow
from workflows.nodepool import NodePoolWorkflow
from workflows.provisioner import ProvisioningWorkflow

log = logging.getLogger(__name__)


@workflow.defn(name="Canary")
class CanaryWorkflow:
    """Runs on the workers of a new build before it is promoted."""

    @workflow.run
    async def run(self) -> None:
        """Complete with the first workflow task."""


WORKFLOWS: Sequence[type] = (
    ClusterWorkflow,
    DisruptionWorkflow,
    InterruptionWorkflow,
    NodeClaimWorkflow,
    NodeClassWorkflow,
    NodePoolWorkflow,
    ProvisioningWorkflow,
    DisruptionPreviewWorkflow,
    GarbageCollectorWorkflow,
    ClusterWatchWorkflow,
    CanaryWorkflow,
)
_UNFINISHED: Final[list[WorkflowInstance]] = []
"""Evicted instances whose tasks did not end. Garbage collection would resume these tasks in another thread."""
_EXTERNAL_JOBS: Final = frozenset({"signal_workflow", "fire_timer", "cancel_workflow"})


class EventsBeforeTheirTask(Exception):
    """A query delivered events before the workflow task that they belong to."""


class OrderedWorkflowRunner(WorkflowRunner):
    """Runs workflows without a sandbox, and ensures that each activation has the same time as at replay. Workflows that
    ignore cancellation get a request for it as a signal."""

    def __init__(self) -> None:
        self._inner = UnsandboxedWorkflowRunner()
        self._payload_converter: PayloadConverter | None = None

    def prepare_workflow(self, defn: Any) -> None:
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """All instances share a payload converter, because each converter builds its own validators. The details get
        copies of their messages, which otherwise keep the whole activation in memory."""
        converter = self._payload_converter = self._payload_converter or det.payload_converter_factory()
        info = replace(det.info, headers=_copy_messages(det.info.headers), raw_memo=_copy_messages(det.info.raw_memo))
        own = replace(
            det,
            payload_converter_factory=lambda: converter,
            info=info,
            last_completion_result=_copy_message(det.last_completion_result),
        )
        return OrderedWorkflowInstance(
            self._inner.create_instance(own), ignores_cancellation=CANCELLATION_SIGNAL in det.defn.signals
        )

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        self._inner.set_worker_level_failure_exception_types(types)


class OrderedWorkflowInstance(WorkflowInstance):
    """Each workflow task has its own time, so new events with the time of the last task arrived with a query.

    The activation then fails, and the query with it. Temporal evicts the workflow from the cache, and its next task
    starts from the history.

    On a machine without free processor time, a workflow task may take longer than the SDK's deadlock timeout of two
    seconds. The SDK then interrupts the event loop of the workflow, which can lose a task. Such an instance cannot be
    evicted, and the SDK would retry the eviction forever: the workflow would not continue on this worker, and the
    worker would not stop. The instance counts as evicted instead, and the next task starts from the history.
    """

    def __init__(self, inner: WorkflowInstance, *, ignores_cancellation: bool = False) -> None:
        self._inner, self._last_nanoseconds = inner, 0
        self._ignores_cancellation = ignores_cancellation

    def activate(self, act: Any) -> Any:
        """Raises EventsBeforeTheirTask. The SDK gets a copy of `act`: it keeps a part, which keeps the whole in
        memory."""
        nanoseconds = act.timestamp.ToNanoseconds()
        if nanoseconds == self._last_nanoseconds and not act.is_replaying and any(map(_is_external, act.jobs)):
            raise EventsBeforeTheirTask(f"events came with a query, before their workflow task: {REPEAT_QUERY}")
        self._last_nanoseconds = nanoseconds
        copied = _copy_message(act)
        if self._ignores_cancellation:
            for job in copied.jobs:
                if job.WhichOneof("variant") == "cancel_workflow":
                    job.signal_workflow.signal_name = CANCELLATION_SIGNAL
        try:
            return self._inner.activate(copied)
        except RuntimeError as error:
            if not any(job.WhichOneof("variant") == "remove_from_cache" for job in copied.jobs):
                raise
            log.warning("workflow %s evicted with unfinished tasks: %s", self.get_info().workflow_id, error)
            _UNFINISHED.append(self._inner)
            return None

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


def _copy_messages(messages: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy_message(one) for key, one in messages.items()}


def _copy_message(message: Any) -> Any:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _is_external(job: Any) -> bool:
    """A cancelled activity ends within the task that cancels it, so only completion and failure count."""
    kind = job.WhichOneof("variant")
    ended = kind == "resolve_activity" and job.resolve_activity.result.WhichOneof("status") in ("completed", "failed")
    return ended or kind in _EXTERNAL_JOBS
