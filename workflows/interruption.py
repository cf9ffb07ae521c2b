"""The Interruption workflow stores the results of the readers of AWS interruption messages for their next process.

There is one per cluster. The process that hosts the watch reads the sources (queue, instance status). The NodeClaim
workflows report the outcome of each message.
"""

from collections import Counter
from typing import Any

from temporalio import workflow

from tenure.model.interruption.records import (
    InterruptionState,
    MessageCounts,
    OpenInterruptions,
    QueueSetting,
    SourceReport,
    SourceState,
)
from workflows import current_details
from workflows.activity_options import is_continue_as_new_due
from workflows.current_details import IgnoresCancellation, publish_details


@workflow.defn(name="Interruption")
class InterruptionWorkflow(IgnoresCancellation):
    how_to_stop = "scale the Deployment of the worker to zero, or unset INTERRUPTION_QUEUE"

    @workflow.init
    def __init__(self, state: InterruptionState) -> None:
        self._state = state

    @workflow.run
    async def run(self, state: InterruptionState) -> None:
        counts = self._state.message_counts or MessageCounts(since=workflow.now())
        self._update_state(message_counts=counts)
        await workflow.wait_condition(is_continue_as_new_due)
        workflow.continue_as_new(self._state)

    @workflow.signal(description="From a worker at its start: the queue to read")
    def set_queue(self, request: QueueSetting) -> None:
        """The settings of a worker that has just started replace those of earlier workers."""
        if request.queue != self._state.queue:
            self._update_state(queue=request.queue, messages=SourceState())

    @workflow.signal(description="From the watch: whether the queue or the instance status can be read")
    def report_source(self, report: SourceReport) -> None:
        before = self._state.messages if report.source == "messages" else self._state.statuses
        state = (
            SourceState(failing_since=before.failing_since or report.at, fault=report.fault, fault_at=report.at)
            if report.fault
            else before.model_copy(update={"failing_since": None})
        )
        self._update_state(**{report.source: state})

    @workflow.signal(description="From the watch: the open messages of the instance status")
    def report_open_interruptions(self, report: OpenInterruptions) -> None:
        self._update_state(open_interruptions=report.open_interruptions)

    @workflow.signal(description="From the watch: outcomes of further queue messages")
    def add_message_counts(self, added: MessageCounts) -> None:
        before = self._state.message_counts or added.model_copy(update={"counts": {}})
        counts = dict(Counter(before.counts) + Counter(added.counts))
        self._update_state(message_counts=before.model_copy(update={"counts": counts}))

    @workflow.query(description="The complete state of the workflow")
    def state(self) -> InterruptionState:
        return self._state

    def _update_state(self, **fields: Any) -> None:
        self._state = self._state.model_copy(update=fields)
        publish_details(current_details.render_interruption(self._state))
