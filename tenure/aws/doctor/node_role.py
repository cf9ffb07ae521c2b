"""Checks whether instances with the role of an EC2NodeClass can join the cluster, and whether spot can launch.

Nodes join with their role: EKS must authenticate it (access entry, or the ConfigMap aws-auth of older clusters), EC2
must be able to assume it, and the kubelet needs the policies of AWS's guide to node roles.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool
from tenure.aws.client.client import AwsClients
from tenure.aws.doctor.queue import as_list
from tenure.model.errors import Fault, Finding, Forbidden, NotFound, Subject

AREA: Final = "nodes"
NODE_TYPES: Final = ("EC2_LINUX", "EC2_WINDOWS", "EC2", "HYBRID_LINUX")
"""Types of access entries with the groups of nodes."""
SPOT_ROLE: Final = "AWSServiceRoleForEC2Spot"
_EC2: Final = ("ec2.amazonaws.com", "ec2.amazonaws.com.cn")
POLICIES: Final[Mapping[str, Sequence[str]]] = {
    "join the cluster": ("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"),
    "pull images": (
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonEC2ContainerRegistryReadOnly",
        "AmazonEC2ContainerRegistryPowerUser",
        "AmazonEC2ContainerRegistryFullAccess",
    ),
}
"""Policies of AWS of which a node role needs one, by purpose."""


class Identities:
    """Reads each role and each instance profile once. Raises model.faults at every read of one that failed."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._reads: dict[tuple[str, str], asyncio.Task[Mapping[str, Any]]] = {}

    async def read_role(self, name: str) -> Mapping[str, Any]:
        response = await self._read_once("role", name, self._clients.iam.get_role, RoleName=name)
        found: Mapping[str, Any] = response["Role"]
        return found

    async def read_profile(self, name: str) -> Mapping[str, Any]:
        get = self._clients.iam.get_instance_profile
        response = await self._read_once("profile", name, get, InstanceProfileName=name)
        found: Mapping[str, Any] = response["InstanceProfile"]
        return found

    async def _read_once(self, kind: str, name: str, get: Callable[..., Any], **request: str) -> Mapping[str, Any]:
        if (kind, name) not in self._reads:
            self._reads[kind, name] = asyncio.create_task(self._clients.call(get, **request))
        return await self._reads[kind, name]


async def check_node_roles(
    clients: AwsClients,
    identities: Identities,
    cluster: str,
    node_classes: Sequence[EC2NodeClass],
    aws_auth: Collection[str] | None,
) -> list[Finding]:
    """Once per role. Classes whose role or profile does not exist have findings elsewhere.

    `aws_auth`: ARNs of roles that the ConfigMap aws-auth maps to nodes; None if it cannot be read.
    """
    names = await asyncio.gather(*(_role_name(identities, one) for one in node_classes))
    found = await asyncio.gather(
        *(
            _check_role(clients, identities, cluster, name, aws_auth)
            for name in sorted({name for name in names if name})
        )
    )
    return [one for part in found for one in part]


async def _role_name(identities: Identities, node_class: EC2NodeClass) -> str:
    """Of the class, or of its instance profile; empty if unknown."""
    if node_class.spec.role:
        return node_class.spec.role.rpartition("/")[2]
    profile = node_class.spec.instance_profile
    if not profile:
        return ""
    try:
        found = await identities.read_profile(profile)
    except Fault:
        return ""
    return next((str(one["RoleName"]) for one in found["Roles"]), "")


async def _check_role(
    clients: AwsClients, identities: Identities, cluster: str, name: str, aws_auth: Collection[str] | None
) -> list[Finding]:
    at = Subject(AREA, f"role {name}")
    try:
        role = await identities.read_role(name)
    except NotFound:
        return []
    except Fault as fault:
        return [at.unknown(fault.message, "run the doctor once with iam:GetRole and iam:ListAttachedRolePolicies")]
    parts = await asyncio.gather(
        _check_policies(clients, at, name), _check_access(clients, cluster, str(role["Arn"]), aws_auth)
    )
    return [*_check_trust(at, role, clients.region), *(one for part in parts for one in part)]


def _check_trust(at: Subject, role: Mapping[str, Any], region: str) -> list[Finding]:
    document = role.get("AssumeRolePolicyDocument") or {}
    statements = document.get("Statement", []) if isinstance(document, Mapping) else []
    services = {
        service
        for one in (statements if isinstance(statements, list) else [statements])
        if one.get("Effect") == "Allow"
        for service in as_list((one.get("Principal") or {}).get("Service", []))
    }
    if services & set(_EC2):
        return []
    message = "EC2 cannot assume it, so instances have no credentials"
    update = f"aws iam update-assume-role-policy --role-name {role['RoleName']} --region {region}"
    allow = f"the file has a statement that allows {_EC2[0]} sts:AssumeRole"
    todo = f"{update} --policy-document file://trust.json, where {allow}"
    return [at.problem(message, todo)]


async def _check_policies(clients: AwsClients, at: Subject, role: str) -> list[Finding]:
    """Other policies may grant the same, so the level is only advice for a role that has some."""
    try:
        attached = await clients.call(clients.iam.list_attached_role_policies, RoleName=role)
        inline = await clients.call(clients.iam.list_role_policies, RoleName=role)
    except Fault as fault:
        return [at.unknown(fault.message, "run the doctor once with iam:ListAttachedRolePolicies")]
    arns = [str(one["PolicyArn"]) for one in attached["AttachedPolicies"]]
    names = {arn.rpartition("/")[2] for arn in arns if ":iam::aws:policy/" in arn}
    has_others = bool(inline["PolicyNames"]) or len(names) < len(arns)
    found = []
    for purpose, accepted in POLICIES.items():
        if names & set(accepted):
            continue
        arn = f"arn:aws:iam::aws:policy/{accepted[0]}"
        todo = f"aws iam attach-role-policy --role-name {role} --region {clients.region} --policy-arn {arn}"
        message = f"has none of AWS's policies to {purpose}"
        if has_others:
            found.append(at.advice(f"{message}; its other policies are not checked", todo))
        else:
            found.append(at.problem(message, todo))
    return found or [at.ok(", ".join(sorted(names)))]


async def _check_access(
    clients: AwsClients, cluster: str, role_arn: str, aws_auth: Collection[str] | None
) -> list[Finding]:
    at = Subject(AREA, f"access of {role_arn}")
    entry = f"--cluster-name {cluster} --region {clients.region} --principal-arn {role_arn}"
    todo = f"aws eks create-access-entry {entry} --type {NODE_TYPES[0]}"
    try:
        response = await clients.call(clients.eks.describe_access_entry, clusterName=cluster, principalArn=role_arn)
    except NotFound:
        if _without_path(role_arn) in (aws_auth or ()):
            return [at.ok("mapped in the ConfigMap aws-auth")]
        message = "the cluster has no access entry for the nodes' role, so nodes cannot join"
        if aws_auth is None:
            return [at.unknown(f"{message}, unless the ConfigMap aws-auth maps it", todo)]
        return [at.problem(message, todo)]
    except Forbidden as fault:
        return [at.unknown(fault.message, "run the doctor once with eks:DescribeAccessEntry")]
    except Fault as fault:
        return [at.unknown(fault.message, "try again")]
    kind = response["accessEntry"].get("type", "")
    if kind not in NODE_TYPES:
        message = f"its access entry has type {kind}, which nodes cannot use"
        return [at.problem(message, f"aws eks delete-access-entry {entry}, then {todo}")]
    return [at.ok(f"access entry of type {kind}")]


def _without_path(role_arn: str) -> str:
    """aws-auth requires ARNs without the path of the role."""
    before, _, name = role_arn.partition(":role/")
    return f"{before}:role/{name.rpartition('/')[2]}"


async def check_spot_role(clients: AwsClients, pools: Sequence[NodePool]) -> list[Finding]:
    """No findings if no NodePool allows spot. EC2 creates the role at an account's first request, if the caller may."""
    if not any(_allows_spot(one) for one in pools):
        return []
    at = Subject(AREA, "spot instances")
    try:
        await clients.call(clients.iam.get_role, RoleName=SPOT_ROLE)
    except NotFound:
        todo = f"aws iam create-service-linked-role --region {clients.region} --aws-service-name spot.amazonaws.com"
        return [at.problem(f"the service-linked role {SPOT_ROLE} does not exist, so spot launches fail", todo)]
    except Forbidden as fault:
        return [at.unknown(fault.message, f"run the doctor once with iam:GetRole on {SPOT_ROLE}")]
    except Fault as fault:
        return [at.unknown(fault.message, "try again")]
    return [at.ok(SPOT_ROLE)]


def _allows_spot(pool: NodePool) -> bool:
    """Without a requirement, Karpenter allows all capacity types."""
    found = [one for one in pool.spec.template.spec.requirements if one.key == labels.CAPACITY_TYPE]
    return all(
        (labels.SPOT in one.values) if one.operator == "In" else (labels.SPOT not in one.values) for one in found
    )
