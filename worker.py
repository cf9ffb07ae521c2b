"""Entry point and composition root of the worker: settings, clients, adapters, activities and Temporal workers.

Any number of replicas may run; one of them hosts the watch. On SIGTERM, or to use new certificates, the worker finishes
running tasks before it exits. An error at startup is one line, with exit code 2 if a person must act.
"""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog
from temporalio.client import Client, Interceptor
from temporalio.service import RPCError

from activities.interruption.metrics import InterruptionMetrics
from activities.registry import list_activities, list_drain_activities, list_launch_activities, list_planner_activities
from tenure import metrics
from tenure.aws.adapters import AwsAdapters
from tenure.clock import CLOCK
from tenure.controller import process
from tenure.controller import settings as gates
from tenure.controller.host import ClusterController
from tenure.controller.log_format import configure_logging
from tenure.controller.metrics import meter_of, monitor_endpoints
from tenure.controller.process import Health, KarpenterLease, Readiness
from tenure.controller.temporal import client as temporal_service
from tenure.controller.temporal import pollers, worker_versioning
from tenure.controller.temporal.certificates import CertificateWatcher
from tenure.controller.temporal.client import Installation
from tenure.controller.temporal.errors import format_rpc_error
from tenure.controller.temporal.namespace import register_attributes
from tenure.endpoints import Endpoints
from tenure.gc_settings import tune_gc
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.cluster import dns_address
from tenure.model.errors import BadInput, Fault, Forbidden
from tenure.settings import Settings, SettingsError, help_text, load
from tenure.worker.adapters import build_aws_adapters, build_ports, connect_kubernetes, interruption_readers, read_ahead
from tenure.worker.election import LeaderElection, holder_identity
from tenure.worker.settings import aws_settings, host_settings, installation_of, temporal_security
from tenure.worker.temporal_workers import (
    CACHED_COORDINATORS,
    DRAINS,
    STICKY_COORDINATORS,
    activity_worker,
    plan_worker,
    shut_down,
    tracing,
    workflow_worker,
)
from workflows import ids

log = structlog.get_logger("worker")


def main(args: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if args is None else args)
    if "--help" in arguments or "-h" in arguments:
        print(f"usage: worker.py [--FLAG VALUE]...\n\n{help_text()}")
        return 0
    try:
        settings = load(arguments)
        configure_logging(settings.log_level, settings.log_format)
        process.limit_memory()
        tune_gc()
        asyncio.run(run(settings))
    except (SettingsError, BadInput) as error:
        print(f"tenure: {error}", file=sys.stderr)
        return 2
    except Fault as fault:
        message = " ".join(fault.message.split())
        if fault.retryable and not isinstance(fault, Forbidden):
            print(f"tenure: {message}; check that the service responds, then start the worker again", file=sys.stderr)
            return 1
        todo = "`tenure doctor` names missing permissions and objects, with the remedy"
        print(f"tenure: {message}; {todo}", file=sys.stderr)
        return 2
    except RPCError as error:
        message = format_rpc_error(error, namespace=settings.temporal_namespace, address=settings.temporal_address)
        print(f"tenure: {message}", file=sys.stderr)
        return 2
    return 0


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises SettingsError or Fault if a configured service does not respond."""
    async with tracing(settings) as interceptors:
        await run_until_stopped(settings, interceptors)


async def run_until_stopped(settings: Settings, interceptors: Sequence[Interceptor]) -> None:
    """`interceptors`: of the Temporal client and its workers."""
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
        interceptors=interceptors,
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
    # `serve` repeats it, for a worker that has waited for Karpenter.
    prefetch = asyncio.create_task(read_ahead(cloud.offerings), name="read-ahead")
    try:
        await gates.check(
            cluster.client,
            settings.feature_gates,
            has_default_spread=bool(settings.scheduler_config),
            plans_devices=not settings.ignore_dra_requests,
        )
        await cloud.zones.check()
        karpenter_lease = KarpenterLease(cluster.leases, settings.leader_election_name, stop)
        interruptions = InterruptionMetrics(meter, queue=settings.interruption_queue)
        while not stop.is_set():
            await karpenter_lease.wait_until_released(readiness.wait_for, interruptions.record_wait)
            if not stop.is_set():
                await serve(settings, temporal, cluster, cloud, endpoints, karpenter_lease, readiness, interruptions)
    finally:
        certificate_watch.cancel()
        prefetch.cancel()
        await cluster.close()
        cloud.close()
        await health.close()


async def serve(
    settings: Settings,
    temporal: Client,
    cluster: KubeAdapters,
    cloud: AwsAdapters,
    endpoints: Endpoints,
    karpenter_lease: KarpenterLease,
    readiness: Readiness,
    interruptions: InterruptionMetrics,
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
        is_leading=lambda: election.is_valid,
        endpoints=endpoints,
    )
    ports = build_ports(settings, temporal, cluster, cloud)
    readers = interruption_readers(settings, temporal, ports, cloud, host, interruptions)
    name, build = settings.cluster_name, settings.temporal_worker_build_id
    installation = await installation_of(settings, cluster)
    await temporal_service.require_cluster(temporal, installation)
    await worker_versioning.require_build(temporal, name, build)
    cache_size = settings.workflow_cache_size or process.workflow_cache_size(process.memory_limit())
    activities = list_activities(ports)
    nodeclaims = workflow_worker(temporal, settings, ids.task_queue(name), activities, cache_size=cache_size)
    coordinators = workflow_worker(
        temporal,
        settings,
        ids.coordinator_queue(name),
        activities,
        cache_size=CACHED_COORDINATORS,
        sticky=STICKY_COORDINATORS,
    )
    slots = settings.activity_slots
    # CreateFleet has its own slots, so that its waiting calls do not delay other activities.
    launches = activity_worker(
        temporal, settings, ids.launch_queue(name), list_launch_activities(ports), max(4, slots // 4)
    )
    drains = activity_worker(temporal, settings, ids.drain_queue(name), list_drain_activities(ports), DRAINS * slots)
    prefetch = asyncio.create_task(read_ahead(cloud.offerings), name="read-ahead")
    memory_trim = asyncio.create_task(process.trim_memory(), name="memory")
    replica_watch = worker_versioning.watch_replicas(temporal, launches.task_queue, cloud.clients.set_replicas)
    election = LeaderElection(
        settings.kubeconfig,
        settings.system_namespace,
        holder_identity(temporal.identity, pod_uid=settings.pod_uid, process_uid=uuid.uuid4().hex),
        is_leader_lost=lambda: pollers.is_unpolled(temporal, ids.plan_queue(name), CLOCK.now()),
    )
    async with launches, drains, coordinators, nodeclaims:
        async with replica_watch:
            lead = asyncio.create_task(
                lead_cluster(settings, temporal, installation, readiness, lambda: election.run(host.run)), name="lead"
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
                temporal, installation, missing_workflows=metrics.WORKFLOWS_MISSING.bind(meter_of(temporal))
            ),
            name="singletons",
        )


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
