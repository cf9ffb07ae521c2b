"""All AWS checks of `tenure doctor`."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from deploy.commands import deploy_stack, set_in_chart
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.aws.amifamily.images import Images
from tenure.aws.client.client import AwsClients
from tenure.aws.doctor.account import Caller, check_caller, check_cluster, check_quotas, check_zones
from tenure.aws.doctor.eventbridge import QueueTarget, check_rules, rules_targeting
from tenure.aws.doctor.node_role import Identities, check_node_roles, check_spot_role
from tenure.aws.doctor.nodeclass import PermissionDryRuns, Selectors
from tenure.aws.doctor.permissions import UsedPolicies, check_permissions
from tenure.aws.doctor.queue import AREA, check_key, check_policy, check_retention
from tenure.aws.eks_cluster import Clusters
from tenure.aws.interruption.zonal_shift import ZonalShifts
from tenure.aws.nodeclass.subnets_and_security_groups import FreeAddresses, Networks
from tenure.aws.settings import AwsSettings
from tenure.model.errors import Fault, Finding, Forbidden, NotFound, Subject
from tenure.model.interruption.messages import EventKind


async def check_events(
    clients: AwsClients, cluster: str, queue: str, *, ignored: frozenset[EventKind] = frozenset()
) -> list[Finding]:
    """Check the queue and its rules. Without a queue, advise to create one.

    `cluster`: its name in EKS. `ignored`: kinds of events that every NodePool's LifecyclePolicies ignore, which need
    no rule.
    """
    if not queue:
        setting = set_in_chart(f"settings.INTERRUPTION_QUEUE={cluster}")
        create = deploy_stack("events", cluster, region=clients.region)
        todo = f"{create}, then {setting}; if a queue exists, such as Karpenter's, only set its name"
        return [Subject(AREA, "INTERRUPTION_QUEUE").advice("not set: no notice of spot interruptions", todo)]
    at = Subject(AREA, f"queue {queue}")
    try:
        url = (await clients.call(clients.sqs.get_queue_url, QueueName=queue))["QueueUrl"]
    except NotFound as fault:
        create = deploy_stack("events", cluster, f"InterruptionQueueName={queue}", region=clients.region)
        todo = f"{create}, or correct INTERRUPTION_QUEUE or AWS_REGION"
        return [at.problem(f"not found in {clients.region}: {fault.message}", todo)]
    except Forbidden as fault:
        parameters = ("Interruption=true", f"InterruptionQueueName={queue}")
        allow = deploy_stack("role", cluster, *parameters, region=clients.region)
        return [at.problem(fault.message, f"allow sqs:GetQueueUrl on the queue: {allow}")]
    except Fault as fault:
        return [at.unknown(fault.message, "try again")]
    try:
        response = await clients.call(clients.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["All"])
    except Fault as fault:
        todo = "run the doctor once with credentials that may sqs:GetQueueAttributes"
        return [at.unknown(f"the queue exists, but its attributes cannot be read: {fault.message}", todo)]
    attributes = {str(key): str(value) for key, value in response.get("Attributes", {}).items()}
    itself = [check_retention(queue, attributes), *await check_key(clients, queue, attributes)]
    where = QueueTarget(queue=queue, arn=attributes["QueueArn"], cluster=cluster)
    try:
        rules = await rules_targeting(clients, where.arn)
    except Fault as fault:
        todo = "run the doctor once with credentials that may events:ListRuleNamesByTarget and events:DescribeRule"
        found = [Subject(AREA, "rules").unknown(f"the rules cannot be read: {fault.message}", todo)]
        return [*check_policy(queue, attributes, {}), *itself, *found]
    allowed = check_policy(queue, attributes, {one.name: one.arn for one in rules if one.arn})
    return [*allowed, *itself, *await check_rules(clients, where, rules, ignored)]


Policies = Callable[[Caller], Sequence[Mapping[str, Any]]]
"""The shipped IAM statements, rendered for the caller's account."""


class AwsDoctor:
    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._clients = AwsClients(settings)
        self._clusters = Clusters(self._clients, settings)

    async def check(
        self,
        *,
        policies: Policies,
        role: str,
        queue: str,
        node_classes: Sequence[EC2NodeClass],
        pools: Sequence[NodePool],
        ignored: frozenset[EventKind] = frozenset(),
        aws_auth: Collection[str] | None = None,
    ) -> list[Finding]:
        """Findings in the order in which an operator would fix them; invalid credentials stop the checks.

        `ignored`: kinds of events that every NodePool's LifecyclePolicies ignore. `aws_auth`: see `check_node_roles`.
        """
        cluster, region = self._settings.cluster_name, self._clients.region
        caller, found = await check_caller(self._clients, cluster)
        if not caller.arn:
            return found
        identities = Identities(self._clients)
        selectors = Selectors(
            Networks(self._clients, FreeAddresses()),
            Images(self._clients, self._clusters),
            identities,
            cluster,
            region=region,
        )
        usage = UsedPolicies(queue=queue, zonal_shift=self._settings.zonal_shift)
        trials = PermissionDryRuns(self._clients, self._settings)
        parts = await asyncio.gather(
            check_cluster(self._clusters, cluster, region),
            check_zones(ZonalShifts(self._clients, self._settings), cluster, region),
            check_permissions(self._clients, caller, policies(caller), cluster, usage, role=role),
            *(selectors.check(one) for one in node_classes),
            *(trials.launch(one) for one in node_classes),
            trials.clean_up(),
            check_node_roles(self._clients, identities, cluster, node_classes, aws_auth),
            check_spot_role(self._clients, pools),
            check_events(self._clients, cluster, queue, ignored=ignored),
            check_quotas(self._clients, pools),
        )
        return [*found, *(one for part in parts for one in part)]

    def close(self) -> None:
        self._clients.close()
