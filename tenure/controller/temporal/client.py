"""Temporal for the worker: a client with metrics, and the singleton workflows. `BadInput` names the setting to fix."""

import asyncio
import logging
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import structlog
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client, Interceptor, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.temporal.connection import Security, why_not
from tenure.controller.temporal.errors import lacks_namespace
from tenure.metrics import METRICS, Recorder
from tenure.model.base import Message
from tenure.model.disruption.commands import DisruptionState
from tenure.model.errors import BadInput
from tenure.model.garbage_collection import GarbageCollectorState
from tenure.model.interruption.records import InterruptionState, QueueSetting
from tenure.model.workflow_states import BatchWindow, ClusterWatchState, ProvisioningState
from workflows import ids

log = structlog.get_logger(__name__)

RESET_TIMEOUT = timedelta(seconds=3)
SINGLETON_CHECK_EVERY: Final = timedelta(minutes=1)
CLUSTER_UID: Final = "TenureClusterUID"
"""Field of the ClusterWatch workflow's memo."""
CORE_LOGGING: Final = LoggingConfig(
    filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
    forwarding=LogForwardingConfig(
        logger=logging.getLogger("temporalio.core"),
        append_target_to_name=False,
        prepend_target_on_message=False,
        append_log_fields_to_message=False,
    ),
)
"""Temporal Core logs through Python, in the form of all other lines. The formatter adds its fields."""


async def connect(
    address: str, *, namespace: str, security: Security, metrics_port: int, interceptors: Sequence[Interceptor] = ()
) -> Client:
    """`metrics_port`: where Prometheus scrapes; 0 opens no port. Raises `BadInput`."""
    metrics = metrics_at(metrics_port) if metrics_port else None
    try:
        runtime = Runtime(telemetry=TelemetryConfig(metrics=metrics, logging=CORE_LOGGING, attach_service_name=False))
    except ValueError as error:
        raise BadInput(f"METRICS_PORT={metrics_port}: {error}; choose a free port") from error
    try:
        return await Client.connect(
            address,
            namespace=namespace,
            tls=security.tls_config(),
            api_key=security.read_api_key(),
            data_converter=security.data_converter(),
            interceptors=interceptors,
            runtime=runtime,
        )
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"TEMPORAL_ADDRESS={address!r}: no Temporal service responds: {why_not(str(error))}") from error


def metrics_at(port: int) -> PrometheusConfig:
    return PrometheusConfig(
        bind_address=f"{wildcard_address()}:{port}",
        durations_as_seconds=True,
        histogram_bucket_overrides={one.name: one.buckets for one in METRICS if one.buckets},
    )


def wildcard_address() -> str:
    """All addresses of this machine: IPv6 if it accepts IPv4 connections too, as by default; else IPv4."""
    try:
        with socket.socket(socket.AF_INET6) as tried:
            v6_only = tried.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            tried.bind(("::", 0))
    except OSError:
        return "0.0.0.0"
    return "0.0.0.0" if v6_only else "[::]"


@dataclass(frozen=True)
class Installation:
    """The settings of this process that the singletons receive."""

    cluster: str
    window: BatchWindow = field(default_factory=BatchWindow)
    queue: str = ""
    """Name of the queue of EC2 events."""
    cluster_uid: str = ""
    """UID of the Kubernetes cluster: of its namespace `kube-system`."""


async def require_cluster(temporal: Client, installation: Installation) -> None:
    """Raise BadInput if another Kubernetes cluster uses the same name in this Temporal namespace, since each of them
    would delete the nodes of the other. Needs no worker. Raises RPCError."""
    workflow_id = ids.watch(installation.cluster)
    try:
        description = await temporal.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND and not lacks_namespace(error):
            return
        raise
    owner = (await description.memo()).get(CLUSTER_UID, installation.cluster_uid)
    if description.status is WorkflowExecutionStatus.RUNNING and owner != installation.cluster_uid:
        raise BadInput(
            f"CLUSTER_NAME={installation.cluster}: the Kubernetes cluster with UID {owner} uses this name in Temporal "
            f"namespace {temporal.namespace}, and this cluster has UID {installation.cluster_uid}: set another "
            "CLUSTER_NAME or TEMPORAL_NAMESPACE. If the other cluster no longer exists: "
            f"`temporal workflow terminate --workflow-id {workflow_id}`"
        )


async def start_singletons(temporal: Client, installation: Installation, *, only: Collection[str] = ()) -> None:
    """Start the Watch, Provisioning, Cluster, Interruption and GarbageCollector workflows that do not run yet. Running
    ones receive the settings, on any worker: the one that has them in its cache was perhaps killed a moment ago, and
    later tasks would wait for it, too. `only`: limits the start to these workflow IDs."""
    cluster, window, events = installation.cluster, installation.window, installation.queue
    named: dict[str, Any] = {"start_signal": "set_queue", "start_signal_args": [QueueSetting(queue=events)]}
    opened: dict[str, Any] = {"start_signal": "set_batch_window", "start_signal_args": [window]}
    starts: dict[str, tuple[str, Message, dict[str, Any]]] = {
        "ClusterWatch": (
            "watch",
            ClusterWatchState(cluster=cluster),
            {"memo": {CLUSTER_UID: installation.cluster_uid}},
        ),
        "Provisioning": ("provisioning", ProvisioningState(cluster=cluster, window=window), opened),
        # The watch signals only changes: without one, a Cluster workflow that a person terminated would run no pass.
        "Cluster": ("voluntary disruption", DisruptionState(cluster=cluster, has_changed=True), {}),
        "Interruption": ("AWS events", InterruptionState(cluster=cluster, queue=events), named),
        "GarbageCollector": ("garbage collection", GarbageCollectorState(cluster=cluster), {}),
    }
    for workflow_id, workflow_type in list_singletons(cluster).items():
        if not only or workflow_id in only:
            task, state, more = starts[workflow_type]
            await reset_sticky_queue(temporal, workflow_id)
            await temporal.start_workflow(
                workflow_type,
                state,
                id=workflow_id,
                task_queue=ids.coordinator_queue(cluster),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"{task} of cluster {cluster}",
                **more,
            )


def list_singletons(cluster: str) -> dict[str, str]:
    """The types of the workflows that `start_singletons` starts, by ID."""
    return {
        ids.watch(cluster): "ClusterWatch",
        ids.provisioning(cluster): "Provisioning",
        ids.cluster(cluster): "Cluster",
        ids.interruption(cluster): "Interruption",
        ids.garbage_collection(cluster): "GarbageCollector",
    }


async def is_open(temporal: Client, workflow_id: str) -> bool:
    """Whether a run of the workflow is open, as Temporal itself knows. Raises RPCError."""
    try:
        description = await temporal.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return description.status is WorkflowExecutionStatus.RUNNING


async def restart_missing_singletons(
    temporal: Client,
    installation: Installation,
    *,
    missing_workflows: Recorder,
    every: timedelta = SINGLETON_CHECK_EVERY,
) -> None:
    """Until cancelled: start each singleton again that a person terminated. The check costs no Temporal action."""
    singletons = list_singletons(installation.cluster)
    for workflow_type in singletons.values():
        missing_workflows.record(0, workflow=workflow_type)
    while True:
        await asyncio.sleep(every.total_seconds())
        try:
            missing = [one for one in singletons if not await is_open(temporal, one)]
            if missing:
                for one in missing:
                    missing_workflows.record(workflow=singletons[one])
                await start_singletons(temporal, installation, only=missing)
                log.warning("started missing workflows", workflows=missing)
        except RPCError as error:
            log.warning("singleton workflows not checked", error=str(error))


async def reset_sticky_queue(temporal: Client, workflow_id: str) -> None:
    """Let any worker take its next task. Otherwise the task waits for the worker that cached it and may be gone."""
    request = ResetStickyTaskQueueRequest(
        namespace=temporal.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    try:
        await temporal.workflow_service.reset_sticky_task_queue(request, timeout=RESET_TIMEOUT)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            log.warning("sticky queue not reset", workflow=workflow_id, error=str(error))


async def try_signal(temporal: Client, workflow_id: str, name: str, argument: Message, timeout: timedelta) -> bool:
    """Whether Temporal accepted the signal. A rejection is logged."""
    try:
        await temporal.get_workflow_handle(workflow_id).signal(name, argument, rpc_timeout=timeout)
    except RPCError as error:
        log.warning("signal not accepted", workflow=workflow_id, signal=name, error=str(error))
        return False
    return True
