"""Worker Versioning, where one build gets a cluster's tasks; and the number of workers, which share AWS's rates.

A build becomes the current one when it starts, and again when the current one has no pollers any more. Open workflows
continue with it from their next task; the previous build completes its running tasks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

from tenure.clock import utc_now
from tenure.model.errors import BadInput
from workflows import ids

log = structlog.get_logger(__name__)

_EVERY: Final = 10.0
_POLLER_TTL: Final = timedelta(seconds=70)
"""A running worker polls at least once a minute."""


@asynccontextmanager
async def watch_replicas(temporal: Client, queue: str, on_change: Callable[[int], None]) -> AsyncIterator[None]:
    """Meanwhile, call `on_change` every few seconds with the number of workers, unless Temporal does not respond."""
    async with _running(_poll_replicas(temporal, queue, on_change)):
        yield


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _poll_replicas(temporal: Client, queue: str, on_change: Callable[[int], None]) -> None:
    known = 1
    while True:
        try:
            number = await count_replicas(temporal, queue)
        except RPCError as error:
            log.warning("workers cannot be counted", error=str(error))
        else:
            if number != known:
                log.info("workers share the rates of AWS", workers=number)
                known = number
            on_change(number)
        await asyncio.sleep(_EVERY)


async def count_replicas(temporal: Client, queue: str) -> int:
    """Workers that recently polled this queue for activities; at least 1, for this worker."""
    pollers = await list_pollers(temporal, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    return count_live_pollers(pollers, utc_now())


async def list_pollers(
    temporal: Client, queue: str, kind: "TaskQueueType.ValueType", *, retry: bool = False
) -> Sequence[PollerInfo]:
    """Pollers of the last minutes. Raises RPCError."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    return (await temporal.workflow_service.describe_task_queue(request, retry=retry)).pollers


def count_live_pollers(pollers: Iterable[PollerInfo], now: datetime) -> int:
    return max(1, len({one.identity for one in pollers if is_alive(one, now)}))


async def is_unpolled(temporal: Client, queue: str) -> bool:
    """Whether no worker polls this activity queue, although Temporal responds."""
    try:
        pollers, now = await list_pollers(temporal, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY), utc_now()
    except RPCError:
        return False
    return not any(is_alive(one, now) for one in pollers)


def is_alive(poller: PollerInfo, now: datetime) -> bool:
    return now - poller.last_access_time.ToDatetime(UTC) < _POLLER_TTL


_AT_START: Final = 0.5
_UNKNOWN: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.UNIMPLEMENTED)


def deployment_config(cluster: str, build: str) -> WorkerDeploymentConfig | None:
    """For every Worker except that of the plan queue, which only one process polls. None: no Worker Versioning."""
    if not build:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=ids.worker_deployment_name(cluster), build_id=build),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
    )


async def current_build(temporal: Client, cluster: str) -> str:
    """Empty if workers have no versions. Raises RPCError.

    A busy Temporal returns RESOURCE_EXHAUSTED while its own workflow for the deployment is late, so the call is retried
    for some seconds."""
    request = DescribeWorkerDeploymentRequest(
        namespace=temporal.namespace, deployment_name=ids.worker_deployment_name(cluster)
    )
    try:
        response = await temporal.workflow_service.describe_worker_deployment(request, retry=True)
    except RPCError as error:
        if error.status in _UNKNOWN:
            return ""
        raise
    return response.worker_deployment_info.routing_config.current_deployment_version.build_id


async def require_build(temporal: Client, cluster: str, build: str) -> None:
    """Raise `BadInput` for a worker without a build if others have one, since it would get no task."""
    try:
        current = "" if build else await current_build(temporal, cluster)
    except RPCError as error:
        log.warning("current build not read", error=str(error))
        return
    if current:
        raise BadInput(
            f"TEMPORAL_WORKER_BUILD_ID is not set, and the tasks of {cluster} go to build {current!r} alone: set it, "
            "or `temporal worker deployment set-current-version --unversioned "
            f"--deployment-name {ids.worker_deployment_name(cluster)}`"
        )


@asynccontextmanager
async def as_current_build(
    temporal: Client, cluster: str, build: str, report: Callable[[str], None]
) -> AsyncIterator[None]:
    """Enter when this build is the current one, and later ensure that the current build has workers.

    `report` receives the reason to wait."""
    if not build:
        yield
        return
    await _become_current(temporal, cluster, build, report)
    async with _running(_maintain_current(temporal, cluster, build)):
        yield


async def _become_current(temporal: Client, cluster: str, build: str, report: Callable[[str], None]) -> None:
    """Retry until Temporal knows the build, from the first calls of its workers."""
    while True:
        try:
            return await _set_current(temporal, cluster, build)
        except RPCError as error:
            if error.status is RPCStatusCode.UNIMPLEMENTED:
                raise BadInput(
                    f"TEMPORAL_WORKER_BUILD_ID={build!r}: this Temporal server has no worker deployments: "
                    f"{error.message}; upgrade it to 1.28 or newer, or unset it"
                ) from error
            report(f"Temporal does not route tasks to build {build} yet: {error.message}")
            await asyncio.sleep(_AT_START)


async def _maintain_current(temporal: Client, cluster: str, build: str) -> None:
    while True:
        await asyncio.sleep(_EVERY)
        try:
            current = await current_build(temporal, cluster)
            if current != build and not await _is_at_work(temporal, cluster, current):
                log.warning("no pollers on current build", current=current, build=build)
                await _set_current(temporal, cluster, build)
        except RPCError as error:
            log.warning("check of the current build failed", error=str(error))


async def _set_current(temporal: Client, cluster: str, build: str) -> None:
    before = await current_build(temporal, cluster)
    if before != build:
        await temporal.workflow_service.set_worker_deployment_current_version(
            SetWorkerDeploymentCurrentVersionRequest(
                namespace=temporal.namespace, deployment_name=ids.worker_deployment_name(cluster), build_id=build
            ),
            retry=True,
        )
        log.info("build promoted to current", build=build, before=before)


async def _is_at_work(temporal: Client, cluster: str, build: str) -> bool:
    queue, kind = ids.task_queue(cluster), TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    pollers, now = await list_pollers(temporal, queue, kind, retry=True), utc_now()
    return any(one.deployment_options.build_id == build and is_alive(one, now) for one in pollers)
