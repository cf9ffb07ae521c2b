"""The settings of the worker's objects, from its own. CLI commands use them too."""

from tenure.apis.scheduler_config import parse_default_constraints
from tenure.aws.settings import AwsSettings
from tenure.controller.settings import ControllerSettings
from tenure.controller.temporal.client import Installation
from tenure.controller.temporal.connection import Security
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.cluster import cluster_uid
from tenure.model.workflow_states import BatchWindow
from tenure.policy.policy_features import PolicyFeatures
from tenure.scheduling.settings import PlanSettings
from tenure.settings import Settings


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
        security_group_refresh_seconds=settings.security_group_refresh_interval.total_seconds(),
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
        gates=frozenset(name for name, on in (settings.feature_gates | settings.aws_feature_gates).items() if on),
        legacy_node_repair=settings.legacy_node_repair,
        plans_devices=not settings.ignore_dra_requests,
        default_constraints=tuple(parse_default_constraints(settings.scheduler_config)),
    )


def policy_features(settings: Settings) -> PolicyFeatures:
    return PolicyFeatures(
        surge_single_replicas=settings.surge_single_replicas, hook_local_addresses=settings.hook_local_addresses
    )


async def installation_of(settings: Settings, cluster: KubeAdapters) -> Installation:
    """Raises Fault."""
    return Installation(
        settings.cluster_name,
        window=batch_window(settings),
        queue=settings.interruption_queue,
        cluster_uid=await cluster_uid(cluster.client),
    )


def batch_window(settings: Settings) -> BatchWindow:
    return BatchWindow(idle=settings.batch_idle_duration, longest=settings.batch_max_duration)
