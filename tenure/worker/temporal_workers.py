"""The Temporal workers of the process, one per task queue, and the tracing of its client."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client, Interceptor
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from tenure.controller import process
from tenure.controller.temporal import worker_versioning
from tenure.settings import Settings
from tenure.tracing.recorder import TRACES
from workflows import ids
from workflows.runner import WORKFLOWS, OrderedWorkflowRunner

PLANNING = 40
"""Concurrent activities of the plan queue, more than concurrent disruption commands
(`tenure/policy/disruption/commands.py`). Activities that wait for the planner must not keep a plan from starting, which
takes precedence over them."""
WORKFLOW_TASKS = 8
"""Concurrent workflow tasks. Workflow code holds the GIL: many concurrent replays would exceed the two-second limit."""
CACHED_COORDINATORS = 1000
"""NodePools, EC2NodeClasses, disruption commands and the workflows of the cluster: never replaced by NodeClaims."""
STICKY = timedelta(seconds=15)
"""How long a workflow task waits for the worker that has the workflow in its cache; Temporal's default is 10 s. When
500 nodes change at once, tasks wait longer than that. Another worker would have to replay the history from its start.
"""
STICKY_COORDINATORS = timedelta(seconds=5)
"""The same for coordinators, which have their own worker and few histories to replay. Pods wait for the Provisioning
workflow: a task that was scheduled before its worker was killed waits this long. `reset_sticky_queue` affects only
later tasks."""
HEARTBEAT_AT_LEAST = timedelta(seconds=2)
"""By default the SDK sends a heartbeat every 4 s for a timeout of 5 s, so a slow server would fail the watch over."""
DRAINS = 20
"""Drain slots per activity slot. Drains mostly sleep, and drains that a budget blocks must not delay others."""
GRACE = timedelta(seconds=20)
STOP_WITHIN = GRACE + timedelta(seconds=15)
"""Limit of a shutdown: activities are cancelled after `GRACE`, and report their end."""


def activity_worker(
    temporal: Client,
    settings: Settings,
    task_queue: str,
    activities: Sequence[Callable[..., Any]],
    slots: int,
    **workflow_options: Any,
) -> Worker:
    return Worker(
        temporal,
        task_queue=task_queue,
        deployment_config=worker_versioning.deployment_config(
            settings.cluster_name, settings.temporal_worker_build_id, settings.temporal_deployment_name
        ),
        activities=activities,
        max_concurrent_activities=slots,
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        max_heartbeat_throttle_interval=HEARTBEAT_AT_LEAST,
        graceful_shutdown_timeout=GRACE,
        **workflow_options,
    )


def workflow_worker(
    temporal: Client,
    settings: Settings,
    task_queue: str,
    activities: Sequence[Callable[..., Any]],
    *,
    cache_size: int,
    sticky: timedelta = STICKY,
) -> Worker:
    return activity_worker(
        temporal,
        settings,
        task_queue,
        activities,
        settings.activity_slots,
        workflows=WORKFLOWS,
        workflow_runner=OrderedWorkflowRunner(),
        max_cached_workflows=cache_size,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        sticky_queue_schedule_to_start_timeout=sticky,
    )


@asynccontextmanager
async def plan_worker(
    temporal: Client, settings: Settings, activities: Sequence[Callable[..., Any]]
) -> AsyncIterator[None]:
    """Polls the plan queue while this process hosts the watch."""
    async with Worker(
        temporal,
        task_queue=ids.plan_queue(settings.cluster_name),
        activities=activities,
        max_concurrent_activities=PLANNING,
        max_heartbeat_throttle_interval=HEARTBEAT_AT_LEAST,
        graceful_shutdown_timeout=timedelta(seconds=1),
    ):
        yield


async def shut_down(*workers: Worker) -> None:
    """Concurrently: each shutdown waits for running activities, and leaving the block would run them in sequence.

    A worker that does not stop in time ends the process. Temporal repeats its unfinished tasks on another worker.
    """
    if await process.find_unfinished({one.task_queue: one.shutdown() for one in workers}, STOP_WITHIN):
        sys.stdout.flush()
        os._exit(1)


@asynccontextmanager
async def tracing(settings: Settings) -> AsyncIterator[Sequence[Interceptor]]:
    """The interceptors of the Temporal client; none if OTEL_EXPORTER_OTLP_ENDPOINT is not set."""
    if not settings.otel_exporter_otlp_endpoint:
        yield ()
        return
    from tenure.controller.temporal.tracing import StartupTracing, export_to_collector  # noqa: PLC0415 - the import takes 0.2 s

    recorder = export_to_collector(settings.cluster_name, settings.otel_exporter_otlp_endpoint)
    TRACES.recorder = recorder
    try:
        yield (StartupTracing(recorder),)
    finally:
        TRACES.recorder = None
        await asyncio.to_thread(recorder.shut_down)
