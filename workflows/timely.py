"""A workflow runner that never shows a workflow an event at another time than a replay of its history will.

A worker that has just started may be given a query before the workflow task that delivers a new signal. The history
that comes with the query ends in that signal, and the SDK applies it, at the time of the workflow task before. The
workflow stays in the cache; what it decided by that time goes out with its next task, and is nondeterministic. Here
such an activation fails, and the query with it: Temporal drops the workflow from the cache, and its next task finds it
as its history tells.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

_FROM_OUTSIDE: Final = frozenset({"signal_workflow", "fire_timer", "cancel_workflow"})


class OutOfTurn(Exception):
    """Events came with a query, before their workflow task."""


@dataclass(frozen=True)
class TimelyRunner(WorkflowRunner):
    """Runs workflows as `inner` does."""

    inner: WorkflowRunner

    def prepare_workflow(self, defn: Any) -> None:
        self.inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return TimelyInstance(self.inner.create_instance(det))

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        self.inner.set_worker_level_failure_exception_types(types)


class TimelyInstance(WorkflowInstance):
    """Each workflow task has a time of its own, so that new events at the time of the last one are out of turn."""

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner, self._last = inner, 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Raises OutOfTurn."""
        time = act.timestamp.ToNanoseconds()
        if time == self._last and not act.is_replaying and any(_is_event(job) for job in act.jobs):
            raise OutOfTurn("events came with a query, before their workflow task: ask again")
        self._last = time
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


def _is_event(job: WorkflowActivationJob) -> bool:
    """It comes from outside. An activity that is cancelled ends within the task that asks for it."""
    kind = job.WhichOneof("variant")
    ended = kind == "resolve_activity" and job.resolve_activity.result.WhichOneof("status") in ("completed", "failed")
    return ended or kind in _FROM_OUTSIDE
