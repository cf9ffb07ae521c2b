"""The worker: entry point and composition root. Settings, clients, adapters, activities, the Temporal worker.

Any number of replicas may run; one of them hosts the watch. It starts with the singletons in place, stops on SIGTERM
when what is under way has ended, and answers a wrong setting with one line and exit code 2.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import PollerBehaviorAutoscaling, Worker

import aws.adapters
import kube.adapters
from activities.disruption import DisruptionActivities
from activities.draining import DrainActivities
from activities.joining import JoiningActivities
from activities.launching import LaunchActivities
from activities.lives import Lives
from activities.node_classes import NodeClassActivities
from activities.pools import PoolActivities
from activities.recalling import RecallActivities
from activities.termination import TerminationActivities
from activities.watch import WatchActivities
from aws.settings import AwsSettings
from controller.health import Health
from controller.host import ClusterHost
from controller.settings import HostSettings
from model.coordination import BatchWindow, ProvisioningState
from model.faults import Fault
from model.lifecycle import ClaimIdentity
from scheduling.state import PlanSettings
from settings import Settings, SettingsError, help_text, load
from workflows import attributes, ids
from workflows.provisioning import ProvisioningWorkflow
from workflows.registry import WORKFLOWS, runner
from workflows.watch import WatchWorkflow

log = structlog.get_logger("worker")

WORKFLOW_TASKS = 4
"""At once: workflow code holds the interpreter, and many replays together would trip the two-second limit."""
CACHED_WORKFLOWS = 2000
GRACE = timedelta(seconds=20)
LOOK_FOR_OTHERS_EVERY = 10.0
KINDS = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
    "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
}


@dataclass(frozen=True)
class Names:
    """How workflows are named, for activities that speak to them."""

    cluster: str

    def workflow_id(self, identity: ClaimIdentity) -> str:
        return ids.nodeclaim(identity.cluster, identity.name, identity.uid)

    def task_queue(self) -> str:
        return ids.task_queue(self.cluster)

    def attributes(self, identity: ClaimIdentity) -> TypedSearchAttributes:
        return attributes.start_attributes(identity)


def main(args: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if args is None else args)
    if "--help" in arguments or "-h" in arguments:
        print(f"usage: worker.py [--FLAG VALUE]...\n\n{help_text()}")
        return 0
    try:
        settings = load(arguments)
        configure_logs(settings)
        asyncio.run(run(settings))
    except SettingsError as error:
        print(f"tenure: {error}", file=sys.stderr)
        return 2
    return 0


async def run(settings: Settings) -> None:
    """Until SIGTERM or SIGINT. Raises SettingsError where the world that the settings name does not answer."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    waiting = ["starting"]
    health = Health(settings.health_probe_port, lambda: waiting[0])
    try:
        await health.start()
    except OSError as error:
        raise SettingsError(
            f"HEALTH_PROBE_PORT={settings.health_probe_port}: {error.strerror}; name a free one"
        ) from error
    temporal = await connect_temporal(settings)
    cluster = await connect_kubernetes(settings)
    cloud = aws.adapters.build(aws_settings(settings))
    try:
        await wait_for_others(settings, cluster, stop, waiting)
        if not stop.is_set():
            await serve(settings, temporal, cluster, cloud, stop, waiting)
    finally:
        await cluster.close()
        cloud.close()
        await health.close()


async def serve(
    settings: Settings,
    temporal: Client,
    cluster: kube.adapters.KubeAdapters,
    cloud: aws.adapters.AwsAdapters,
    stop: asyncio.Event,
    waiting: list[str],
) -> None:
    await register_attributes(temporal)
    host = ClusterHost(
        settings=host_settings(settings),
        kube=cluster,
        temporal=temporal,
        offerings=cloud.offerings,
        plan_worker=lambda: plan_worker(temporal, settings, watch),
    )
    watch = WatchActivities(host)
    worker = Worker(
        temporal,
        task_queue=ids.task_queue(settings.cluster_name),
        workflows=WORKFLOWS,
        activities=[*activities_of(settings, temporal, cluster, cloud), watch.watch_cluster],
        workflow_runner=runner(),
        max_cached_workflows=CACHED_WORKFLOWS,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS,
        max_concurrent_activities=settings.activity_slots,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        graceful_shutdown_timeout=GRACE,
    )
    async with worker:
        await start_singletons(temporal, settings)
        waiting[0] = ""
        log.info("worker runs", cluster=settings.cluster_name, temporal=settings.temporal_address)
        await stop.wait()
        waiting[0] = "stopping"
        log.info("worker stops")


def activities_of(
    settings: Settings, temporal: Client, cluster: kube.adapters.KubeAdapters, cloud: aws.adapters.AwsAdapters
) -> list[Callable[..., Any]]:
    """Every activity of the main task queue. Here mypy proves that the adapters fit the ports."""
    name = settings.cluster_name
    launching = LaunchActivities(
        claims=cluster.claims,
        node_classes=cluster.node_classes,
        fleet=cloud.fleet,
        instances=cloud.instances,
        events=cluster.events,
        lives=Lives(temporal, name, Names(name), settings.deadlines()),
    )
    recalling = RecallActivities(
        claims=cluster.claims,
        nodes=cluster.nodes,
        node_classes=cluster.node_classes,
        fleet=cloud.fleet,
        instances=cloud.instances,
    )
    joining = JoiningActivities(claims=cluster.claims, nodes=cluster.nodes, events=cluster.events)
    disruption = DisruptionActivities(
        claims=cluster.claims, nodes=cluster.nodes, pods=cluster.pods, events=cluster.events
    )
    draining = DrainActivities(claims=cluster.claims, nodes=cluster.nodes, pods=cluster.pods, events=cluster.events)
    ending = TerminationActivities(claims=cluster.claims, nodes=cluster.nodes, instances=cloud.instances)
    pools = PoolActivities(
        pools=cluster.pools,
        claims=cluster.claims,
        nodes=cluster.nodes,
        node_classes=cluster.node_classes,
        events=cluster.events,
    )
    classes = NodeClassActivities(node_classes=cluster.node_classes, claims=cluster.claims, resolver=cloud.resolver)
    return [
        launching.prepare_launch,
        launching.prepare_group,
        launching.launch_alone,
        launching.launch_group,
        launching.refuse_group,
        recalling.recall_life,
        joining.register_node,
        joining.initialize_node,
        disruption.disrupt_claim,
        disruption.report,
        draining.drain_node,
        ending.terminate_node,
        ending.instance_runs,
        pools.update_pool,
        pools.read_allowance,
        classes.resolve_node_class,
        classes.remove_node_class,
    ]


@asynccontextmanager
async def plan_worker(temporal: Client, settings: Settings, watch: WatchActivities) -> AsyncIterator[None]:
    """Polls the plan queue while this process hosts the watch."""
    async with Worker(
        temporal,
        task_queue=ids.plan_queue(settings.cluster_name),
        activities=[watch.plan_capacity],
        max_concurrent_activities=2,
        graceful_shutdown_timeout=timedelta(seconds=1),
    ):
        yield


async def start_singletons(temporal: Client, settings: Settings) -> None:
    """Watch and Provisioning: one each, whoever comes first."""
    name = settings.cluster_name
    queue, policy = ids.task_queue(name), WorkflowIDConflictPolicy.USE_EXISTING
    await temporal.start_workflow(
        WatchWorkflow.run, name, id=ids.watch(name), task_queue=queue, id_conflict_policy=policy
    )
    await temporal.start_workflow(
        ProvisioningWorkflow.run,
        ProvisioningState(cluster=name, window=window(settings)),
        id=ids.provisioning(name),
        task_queue=queue,
        id_conflict_policy=policy,
    )


async def register_attributes(temporal: Client) -> None:
    """A missing search attribute would stall every workflow task, so they are made before any work is taken."""
    for name, kind in attributes.ALL.items():
        request = AddSearchAttributesRequest(namespace=temporal.namespace, search_attributes={name: KINDS[kind]})
        try:
            await temporal.operator_service.add_search_attributes(request)
        except RPCError as error:
            if error.status == RPCStatusCode.ALREADY_EXISTS:
                continue
            raise SettingsError(
                f"TEMPORAL_NAMESPACE={temporal.namespace!r}: search attribute {name} ({kind}) cannot be made: "
                f"{error.message}; make it with `temporal operator search-attribute create`"
            ) from error


async def connect_temporal(settings: Settings) -> Client:
    metrics = PrometheusConfig(bind_address=f"0.0.0.0:{settings.metrics_port}", durations_as_seconds=True)
    try:
        return await Client.connect(
            settings.temporal_address,
            namespace=settings.temporal_namespace,
            tls=settings.temporal_tls,
            api_key=settings.temporal_api_key or None,
            data_converter=pydantic_data_converter,
            runtime=Runtime(telemetry=TelemetryConfig(metrics=metrics)),
        )
    except ValueError as error:
        raise SettingsError(f"METRICS_PORT={settings.metrics_port}: {error}; name a free one") from error
    except RuntimeError as error:
        said = str(error).splitlines()[0][:160]
        raise SettingsError(
            f"TEMPORAL_ADDRESS={settings.temporal_address!r}: no Temporal service answers there: {said}"
        ) from error


async def connect_kubernetes(settings: Settings) -> kube.adapters.KubeAdapters:
    where = f"KUBECONFIG={settings.kubeconfig!r}" if settings.kubeconfig else "the service account"
    try:
        cluster = await kube.adapters.connect_all(settings.kubeconfig)
    except Fault as fault:
        raise SettingsError(f"{where}: {fault.message}") from fault
    try:
        await cluster.claims.list()
    except Fault as fault:
        await cluster.close()
        raise SettingsError(f"{where}: NodeClaims cannot be listed: {fault.message}") from fault
    return cluster


async def wait_for_others(
    settings: Settings, cluster: kube.adapters.KubeAdapters, stop: asyncio.Event, waiting: list[str]
) -> None:
    """Two controllers of one NodeClaim would fight: nothing is done while Karpenter's lease is being renewed."""
    name = settings.leader_election_name
    while not stop.is_set():
        try:
            holder = await cluster.leases.holder("", name, now=datetime.now(UTC)) if name else ""
        except Fault as fault:
            holder = f"(not known: {fault.message})"
        if not holder:
            return
        waiting[0] = f"another controller is at work: {holder} renews the lease {name}"
        log.warning("waiting for another controller to stop", holder=holder, lease=name)
        try:
            await asyncio.wait_for(stop.wait(), LOOK_FOR_OTHERS_EVERY)
        except TimeoutError:
            continue


def aws_settings(settings: Settings) -> AwsSettings:
    return AwsSettings(
        cluster_name=settings.cluster_name,
        region=settings.aws_region,
        cluster_endpoint=settings.cluster_endpoint,
        cluster_ca_bundle=settings.cluster_ca_bundle,
        endpoint_url=settings.aws_endpoint_url,
        vm_memory_overhead_percent=settings.vm_memory_overhead_percent,
        reserved_enis=settings.reserved_enis,
        isolated_vpc=settings.isolated_vpc,
        feature_gates=settings.feature_gates,
        pool_size=max(4, settings.activity_slots // 6),
    )


def host_settings(settings: Settings) -> HostSettings:
    return HostSettings(
        cluster=settings.cluster_name,
        task_queue=ids.task_queue(settings.cluster_name),
        deadlines=settings.deadlines(),
        window=window(settings),
        planning=PlanSettings(
            preference_policy=settings.preference_policy, min_values_policy=settings.min_values_policy
        ),
        not_ready_grace=settings.not_ready_grace,
        others_lease=settings.leader_election_name,
    )


def window(settings: Settings) -> BatchWindow:
    return BatchWindow(idle=settings.batch_idle_duration, longest=settings.batch_max_duration)


def configure_logs(settings: Settings) -> None:
    level = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}[settings.log_level]
    logging.basicConfig(
        level=max(level, logging.WARNING), stream=sys.stdout, format="%(levelname)s %(name)s %(message)s"
    )
    console = settings.log_format == "console"
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="time"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(),
        ],
    )


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
