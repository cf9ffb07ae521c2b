"""What a worker runs: every workflow, and the sandbox they run in. Tests and the replayer use the same.

A workflow runner that never shows a workflow an event at another time than a replay of its history will, and that
holds no more for a workflow than it needs (docs/decisions/memory-of-a-worker.md).

A worker that has just started may be given a query before the workflow task that delivers a new signal. The history
that comes with the query ends in that signal, and the SDK applies it, at the time of the workflow task before. The
workflow stays in the cache; what it decided by that time goes out with its next task, and is nondeterministic. Here
such an activation fails, and the query with it: Temporal drops the workflow from the cache, and its next task finds it
as its history tells.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import PayloadConverter
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import Info, SandboxImportNotificationPolicy

from workflows.cluster_watch import ShowWorkflow, WatchWorkflow
from workflows.disruption.cluster import ClusterWorkflow
from workflows.disruption.command import DisruptionWorkflow
from workflows.garbage_collection import UpkeepWorkflow
from workflows.interruption import InterruptionWorkflow
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodeclass import NodeClassWorkflow
from workflows.nodepool import NodePoolWorkflow
from workflows.provisioning import ProvisioningWorkflow

M = TypeVar("M", bound=Message)
_FROM_OUTSIDE: Final = frozenset({"signal_workflow", "fire_timer", "cancel_workflow"})


class OutOfTurn(Exception):
    """Events came with a query, before their workflow task."""


@dataclass(frozen=True)
class TimelyRunner(WorkflowRunner):
    """Runs workflows as `inner` does. Those whose own module is one of `passed` are only prepared by it: a sandbox has
    nothing to load for them."""

    inner: WorkflowRunner
    passed: frozenset[str] = frozenset()

    def prepare_workflow(self, defn: Any) -> None:
        self.inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        runner = UnsandboxedWorkflowRunner() if det.defn.cls.__module__ in self.passed else self.inner
        return TimelyInstance(runner.create_instance(_apart(det)))

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        self.inner.set_worker_level_failure_exception_types(types)


class TimelyInstance(WorkflowInstance):
    """Each workflow task has a time of its own, so that new events at the time of the last one are out of turn.

    Of an activation the SDK keeps a part, which keeps all of the memory that the message was read into; so it gets a
    copy, which takes no more than what it says.
    """

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner, self._last = inner, 0
        self._thread: int | None = None
        """That it runs in just now, if any: the SDK interrupts it there when it takes too long."""

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Raises OutOfTurn."""
        time = act.timestamp.ToNanoseconds()
        if time == self._last and not act.is_replaying and any(_is_event(job) for job in act.jobs):
            raise OutOfTurn("events came with a query, before their workflow task: ask again")
        self._last = time
        self._thread = threading.get_ident()
        try:
            return self._inner.activate(_copy(act))
        finally:
            self._thread = None

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._thread


def _apart(det: WorkflowInstanceDetails) -> WorkflowInstanceDetails:
    """The same of what it keeps for the workflow's life; and all workflows have one converter."""
    return replace(
        det,
        info=replace(det.info, raw_memo={key: _copy(value) for key, value in det.info.raw_memo.items()}),
        last_completion_result=_copy(det.last_completion_result),
        payload_converter_factory=partial(_shared, det.payload_converter_factory),
    )


def _copy(message: M) -> M:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


@lru_cache(maxsize=8)
def _shared(made: Callable[[], PayloadConverter]) -> PayloadConverter:
    """It remembers how each type is read, which takes 4 KB and is the same for all."""
    return made()


def _is_event(job: WorkflowActivationJob) -> bool:
    """It comes from outside. An activity that is cancelled ends within the task that asks for it."""
    kind = job.WhichOneof("variant")
    ended = kind == "resolve_activity" and job.resolve_activity.result.WhichOneof("status") in ("completed", "failed")
    return ended or kind in _FROM_OUTSIDE


WORKFLOWS: Sequence[type] = (
    ClusterWorkflow,
    DisruptionWorkflow,
    InterruptionWorkflow,
    NodeClaimWorkflow,
    NodeClassWorkflow,
    NodePoolWorkflow,
    ProvisioningWorkflow,
    ShowWorkflow,
    UpkeepWorkflow,
    WatchWorkflow,
)
PASSED_THROUGH = (
    "activities",
    "tenure.apis",
    "tenure.model",
    "tenure.policy",
    "tenure.scheduling",
    "cronsim",
    "workflows.activity_options",
    "workflows.approvals",
    "workflows.current_details",
    "workflows.disruption.cluster_budget",
    "workflows.disruption.command",
    "workflows.disruption.command_context",
    "workflows.disruption.metrics",
    "workflows.disruption.permits",
    "workflows.ids",
    "workflows.launch_groups",
    "workflows.metrics",
    "workflows.nodeclaim",
    "workflows.nodeclaim_context",
    "workflows.pausable",
    "workflows.phases",
    "workflows.rollout",
    "workflows.search_attributes",
    "workflows.static_capacity",
    "workflows.visibility",
)
"""Loaded once and shared by all runs; kept deterministic by the linter's bans and the import contracts."""


def runner() -> TimelyRunner:
    """Our own packages pass through; a module that was forgotten is an error when the worker is made."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(
        *PASSED_THROUGH
    ).with_import_notification_policy(
        SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
    return TimelyRunner(SandboxedWorkflowRunner(restrictions=restrictions), frozenset(PASSED_THROUGH))
