"""Worker Versioning, where one build gets a cluster's tasks; and the number of workers, which share AWS's rates.

A worker makes its build current if there is no current build, or if the current one has no workers and is not newer.
Otherwise it waits for a promotion ([promotion.py](promotion.py)). Open workflows continue with the new current build
from their next task; the previous build completes its running tasks."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import structlog
from google.protobuf.timestamp_pb2 import Timestamp
from packaging.version import InvalidVersion, Version
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
)
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

from tenure.clock import utc_now
from tenure.controller.temporal import pollers
from tenure.controller.temporal.errors import lacks_namespace
from tenure.metrics import Recorder
from tenure.model.errors import BadInput
from workflows import ids

log = structlog.get_logger(__name__)

_EVERY: Final = 10.0


@asynccontextmanager
async def watch_replicas(temporal: Client, queue: str, on_change: Callable[[int], None]) -> AsyncIterator[None]:
    """Meanwhile, call `on_change` every few seconds with the number of workers, unless Temporal does not respond."""
    task = asyncio.create_task(_poll_replicas(temporal, queue, on_change))
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
    found = await pollers.list_pollers(temporal, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    return pollers.count_live_pollers(found, utc_now())


_REGISTRATION_SECONDS: Final = 0.5
"""Temporal knows a build from the first polls of its workers."""
_PROMOTION_SECONDS: Final = 2.0
"""Interval of a worker that waits for a promotion. Temporal rejects five descriptions of a deployment per second."""
_UNKNOWN: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.UNIMPLEMENTED)


def deployment_version(cluster: str, build: str, deployment: str = "") -> WorkerDeploymentVersion:
    name = deployment or ids.worker_deployment_name(cluster)
    return WorkerDeploymentVersion(deployment_name=name, build_id=build)


def deployment_config(cluster: str, build: str, deployment: str = "") -> WorkerDeploymentConfig | None:
    """For every Worker except that of the plan queue, which only one process polls. None: no Worker Versioning.

    `deployment`: a deployment of Temporal's worker controller; by default that of the cluster."""
    if not build:
        return None
    return WorkerDeploymentConfig(
        version=deployment_version(cluster, build, deployment),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
    )


@dataclass(frozen=True)
class Builds:
    """The builds of a cluster's workers. `current` and `ramping` are empty if there is none."""

    current: str = ""
    ramping: str = ""
    ramp_percentage: float = 0.0
    ramp_started: datetime | None = None
    workers: Mapping[str, int] = field(default_factory=dict)
    """Number of workers that poll for workflow tasks, by build."""
    became_current: Mapping[str, datetime] = field(default_factory=dict)
    """When each build became current the last time; without those that never were."""
    without_tasks_since: Mapping[str, datetime] = field(default_factory=dict)
    """When each build appeared, or stopped being the current or ramping one."""
    conflict_token: bytes = b""
    """A change with this token fails if the routing changed since it was read."""


async def read_builds(temporal: Client, cluster: str, deployment: str = "") -> Builds:
    """None are known before the first worker with a build, or on a server without worker deployments. Raises RPCError.

    A busy Temporal returns RESOURCE_EXHAUSTED while its own workflow for the deployment is late, so the call is retried
    for some seconds."""
    request = DescribeWorkerDeploymentRequest(
        namespace=temporal.namespace, deployment_name=deployment or ids.worker_deployment_name(cluster)
    )
    try:
        response = await temporal.workflow_service.describe_worker_deployment(request, retry=True)
    except RPCError as error:
        if error.status not in _UNKNOWN or lacks_namespace(error):
            raise
        return Builds()
    queue, kind = ids.task_queue(cluster), TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    found, now = await pollers.list_pollers(temporal, queue, kind, retry=True), utc_now()
    alive = {(one.deployment_options.build_id, one.identity) for one in found if pollers.is_alive(one, now)}
    info = response.worker_deployment_info
    routing = info.routing_config
    return Builds(
        current=routing.current_deployment_version.build_id,
        ramping=routing.ramping_deployment_version.build_id,
        ramp_percentage=routing.ramping_version_percentage,
        ramp_started=_read_time(routing.ramping_version_changed_time),
        workers=Counter(build for build, _ in alive if build),
        became_current={
            one.deployment_version.build_id: at
            for one in info.version_summaries
            if (at := _read_time(one.last_current_time))
        },
        without_tasks_since={
            one.deployment_version.build_id: at
            for one in info.version_summaries
            if (at := _read_time(one.last_deactivation_time) or _read_time(one.create_time))
        },
        conflict_token=response.conflict_token,
    )


def _read_time(timestamp: Timestamp) -> datetime | None:
    return timestamp.ToDatetime(UTC) if timestamp.seconds else None


def is_newer(build: str, than: str) -> bool:
    """By PEP 440, of the part before `+`, such as 0.3.0 in `0.3.0+0123456789ab`. Other build IDs are not comparable, so
    none of them is newer."""
    try:
        return Version(build.partition("+")[0]) > Version(than.partition("+")[0])
    except InvalidVersion:
        return False


def takes_over(build: str, builds: Builds) -> bool:
    """Whether a worker makes its build current without a promotion."""
    if not builds.current:
        return True
    return builds.current not in builds.workers and build != builds.current and not is_newer(builds.current, build)


def describe_wait(build: str, builds: Builds, cluster: str) -> str:
    """Why a worker of this build gets no tasks, with the command; empty if it gets all."""
    if build == builds.current:
        return ""
    if builds.current in builds.workers:
        wait = f"build {build} waits for its promotion, and {builds.current} is current"
        return f"{wait}: `tenure build status` shows both, `tenure build promote --build {build}` promotes it"
    return (
        f"no worker runs the current build {builds.current}, which is newer than {build}: deploy it again, or run "
        f"`tenure build rollback --cluster-name {cluster} --build {build}`"
    )


async def set_current_build(temporal: Client, cluster: str, build: str, builds: Builds) -> None:
    """Raises RPCError, with FAILED_PRECONDITION if another process changed the routing since `builds`."""
    await temporal.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=temporal.namespace,
            deployment_name=ids.worker_deployment_name(cluster),
            build_id=build,
            conflict_token=builds.conflict_token,
        ),
        retry=True,
    )


async def set_ramping_build(temporal: Client, cluster: str, build: str, percentage: float, builds: Builds) -> None:
    """An empty build ends the ramp. Raises RPCError as `set_current_build` does."""
    await temporal.workflow_service.set_worker_deployment_ramping_version(
        SetWorkerDeploymentRampingVersionRequest(
            namespace=temporal.namespace,
            deployment_name=ids.worker_deployment_name(cluster),
            build_id=build,
            percentage=percentage,
            conflict_token=builds.conflict_token,
        ),
        retry=True,
    )


async def require_build(temporal: Client, cluster: str, build: str) -> None:
    """Raise `BadInput` for a worker without a build if others have one, since it would get no task."""
    try:
        current = "" if build else (await read_builds(temporal, cluster)).current
    except RPCError as error:
        log.warning("current build not read", error=str(error))
        return
    if current:
        raise BadInput(
            f"TEMPORAL_WORKER_BUILD_ID is not set, and the tasks of {cluster} go to build {current!r} alone: set it, "
            "or `temporal worker deployment set-current-version --unversioned "
            f"--deployment-name {ids.worker_deployment_name(cluster)}`"
        )


async def wait_until_current(
    temporal: Client,
    cluster: str,
    build: str,
    report: Callable[[str], None],
    *,
    serves_current_build: Recorder,
    deployment: str = "",
) -> None:
    """`report` receives the reason to wait. Raises `BadInput` if Temporal has no worker deployments.

    With `deployment`, Temporal's worker controller promotes builds: the worker does not take over and is ready while it
    waits."""
    reason = "" if build else None
    while reason is not None:
        try:
            if deployment:
                current = (await read_builds(temporal, cluster, deployment)).current
                found = "" if current == build else f"{deployment} has the current build {current or '(none)'}"
            else:
                found = describe_wait(build, await _maintain_current(temporal, cluster, build), cluster)
            seconds = _PROMOTION_SECONDS
        except RPCError as error:
            if error.status is RPCStatusCode.UNIMPLEMENTED:
                raise BadInput(
                    f"TEMPORAL_WORKER_BUILD_ID={build!r}: this Temporal server has no worker deployments: "
                    f"{error.message}; upgrade it to 1.28 or newer, or unset it"
                ) from error
            found, seconds = f"the current build is not known yet: {error.message}", _REGISTRATION_SECONDS
        if not found:
            break
        serves_current_build.record(0)
        if not deployment:
            report(found)
        if found != reason:
            log.warning("waiting for the promotion of this build", build=build, reason=found)
        reason = found
        await asyncio.sleep(seconds)
    serves_current_build.record(1)


async def maintain_current(temporal: Client, cluster: str, build: str, *, serves_current_build: Recorder) -> None:
    """Until cancelled: ensure that the current and the ramping build have workers."""
    while build:
        await asyncio.sleep(_EVERY)
        try:
            builds = await _maintain_current(temporal, cluster, build)
            serves_current_build.record(builds.current == build)
        except RPCError as error:
            log.warning("check of the current build failed", error=str(error))


async def _maintain_current(temporal: Client, cluster: str, build: str) -> Builds:
    """Take over, or end a ramp whose build has no workers; returns the builds afterwards."""
    builds = await read_builds(temporal, cluster)
    if takes_over(build, builds):
        await set_current_build(temporal, cluster, build, builds)
        log.info("build promoted to current", build=build, before=builds.current)
        return replace(builds, current=build)
    if builds.ramping and builds.ramping not in builds.workers:
        log.warning("no workers of the ramping build", ramping=builds.ramping)
        await set_ramping_build(temporal, cluster, "", 0, builds)
    return builds
