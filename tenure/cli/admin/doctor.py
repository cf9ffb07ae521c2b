"""`tenure doctor`: looks at AWS, the cluster and Temporal, changes nothing, and says what a person has to do.

It takes the worker's own settings, and is best run with the worker's own credentials.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

import tenure.kube.adapters.build
from deploy.resources import policy_statements, rbac_documents, service_account
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.aws.doctor.account import Caller
from tenure.aws.doctor.checks import AwsDoctor
from tenure.cli.console import draw, findings_table, summary
from tenure.cli.exit_codes import Refused
from tenure.cli.output import Output
from tenure.cli.temporal_client import Connection
from tenure.controller.temporal.doctor import check_temporal
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.doctor import check_kinds, check_objects, check_rights, check_version, rights_of
from tenure.model.errors import Fault, Finding, has_problem, problem
from tenure.model.interruption.notices import EventKind
from tenure.model.nodeclaim_state import Deadlines
from tenure.policy.interruption.rules import ignored_by_all
from tenure.policy.lifecycle_policy import resolve
from tenure.settings import Settings, SettingsError, load
from worker import aws_settings, security

app = typer.Typer(add_completion=False)

Role = Annotated[str, typer.Option(help="ARN of the worker's role, where others' credentials look for it.")]
NodeRole = Annotated[str, typer.Option(help="Name of the nodes' role, which the worker passes on.")]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def doctor(context: typer.Context, role: Role = "", node_role: NodeRole = "", output: Output = "table") -> int:
    """Check credentials, selectors, queue, quotas, rights and Temporal. Exit code 1 when something must be mended.

    Settings come from the environment and flags, as for `tenure worker`.
    """
    try:
        settings = load(list(context.args))
    except SettingsError as error:
        raise Refused(f"doctor: {error}") from error
    found = asyncio.run(examine(settings, role=role, node_role=node_role))
    draw(output, [one.model_dump() for one in found], findings_table(found), summary(found))
    return int(has_problem(found))


async def examine(settings: Settings, *, role: str = "", node_role: str = "") -> list[Finding]:
    """All findings: of the cluster, of AWS, of Temporal. What does not answer is a finding too."""
    in_cluster, seen = await _cluster(settings)
    cloud, memory = await asyncio.gather(_aws(settings, role, node_role, seen), _temporal(settings))
    return [*in_cluster, *cloud, *memory]


@dataclass(frozen=True)
class _Seen:
    """What the cluster has that AWS is asked about."""

    pools: Sequence[NodePool] = ()
    classes: Sequence[EC2NodeClass] = ()
    ignored: frozenset[EventKind] = frozenset()
    """Kinds of events that LifecyclePolicies ignore for each of the NodePools."""


async def _cluster(settings: Settings) -> tuple[list[Finding], _Seen]:
    try:
        cluster = await tenure.kube.adapters.build.connect_all(settings.kubeconfig)
    except Fault as fault:
        return [problem("cluster", "API server", fault.message, "set KUBECONFIG")], _Seen()
    try:
        found = await check_version(cluster.client)
        found += await check_kinds(cluster.client)
        found += await check_rights(cluster.client, rights_of(rbac_documents()), account=service_account())
        objects, pools, classes = await check_objects(cluster, settings.leader_election_name, datetime.now(UTC))
        return [*found, *objects], _Seen(pools, classes, await ignored(cluster, settings.deadlines(), pools))
    except Fault as fault:
        return [problem("cluster", "API server", fault.message, "see whether KUBECONFIG names the right one")], _Seen()
    finally:
        await cluster.close()


async def ignored(cluster: KubeAdapters, usual: Deadlines, pools: Sequence[NodePool]) -> frozenset[EventKind]:
    """Kinds of events that LifecyclePolicies ignore for each NodePool; none where the policies cannot be read."""
    try:
        facts = await cluster.lifecycle_policies.facts()
    except Fault:
        return frozenset()
    labels = {one.name: one.metadata.labels for one in pools}
    rules = resolve(facts, labels, usual).rules
    return ignored_by_all(rules.get(name) for name in labels)


async def _aws(settings: Settings, role: str, node_role: str, seen: _Seen) -> list[Finding]:
    aws = AwsDoctor(aws_settings(settings))

    def policies(caller: Caller) -> Sequence[Mapping[str, Any]]:
        return policy_statements(
            {
                "ClusterName": settings.cluster_name,
                "AWS::Region": settings.aws_region,
                "AWS::AccountId": caller.account,
                "AWS::Partition": caller.partition,
                "NodeRoleName": node_role or _node_role(settings, seen.classes),
                "InterruptionQueueName": settings.interruption_queue or settings.cluster_name,
            }
        )

    try:
        return await aws.check(
            policies=policies,
            role=role,
            queue=settings.interruption_queue,
            node_classes=seen.classes,
            pools=seen.pools,
            ignored=seen.ignored,
        )
    finally:
        aws.close()


def _node_role(settings: Settings, classes: Sequence[EC2NodeClass]) -> str:
    """What the classes name; else the custom of Karpenter's template."""
    named = sorted({one.spec.role.rpartition("/")[2] for one in classes if one.spec.role})
    return named[0] if named else f"KarpenterNodeRole-{settings.cluster_name}"


async def _temporal(settings: Settings) -> list[Finding]:
    address, namespace = settings.temporal_address, settings.temporal_namespace
    where = Connection(address, namespace, settings.cluster_name, security(settings))
    try:
        return await check_temporal(
            await where.client(),
            settings.cluster_name,
            queue=settings.interruption_queue,
            build=settings.temporal_worker_build_id,
        )
    except Refused as refused:
        return [problem("temporal", settings.temporal_address, str(refused), "set TEMPORAL_ADDRESS")]
