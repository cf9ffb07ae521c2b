"""Entry point and composition root of the worker: settings, clients, adapters, activities and Temporal workers.

Any number of replicas may run; one of them hosts the watch. On SIGTERM, or to use new certificates, the worker finishes
running tasks before it exits. An invalid setting is a one-line error with exit code 2.
"""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import structlog
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.service import RPCError
from temporalio.worker import PollerBehaviorAutoscaling, Worker

import tenure.aws.adapters
import tenure.kube.adapters.build
from activities.interruption.instance_status import InstanceStatusReader
from activities.interruption.metrics import InterruptionMetrics
from activities.interruption.queue_consumer import QueueConsumer
from activities.nodeclaim.eviction import EarlyEvictions
from activities.nodeclaim.hook_client import HttpHookClient
from activities.ports.core import Offerings, Ports
from activities.ports.interruption import NodeInterruptionNotifier
from activities.registry import (
    list_activities,
    list_drain_activities,
    list_launch_activities,
    list_planner_activities,
)
from activities.workflow_client import WorkflowClient
from tenure import metrics
from tenure.aws.client.client import AwsClients
from tenure.aws.settings import AwsSettings
from tenure.clock import CLOCK
from tenure.controller import process
from tenure.controller import settings as gates
from tenure.controller.host import ClusterController
from tenure.controller.interruption.readers import InterruptionReaders
from tenure.controller.log_format import configure_logging
from tenure.controller.metrics import meter_of, monitor_endpoints
from tenure.controller.process import Health, KarpenterLease, Readiness
from tenure.controller.settings import ControllerSettings
from tenure.controller.temporal import client as temporal_service
from tenure.controller.temporal import worker_versioning
from tenure.controller.temporal.certificates import CertificateWatcher
from tenure.controller.temporal.client import Installation
from tenure.controller.temporal.connection import Security
from tenure.controller.temporal.errors import format_rpc_error
from tenure.controller.temporal.namespace import register_attributes
from tenure.endpoints import Endpoints
from tenure.kube.adapters.cluster import cluster_uid, dns_address
from tenure.kube.client.rate_limiter import RateLimiter
from tenure.kube.leader_election import LeaderElector
from tenure.model.errors import BadInput, Fault
from tenure.model.workflow_states import BatchWindow
from tenure.policy.policy_features import PolicyFeatures
from tenure.scheduling.settings import PlanSettings
from tenure.settings import Settings, SettingsError, help_text, load
from workflows import ids
from workflows.runner import WORKFLOWS, OrderedWorkflowRunner
from workflows.visibility import WorkflowNames

log = structlog.get_logger("worker")

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
HEARTBEAT_AT_LEAST = timedelta(seconds=2)
"""By default the SDK sends a heartbeat every 4 s for a timeout of 5 s, so a slow server would fail the watch over."""
DRAINS = 20
"""Drain slots per activity slot. Drains mostly sleep, and drains that a budget blocks must not delay others."""
GRACE = timedelta(seconds=20)
STOP_WITHIN = GRACE + timedelta(seconds=15)
"""Limit of a shutdown: activities are cancelled after `GRACE`, and report their end."""


def main(args: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if args is None else args)
    if "--help" in arguments or "-h" in arguments:
        print(f"usage: worker.py [--FLAG VALUE]...\n\n{help_text()}")
        return 0
    try:
        settings = load(arguments)
        configure_logging(settings.log_level, settings.log_format)
        process.limit_arenas()
        asyncio.run(run(settings))
    except (SettingsError, BadInput) as error:
        print(f"tenure: {error}", file=sys.stderr)
        return 2
    except RPCError as error:
        message = format_rpc_error(error, namespace=settings.temporal_namespace, address=settings.temporal_address)
        print(f"tenure: {message}", file=sys.stderr)
        return 2
    return 0


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises SettingsError or BadInput if a configured service does not respond."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    readiness = Readiness()
    health = Health(settings.health_probe_port, lambda: readiness.why_not)
    try:
        await health.start()
    except OSError as error:
        raise SettingsError(
            f"HEALTH_PROBE_PORT={settings.health_probe_port}: {error.strerror}; choose a free port"
        ) from error
    security = temporal_security(settings)
    certificates = CertificateWatcher(security, stop)
    temporal = await temporal_service.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        security=security,
        metrics_port=settings.metrics_port,
    )
    meter = meter_of(temporal)
    endpoints = monitor_endpoints(meter)
    clock_offset = metrics.CLOCK_OFFSET.bind(meter)
    CLOCK.subscribe(lambda offset: clock_offset.record(offset.total_seconds()))
    cluster = await connect_kubernetes(
        settings, waited=metrics.KUBERNETES_CALL_WAIT.bind(meter).record, endpoints=endpoints
    )
    dns = await dns_address(cluster.client)
    cloud = build_aws_adapters(aws_settings(settings, cluster_dns=dns), cluster, meter, endpoints)
    certificate_watch = asyncio.create_task(certificates.watch(temporal), name="renewal")
    try:
        await gates.check(cluster.client, settings.feature_gates)
        await cloud.zones.check()
        karpenter_lease = KarpenterLease(cluster.leases, settings.leader_election_name, stop)
        while not stop.is_set():
            await karpenter_lease.wait_until_released(readiness.wait_for)
            if not stop.is_set():
                await serve(settings, temporal, cluster, cloud, endpoints, karpenter_lease, readiness)
    finally:
        certificate_watch.cancel()
        await cluster.close()
        cloud.close()
        await health.close()


def build_aws_adapters(
    settings: AwsSettings, cluster: tenure.kube.adapters.build.KubeAdapters, meter: MetricMeter, endpoints: Endpoints
) -> tenure.aws.adapters.AwsAdapters:
    call_wait, throttled = metrics.AWS_CALL_WAIT.bind(meter), metrics.AWS_THROTTLED.bind(meter)
    clients = AwsClients(
        settings,
        observe_wait=lambda operation, seconds: call_wait.record(seconds, operation=operation),
        observe_throttled=lambda operation: throttled.record(operation=operation),
        endpoints=endpoints,
    )
    return tenure.aws.adapters.build(settings, clients=clients, overlays=cluster.overlays.list_accepted)


def temporal_security(settings: Settings) -> Security:
    return Security(
        tls=settings.temporal_tls,
        api_key=settings.temporal_api_key,
        api_key_path=settings.temporal_api_key_path,
        ca=settings.temporal_tls_server_ca_cert_path,
        cert=settings.temporal_tls_client_cert_path,
        key=settings.temporal_tls_client_key_path,
        server_name=settings.temporal_tls_server_name,
        payload_keys=settings.temporal_payload_keys_path,
    )


async def serve(
    settings: Settings,
    temporal: Client,
    cluster: tenure.kube.adapters.build.KubeAdapters,
    cloud: tenure.aws.adapters.AwsAdapters,
    endpoints: Endpoints,
    karpenter_lease: KarpenterLease,
    readiness: Readiness,
) -> None:
    """Run the Temporal workers until this process is stopped, or until Karpenter leads in the cluster."""
    await register_attributes(temporal)
    host = ClusterController(
        settings=host_settings(settings),
        kube=cluster,
        temporal=temporal,
        offerings=cloud.offerings,
        instances=cloud.instances,
        plan_worker=lambda: plan_worker(temporal, settings, list_planner_activities(host)),
        read_interruptions=lambda: readers.run(),
        endpoints=endpoints,
    )
    ports = build_ports(settings, temporal, cluster, cloud)
    readers = interruption_readers(settings, temporal, ports, cloud, host)
    name, build = settings.cluster_name, settings.temporal_worker_build_id
    installation = await installation_of(settings, cluster)
    await temporal_service.require_cluster(temporal, installation)
    await worker_versioning.require_build(temporal, name, build)
    cache_size = settings.workflow_cache_size or process.workflow_cache_size(process.memory_limit())
    activities = list_activities(ports)
    nodeclaims = workflow_worker(temporal, settings, ids.task_queue(name), activities, cache_size)
    coordinators = workflow_worker(temporal, settings, ids.coordinator_queue(name), activities, CACHED_COORDINATORS)
    slots = settings.activity_slots
    # CreateFleet has its own slots, so that its waiting calls do not delay other activities.
    launches = activity_worker(
        temporal, settings, ids.launch_queue(name), list_launch_activities(ports), max(4, slots // 4)
    )
    drains = activity_worker(temporal, settings, ids.drain_queue(name), list_drain_activities(ports), DRAINS * slots)
    prefetch = asyncio.create_task(read_ahead(cloud.offerings), name="read-ahead")
    memory_trim = asyncio.create_task(process.trim_memory(), name="memory")
    replica_watch = worker_versioning.watch_replicas(temporal, launches.task_queue, cloud.clients.set_replicas)
    async with launches, drains, coordinators, nodeclaims:
        elector = LeaderElector(
            cluster.leases,
            settings.system_namespace,
            f"{temporal.identity}_{uuid.uuid4().hex[:8]}",
            is_leader_lost=lambda: worker_versioning.is_unpolled(temporal, ids.plan_queue(name)),
        )
        async with replica_watch:
            lead = asyncio.create_task(
                lead_cluster(settings, temporal, installation, readiness, lambda: elector.run(host.run)), name="lead"
            )
            other = asyncio.create_task(karpenter_lease.wait_until_acquired(), name="karpenter-lease")
            try:
                await asyncio.wait((lead, other), return_when=asyncio.FIRST_COMPLETED)
                if lead.done():
                    await lead
            finally:
                readiness.wait_for("stopping")
                for task in (lead, other, prefetch, memory_trim):
                    task.cancel()
                await asyncio.gather(lead, return_exceptions=True)
                log.info("worker stopping")
        await shut_down(nodeclaims, coordinators, drains, launches)


async def lead_cluster(
    settings: Settings,
    temporal: Client,
    installation: Installation,
    readiness: Readiness,
    host_watch: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Until cancelled: wait until this build is current, then keep the cluster's workflows and the watch running.

    Temporal's worker controller promotes a build when its workers are ready, so they are ready before that."""
    name, build = settings.cluster_name, settings.temporal_worker_build_id
    deployment = settings.temporal_deployment_name
    if deployment:
        readiness.wait_for("")
    serves_current_build = metrics.WORKER_SERVES_CURRENT_BUILD.bind(meter_of(temporal))
    await worker_versioning.wait_until_current(
        temporal, name, build, readiness.wait_for, serves_current_build=serves_current_build, deployment=deployment
    )
    await temporal_service.start_singletons(temporal, installation)
    await temporal_service.require_cluster(temporal, installation)
    readiness.wait_for("")
    log.info("worker started", cluster=name, temporal=settings.temporal_address)
    async with asyncio.TaskGroup() as group:
        group.create_task(host_watch(), name="leader-election")
        if not deployment:
            group.create_task(
                worker_versioning.maintain_current(temporal, name, build, serves_current_build=serves_current_build),
                name="current-build",
            )
        group.create_task(
            temporal_service.restart_missing_singletons(
                temporal,
                installation,
                missing_workflows=metrics.WORKFLOWS_MISSING.bind(meter_of(temporal)),
            ),
            name="singletons",
        )


async def shut_down(*workers: Worker) -> None:
    """Concurrently: each shutdown waits for running activities, and leaving the block would run them in sequence.

    A worker that does not stop in time ends the process. Temporal repeats its unfinished tasks on another worker.
    """
    if await process.find_unfinished({one.task_queue: one.shutdown() for one in workers}, STOP_WITHIN):
        sys.stdout.flush()
        os._exit(1)


async def read_ahead(offerings: Offerings) -> None:
    """Load instance types and prices, the slowest inputs of a first plan, before this worker hosts the watch."""
    try:
        await offerings.refresh()
    except Fault as fault:
        log.warning("instance types not read", fault=str(fault))


def interruption_readers(
    settings: Settings,
    temporal: Client,
    ports: Ports,
    cloud: tenure.aws.adapters.AwsAdapters,
    nodes: NodeInterruptionNotifier,
) -> InterruptionReaders:
    queue, meter = settings.interruption_queue, meter_of(temporal)
    metrics_of_messages = InterruptionMetrics(meter, queue=queue)
    early_evictions = EarlyEvictions(ports, meter)

    def make_consumer() -> QueueConsumer:
        return QueueConsumer(
            queue,
            queue=cloud.queue,
            nodes=nodes,
            metrics=metrics_of_messages,
            early_evictions=early_evictions,
            now=CLOCK.now,
        )

    return InterruptionReaders(
        temporal,
        settings.cluster_name,
        make_consumer=make_consumer if queue else None,
        statuses=InstanceStatusReader(statuses=cloud.statuses, nodes=nodes, metrics=metrics_of_messages, now=CLOCK.now),
        metrics=metrics_of_messages,
    )


def build_ports(
    settings: Settings,
    temporal: Client,
    cluster: tenure.kube.adapters.build.KubeAdapters,
    cloud: tenure.aws.adapters.AwsAdapters,
) -> Ports:
    """mypy checks here that the adapters implement the ports."""
    name = settings.cluster_name
    return Ports(
        claims=cluster.claims,
        nodes=cluster.nodes,
        pods=cluster.pods,
        loads=cluster.loads,
        pod_disruption_budgets=cluster.budgets,
        deployments=cluster.rollouts if settings.surge_single_replicas else None,
        events=cluster.events,
        pools=cluster.pools,
        node_classes=cluster.node_classes,
        fleet=cloud.fleet,
        instances=cloud.instances,
        resolver=cloud.resolver,
        reservations=cloud.reservations,
        namespaces=cluster.namespaces,
        jobs=cluster.jobs,
        inventory=cluster.inventory,
        orphaned_resources=cloud.orphaned_resources,
        hook_client=HttpHookClient(local_addresses=settings.hook_local_addresses),
        workflows=WorkflowClient(temporal, name, WorkflowNames(name), settings.build_deadlines()),
        system_namespace=settings.system_namespace,
        prometheus_url=settings.prometheus_url,
        qps=settings.kube_client_qps,
    )


def workflow_worker(
    temporal: Client, settings: Settings, task_queue: str, activities: Sequence[Callable[..., Any]], cache_size: int
) -> Worker:
    return Worker(
        temporal,
        task_queue=task_queue,
        deployment_config=worker_versioning.deployment_config(
            settings.cluster_name, settings.temporal_worker_build_id, settings.temporal_deployment_name
        ),
        workflows=WORKFLOWS,
        activities=activities,
        workflow_runner=OrderedWorkflowRunner(),
        max_cached_workflows=cache_size,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS,
        max_concurrent_activities=settings.activity_slots,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        max_heartbeat_throttle_interval=HEARTBEAT_AT_LEAST,
        sticky_queue_schedule_to_start_timeout=STICKY,
        graceful_shutdown_timeout=GRACE,
    )


def activity_worker(
    temporal: Client, settings: Settings, task_queue: str, activities: Sequence[Callable[..., Any]], slots: int
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


async def connect_kubernetes(
    settings: Settings,
    *,
    waited: Callable[[float], None] = lambda seconds: None,
    endpoints: Endpoints | None = None,
) -> tenure.kube.adapters.build.KubeAdapters:
    where = f"KUBECONFIG={settings.kubeconfig!r}" if settings.kubeconfig else "the service account"
    rate_limiter = RateLimiter(settings.kube_client_qps, settings.kube_client_burst, observe_wait=waited)
    try:
        cluster = await tenure.kube.adapters.build.connect_all(
            settings.kubeconfig,
            rate_limiter=rate_limiter,
            endpoints=endpoints,
            page_url=lambda name, uid: ids.page_url(
                settings.temporal_ui_url,
                settings.temporal_namespace,
                ids.nodeclaim(settings.cluster_name, name, uid),
            ),
        )
    except Fault as fault:
        raise SettingsError(f"{where}: {fault.message}") from fault
    try:
        await cluster.claims.list()
    except Fault as fault:
        await cluster.close()
        raise SettingsError(f"{where}: NodeClaims cannot be listed: {fault.message}") from fault
    return cluster


def aws_settings(settings: Settings, *, cluster_dns: str = "") -> AwsSettings:
    """Also for CLI commands that call AWS with the worker's settings."""
    return AwsSettings(
        cluster_name=settings.cluster_name,
        region=settings.aws_region,
        cluster_endpoint=settings.cluster_endpoint,
        cluster_ca_bundle=settings.cluster_ca_bundle,
        cluster_dns=cluster_dns,
        endpoint_url=settings.aws_endpoint_url,
        vm_memory_overhead_percent=settings.vm_memory_overhead_percent,
        reserved_enis=settings.reserved_enis,
        isolated_vpc=settings.isolated_vpc,
        ami_refresh_seconds=settings.ami_refresh_interval.total_seconds(),
        subnet_refresh_seconds=settings.subnet_refresh_interval.total_seconds(),
        zonal_shift=settings.enable_zonal_shift,
        feature_gates=settings.feature_gates | settings.aws_feature_gates,
        disable_dry_run=settings.disable_dry_run,
        pool_size=max(4, settings.activity_slots // 6),
    )


def host_settings(settings: Settings) -> ControllerSettings:
    return ControllerSettings(
        cluster=settings.cluster_name,
        deadlines=settings.build_deadlines(),
        window=batch_window(settings),
        planning=PlanSettings(
            preference_policy=settings.preference_policy,
            min_values_policy=settings.min_values_policy,
            node_cost=settings.node_cost,
        ),
        policy_features=policy_features(settings),
        nominate_pods=settings.nominate_pods,
        namespace=settings.system_namespace,
        karpenter_lease=settings.leader_election_name,
        gates=frozenset(name for name, on in settings.feature_gates.items() if on),
    )


def policy_features(settings: Settings) -> PolicyFeatures:
    return PolicyFeatures(
        surge_single_replicas=settings.surge_single_replicas, hook_local_addresses=settings.hook_local_addresses
    )


async def installation_of(settings: Settings, cluster: tenure.kube.adapters.build.KubeAdapters) -> Installation:
    """Raises Fault."""
    return Installation(
        settings.cluster_name,
        window=batch_window(settings),
        queue=settings.interruption_queue,
        cluster_uid=await cluster_uid(cluster.client),
    )


def batch_window(settings: Settings) -> BatchWindow:
    return BatchWindow(idle=settings.batch_idle_duration, longest=settings.batch_max_duration)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
