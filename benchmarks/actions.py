"""Billable Temporal actions of a cluster's workflows, by Temporal Cloud's list (docs/decisions/temporal-cost.md)."""

from collections import Counter
from datetime import UTC, datetime
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.probes import read_metrics

ACTIONS: Final = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "starts",
    EventType.EVENT_TYPE_TIMER_STARTED: "timers",
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: "activities",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signals",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search attributes",
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED: "memos",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
}
"""Events that are one action each. Retries of activities are counted with their start, from the attempt."""
HEARTBEAT: Final = "RecordActivityTaskHeartbeat"


async def count_actions(temporal: Client, cluster: str, since: datetime) -> dict[str, Counter[str]]:
    """By workflow type: actions in histories since then."""
    found: dict[str, Counter[str]] = {}
    async for execution in temporal.list_workflows(f"WorkflowId STARTS_WITH '{cluster}/'"):
        if execution.close_time and execution.close_time < since:
            continue
        counts = found.setdefault(execution.workflow_type, Counter())
        handle = temporal.get_workflow_handle(execution.id, run_id=execution.run_id)
        async for event in handle.fetch_history_events():
            if event.event_time.ToDatetime(UTC) >= since:
                if name := ACTIONS.get(event.event_type):
                    counts[name] += 1
                counts["retries"] += max(0, event.activity_task_started_event_attributes.attempt - 1)
                counts["events"] += 1
    return found


async def count_heartbeats(session: SandboxSession) -> int:
    """Recorded heartbeats of the worker's activities, since its start."""
    text = await read_metrics(session.worker.metrics_port)
    return int(
        sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "temporal_request" and sample.labels.get("operation") == HEARTBEAT
        )
    )
