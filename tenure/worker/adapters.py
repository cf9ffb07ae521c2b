"""The adapters of Kubernetes and AWS, and the ports of the activities."""

from collections.abc import Callable

import structlog
from temporalio.client import Client
from temporalio.common import MetricMeter

import tenure.aws.adapters as aws
import tenure.kube.adapters.build as kube
from activities.interruption.instance_status import InstanceStatusReader
from activities.interruption.metrics import InterruptionMetrics
from activities.interruption.queue_consumer import QueueConsumer
from activities.nodeclaim.eviction import EarlyEvictions
from activities.nodeclaim.hook_client import HttpHookClient
from activities.ports.core import Offerings, Ports
from activities.ports.interruption import NodeInterruptionNotifier
from activities.workflow_client import WorkflowClient
from tenure import metrics
from tenure.aws.client.client import AwsClients
from tenure.aws.settings import AwsSettings
from tenure.clock import CLOCK
from tenure.controller.interruption.readers import InterruptionReaders
from tenure.controller.metrics import meter_of
from tenure.endpoints import Endpoints
from tenure.kube.client.rate_limiter import RateLimiter
from tenure.model.errors import Fault
from tenure.settings import Settings, SettingsError
from workflows import ids
from workflows.visibility import WorkflowNames

log = structlog.get_logger(__name__)


async def connect_kubernetes(
    settings: Settings, *, waited: Callable[[float], None], endpoints: Endpoints
) -> kube.KubeAdapters:
    where = f"KUBECONFIG={settings.kubeconfig!r}" if settings.kubeconfig else "the service account"
    rate_limiter = RateLimiter(settings.kube_client_qps, settings.kube_client_burst, observe_wait=waited)
    try:
        cluster = await kube.connect_all(
            settings.kubeconfig,
            rate_limiter=rate_limiter,
            endpoints=endpoints,
            page_url=lambda name, uid: ids.page_url(
                settings.temporal_ui_url, settings.temporal_namespace, ids.nodeclaim(settings.cluster_name, name, uid)
            ),
            plans_devices=not settings.ignore_dra_requests,
        )
    except Fault as fault:
        raise SettingsError(f"{where}: {fault.message}") from fault
    try:
        await cluster.claims.check_access()
    except Fault as fault:
        await cluster.close()
        raise SettingsError(f"{where}: NodeClaims cannot be listed: {fault.message}") from fault
    return cluster


def build_aws_adapters(
    settings: AwsSettings, cluster: kube.KubeAdapters, meter: MetricMeter, endpoints: Endpoints
) -> aws.AwsAdapters:
    call_wait, throttled = metrics.AWS_CALL_WAIT.bind(meter), metrics.AWS_THROTTLED.bind(meter)
    clients = AwsClients(
        settings,
        observe_wait=lambda operation, seconds: call_wait.record(seconds, operation=operation),
        observe_throttled=lambda operation: throttled.record(operation=operation),
        endpoints=endpoints,
    )
    return aws.build(settings, clients=clients, overlays=cluster.overlays.list_accepted)


def build_ports(settings: Settings, temporal: Client, cluster: kube.KubeAdapters, cloud: aws.AwsAdapters) -> Ports:
    """mypy checks here that the adapters implement the ports."""
    name = settings.cluster_name
    return Ports(
        claims=cluster.claims,
        nodes=cluster.nodes,
        pods=cluster.pods,
        loads=cluster.loads,
        pod_disruption_budgets=cluster.budgets,
        deployments=cluster.rollouts if settings.surge_single_replicas else None,
        eviction_requests=cluster.eviction_requests if settings.eviction_requests else None,
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


def interruption_readers(
    settings: Settings,
    temporal: Client,
    ports: Ports,
    cloud: aws.AwsAdapters,
    nodes: NodeInterruptionNotifier,
    metrics_of_messages: InterruptionMetrics,
) -> InterruptionReaders:
    queue = settings.interruption_queue
    early_evictions = EarlyEvictions(ports, meter_of(temporal))

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


async def read_ahead(offerings: Offerings) -> None:
    """Load instance types and prices, the slowest inputs of a first plan, before this worker hosts the watch."""
    try:
        await offerings.refresh()
    except Fault as fault:
        log.warning("instance types not read", fault=str(fault))
