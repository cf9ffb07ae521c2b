"""`tenure doctor`: check AWS, the cluster and Temporal with the worker's settings, preferably with its credentials."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
import yaml

import tenure.kube.adapters.build
from deploy.commands import set_in_chart
from deploy.resources import OPTIONAL_RBAC, chart_version, crd_files, policy_statements, rbac_documents, service_account
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.aws.doctor.account import Caller
from tenure.aws.doctor.address import check_address
from tenure.aws.doctor.checks import AwsDoctor
from tenure.cli.console import format_findings
from tenure.cli.exit_codes import DONE, FAILED, UsageError
from tenure.cli.output import Result
from tenure.cli.worker_settings import settings_command, temporal_connection
from tenure.controller.temporal.doctor import check_temporal
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.doctor import (
    check_chart,
    check_kinds,
    check_objects,
    check_rights,
    check_schemas,
    check_version,
    read_aws_auth,
    rights_of,
)
from tenure.model.errors import Fault, Finding, Forbidden, NotFound, Subject, has_problem
from tenure.model.interruption.messages import EventKind
from tenure.model.nodeclaim.state import Deadlines
from tenure.policy.interruption.rules import ignored_by_all
from tenure.policy.lifecycle_policy import resolve_policies
from tenure.settings import Settings
from tenure.worker.settings import aws_settings

Role = Annotated[str, typer.Option(help="ARN of the worker's role, if doctor runs with other credentials.")]
NodeRole = Annotated[str, typer.Option(help="Name of the IAM role of nodes (default: from the EC2NodeClasses).")]


@settings_command
async def doctor(settings: Settings, role: Role = "", node_role: NodeRole = "") -> Result:
    """Check credentials, selectors, queue, quotas, permissions and Temporal. Exit code 1 if there is a problem.

    Settings come from the environment and flags, as for `tenure worker`.
    """
    found = await run_checks(settings, role=role, node_role=node_role)
    data = [one.model_dump() for one in found]
    return Result(data, format_findings(found), FAILED if has_problem(found) else DONE)


async def run_checks(settings: Settings, *, role: str = "", node_role: str = "") -> list[Finding]:
    """Check the cluster, AWS and Temporal. A service that does not respond is a finding too."""
    in_cluster, cluster_objects = await _check_cluster(settings)
    in_aws, in_temporal = await asyncio.gather(
        _check_aws(settings, role, node_role, cluster_objects), _check_temporal(settings)
    )
    return [*in_cluster, *in_aws, *in_temporal]


@dataclass(frozen=True)
class _ClusterObjects:
    """Objects of the cluster that the checks of AWS need."""

    pools: Sequence[NodePool] = ()
    classes: Sequence[EC2NodeClass] = ()
    aws_auth: frozenset[str] | None = None
    """ARNs of the roles of nodes in the ConfigMap aws-auth; None if it cannot be read."""
    ignored_events: frozenset[EventKind] = frozenset()
    """Kinds of events that LifecyclePolicies ignore for every NodePool."""


async def _check_cluster(settings: Settings) -> tuple[list[Finding], _ClusterObjects]:
    at, found = Subject("cluster", "API server"), list[Finding]()
    try:
        cluster = await tenure.kube.adapters.build.connect_all(settings.kubeconfig)
    except Fault as fault:
        return [at.problem(fault.message, _kubeconfig(settings))], _ClusterObjects()
    try:
        found += await check_version(cluster.client, settings.cluster_name, settings.aws_region)
        found += await check_chart(cluster.client, chart_version())
        found += await check_kinds(cluster.client)
        documents = [yaml.safe_load(one.read_text()) for one in crd_files()]
        found += await check_schemas(cluster.client, {one["metadata"]["name"]: one for one in documents})
        optional = [name for name in OPTIONAL_RBAC if settings.is_on(name)]
        files = ["deploy/rbac", *(f"deploy/rbac/optional/{OPTIONAL_RBAC[name].name}" for name in optional)]
        (shipped, account), own = service_account(), settings.system_namespace
        todo = f"kubectl apply -f {' -f '.join(files)}"
        todo = todo if own == shipped else f"{todo}, with the namespace {own} instead of {shipped}"
        rights = [one.move(shipped, own) for one in rights_of(rbac_documents(optional))]
        found += await check_rights(cluster.client, rights, account=(own, account), todo=todo)
        lease, name = settings.leader_election_name, settings.cluster_name
        objects, pools, classes = await check_objects(cluster, lease, datetime.now(UTC), cluster_name=name)
        ignored = await list_ignored_events(cluster, settings.build_deadlines(), pools)
        aws_auth = await read_aws_auth(cluster.client)
        return [*found, *objects], _ClusterObjects(pools, classes, aws_auth, ignored)
    except Fault as fault:
        if found and isinstance(fault, Forbidden | NotFound):
            todo = "install the kinds that are missing, or run doctor with credentials that may list it"
            return [*found, at.unknown(fault.message, todo)], _ClusterObjects()
        return [*found, at.problem(fault.message, _kubeconfig(settings))], _ClusterObjects()
    finally:
        await cluster.close()


def _kubeconfig(settings: Settings) -> str:
    write = f"aws eks update-kubeconfig --name {settings.cluster_name} --region {settings.aws_region}"
    return f"set KUBECONFIG, or {write}"


async def list_ignored_events(
    cluster: KubeAdapters, default_deadlines: Deadlines, pools: Sequence[NodePool]
) -> frozenset[EventKind]:
    """Kinds of events that LifecyclePolicies ignore for every NodePool; empty if the policies cannot be read."""
    try:
        facts = await cluster.lifecycle_policies.list_facts()
    except Fault:
        return frozenset()
    labels = {one.name: one.metadata.labels for one in pools}
    rules = resolve_policies(facts, labels, default_deadlines).rules
    return ignored_by_all(rules.get(name) for name in labels)


async def _check_aws(settings: Settings, role: str, node_role: str, cluster_objects: _ClusterObjects) -> list[Finding]:
    try:
        aws = AwsDoctor(aws_settings(settings))
    except Fault as fault:
        todo = f"correct it, and verify with aws sts get-caller-identity --region {settings.aws_region}"
        return [Subject("account", "credentials").problem(fault.message, todo)]

    def render_policies(caller: Caller) -> Sequence[Mapping[str, Any]]:
        return policy_statements(
            {
                "ClusterName": settings.cluster_name,
                "AWS::Region": settings.aws_region,
                "AWS::AccountId": caller.account,
                "AWS::Partition": caller.partition,
                "NodeRoleName": node_role or _node_role(settings, cluster_objects.classes),
                "InterruptionQueueName": settings.interruption_queue or settings.cluster_name,
            }
        )

    try:
        return await aws.check(
            policies=render_policies,
            role=role,
            queue=settings.interruption_queue,
            node_classes=cluster_objects.classes,
            pools=cluster_objects.pools,
            ignored=cluster_objects.ignored_events,
            aws_auth=cluster_objects.aws_auth,
        )
    finally:
        aws.close()


def _node_role(settings: Settings, classes: Sequence[EC2NodeClass]) -> str:
    """From the EC2NodeClasses; else the name in Karpenter's CloudFormation template."""
    named = sorted({one.spec.role.rpartition("/")[2] for one in classes if one.spec.role})
    return named[0] if named else f"KarpenterNodeRole-{settings.cluster_name}"


async def _check_temporal(settings: Settings) -> list[Finding]:
    try:
        return await check_temporal(
            await temporal_connection(settings).connect(),
            settings.cluster_name,
            region=settings.aws_region,
            queue=settings.interruption_queue,
            build=settings.temporal_worker_build_id,
            deployment=settings.temporal_deployment_name,
        )
    except UsageError as error:
        at = Subject("temporal", settings.temporal_address)
        todo = f"allow its port from here, or {set_in_chart('settings.TEMPORAL_ADDRESS=HOST:PORT')}"
        return await check_address(at, settings.temporal_address, todo) or [at.problem(str(error), todo)]
