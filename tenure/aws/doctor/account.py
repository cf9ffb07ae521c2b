"""Checks of the credentials, the zonal shift, the EKS cluster and its address, and the vCPU quotas."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from deploy.commands import associate_role, deploy_stack, set_in_chart
from tenure.apis import labels
from tenure.apis.nodepool import NodePool
from tenure.aws.client.client import AwsClients
from tenure.aws.doctor.address import check_address
from tenure.aws.eks_cluster import Clusters
from tenure.aws.interruption.zonal_shift import ZonalShifts
from tenure.model.base import Value, format_number
from tenure.model.errors import BadInput, Fault, Finding, Forbidden, NotFound, Subject

AREA: Final = "account"


class Caller(Value):
    account: str = ""
    arn: str = ""

    @property
    def partition(self) -> str:
        return self.arn.split(":")[1] if self.arn.count(":") >= 5 else "aws"

    @property
    def role(self) -> str:
        """Name of the assumed role, or of the user; empty if unknown."""
        kind, _, rest = self.arn.rpartition(":")[2].partition("/")
        return rest.split("/")[0] if kind in ("assumed-role", "user", "role") else ""


async def check_caller(clients: AwsClients, cluster: str) -> tuple[Caller, list[Finding]]:
    """The caller; empty if the credentials are invalid. `cluster`: its name in EKS."""
    at = Subject(AREA, "credentials")
    try:
        response = await clients.call(clients.sts.get_caller_identity)
    except Fault as fault:
        irsa = set_in_chart("serviceAccount.roleArn=ROLE-ARN")
        todo = (
            f"{associate_role(cluster, region=clients.region)}, then restart the worker's pods; with IRSA {irsa}; "
            f"elsewhere log in, and verify with aws sts get-caller-identity --region {clients.region}"
        )
        return Caller(), [at.problem(fault.message, todo)]
    caller = Caller(account=response["Account"], arn=response["Arn"])
    return caller, [at.ok(f"{caller.arn} in {clients.region}")]


async def check_zones(zones: ZonalShifts, cluster: str, region: str) -> list[Finding]:
    """No findings if zonal shift is disabled. `cluster`: its name in EKS."""
    at = Subject(AREA, "zonal shift")
    try:
        await zones.check()
        shifted_zones = sorted(await zones.fetch_shifted_zones())
    except BadInput as fault:
        enable = f"aws eks update-cluster-config --name {cluster} --region {region} --zonal-shift-config enabled=true"
        todo = f"{enable}, or {set_in_chart('settings.ENABLE_ZONAL_SHIFT=false')}"
        return [at.problem(fault.message, todo)]
    except Forbidden as fault:
        return [at.problem(fault.message, deploy_stack("role", cluster, "ZonalShift=true", region=region))]
    except Fault as fault:
        return [at.unknown(fault.message, "try again")]
    if shifted_zones:
        cancel = f"aws arc-zonal-shift cancel-zonal-shift --region {region} --zonal-shift-id ID"
        listed = f"aws arc-zonal-shift list-zonal-shifts --region {region}"
        todo = f"no action if the shift is intended; else {cancel}, with the ID from {listed}"
        return [at.advice(f"no instances are launched in {', '.join(shifted_zones)}", todo)]
    return []


async def check_cluster(clusters: Clusters, name: str, region: str) -> list[Finding]:
    """The version of Kubernetes is checked with the API server."""
    at = Subject(AREA, f"EKS cluster {name}")
    try:
        facts = await clusters.facts()
    except NotFound as fault:
        correct = set_in_chart("settings.CLUSTER_NAME=NAME", "settings.AWS_REGION=REGION")
        return [at.problem(fault.message, f"aws eks list-clusters --region {region}, then {correct}")]
    except Forbidden as fault:
        allow = deploy_stack("role", name, region=region)
        todo = f"allow eks:DescribeCluster: {allow}, or set CLUSTER_ENDPOINT and its other settings"
        return [at.problem(fault.message, todo)]
    except Fault as fault:
        return [at.unknown(fault.message, "try again")]
    fields = {"endpoint": facts.endpoint, "certificate": facts.ca_bundle, "Service range": facts.cidr}
    missing = [field for field, value in fields.items() if not value]
    if missing:
        wait = f"aws eks wait cluster-active --name {name} --region {region}"
        return [at.problem(f"EKS returned no {', '.join(missing)}", wait)]
    describe = f"aws eks describe-cluster --name {name} --region {region} --query cluster.resourcesVpcConfig"
    todo = f"{describe}, and allow port 443 from here"
    unreachable = await check_address(at, facts.endpoint, todo)
    reachable = unreachable or [at.ok(f"Kubernetes {facts.version}, {facts.endpoint}")]
    return [*reachable, *check_endpoint_access(await clusters.describe(), name, region)]


def check_endpoint_access(cluster: Mapping[str, Any], name: str, region: str) -> list[Finding]:
    """Whether nodes can reach the endpoint of the API server, from EKS's description of the cluster.

    With restricted public access and no private access, only nodes whose NAT address is in the ranges can join
    (docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html).
    """
    config = cluster.get("resourcesVpcConfig") or {}
    ranges = config.get("publicAccessCidrs") or []
    if config.get("endpointPrivateAccess", True) or "0.0.0.0/0" in ranges:
        return []
    message = f"only {', '.join(ranges)} may reach the endpoint, and private access is off: nodes may not join"
    update = f"aws eks update-cluster-config --name {name} --region {region}"
    todo = f"{update} --resources-vpc-config endpointPrivateAccess=true"
    return [Subject(AREA, f"EKS cluster {name} endpoint").advice(message, todo)]


QUOTAS_AREA: Final = "quotas"
_MORE_VCPUS: Final = 64
_LITTLE: Final = 0.2
"""Share of the quota: the check warns if less is free."""
_RUNNING: Final[list[Any]] = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]


class VcpuClass(NamedTuple):
    """Instance types that share a vCPU quota, by name prefix."""

    name: str
    pattern: str
    codes: dict[str, str]
    """Capacity type to quota code of the service `ec2`."""


_CLASSES: Final = (
    VcpuClass("G and VT", r"(g|vt)[0-9]", {"on-demand": "L-DB2E81BA", "spot": "L-3819A6DF"}),
    VcpuClass("P", r"p[0-9]", {"on-demand": "L-417A185B", "spot": "L-7212CCBC"}),
    VcpuClass("Inf", r"inf[0-9]", {"on-demand": "L-1945791B", "spot": "L-B5D1601B"}),
    VcpuClass("Trn", r"trn[0-9]", {"on-demand": "L-2C3B7624", "spot": "L-6B0D517C"}),
    VcpuClass("DL", r"dl[0-9]", {"on-demand": "L-6E869C2A", "spot": "L-85EED4F7"}),
    VcpuClass("F", r"f[0-9]", {"on-demand": "L-74FC7D96", "spot": "L-88CF9481"}),
    VcpuClass("X", r"x[0-9]", {"on-demand": "L-7295265B", "spot": "L-E3A00192"}),
    VcpuClass("Standard", r"(a|c|d|h|im?|is|m|r|t|z)[0-9]", {"on-demand": "L-1216C47A", "spot": "L-34B43A08"}),
)
"""The first match applies. Other types (high memory, Mac) have their own quotas, and NodePools rarely use them."""


def class_of(instance_type: str) -> str:
    """The name of the class; empty for other types."""
    return next((one.name for one in _CLASSES if re.match(one.pattern, instance_type)), "")


async def check_quotas(clients: AwsClients, pools: Sequence[NodePool]) -> list[Finding]:
    """Check the quotas of the classes that the pools can launch or that running instances use."""
    try:
        used = await _count_used_vcpus(clients)
    except Fault as fault:
        return [Subject(QUOTAS_AREA, "vCPUs in use").unknown(fault.message, "allow ec2:DescribeInstances")]
    quota_keys = {pair for pool in pools for pair in _reachable_classes(pool)} | used.keys()
    return [
        await _check_quota(clients, vcpu_class.name, capacity_type, code, used)
        for vcpu_class in _CLASSES
        for capacity_type, code in vcpu_class.codes.items()
        if (vcpu_class.name, capacity_type) in quota_keys
    ]


async def _check_quota(
    clients: AwsClients, name: str, capacity_type: str, code: str, used: Mapping[tuple[str, str], int]
) -> Finding:
    at = Subject(QUOTAS_AREA, f"{name} vCPUs, {capacity_type}")
    try:
        response = await clients.call(clients.quotas.get_service_quota, ServiceCode="ec2", QuotaCode=code)
    except NotFound:
        return at.unknown(f"quota {code} is not available in this region", "check the quota in the AWS console")
    except Fault as fault:
        return at.unknown(fault.message, "run the doctor once with servicequotas:GetServiceQuota")
    limit, running = response["Quota"]["Value"], used.get((name, capacity_type), 0)
    message = f"{format_number(running, 6)} of {format_number(limit, 6)} vCPUs are in use"
    todo = (
        f"aws service-quotas request-service-quota-increase --region {clients.region} --service-code ec2 "
        f"--quota-code {code} --desired-value {format_number(max(2 * limit, running + _MORE_VCPUS), 6)}"
    )
    if limit - running < 1:
        return at.problem(message, todo)
    if limit - running < limit * _LITTLE:
        return at.advice(message, todo)
    return at.ok(message)


async def _count_used_vcpus(clients: AwsClients) -> Mapping[tuple[str, str], int]:
    """vCPUs by class and capacity type, of all pending and running instances in the region."""
    found = await clients.paginate(
        clients.ec2.describe_instances,
        "Reservations",
        lambda reservation: [_instance_vcpus(one) for one in reservation.get("Instances", ())],
        Filters=_RUNNING,
        PaginationConfig={"PageSize": 1000},
    )
    used: Counter[tuple[str, str]] = Counter()
    for page in found:
        for key, vcpus in page:
            used[key] += vcpus
    return used


def _instance_vcpus(raw: Mapping[str, Any]) -> tuple[tuple[str, str], int]:
    cpu = raw.get("CpuOptions") or {}
    capacity_type = labels.SPOT if raw.get("InstanceLifecycle") == "spot" else labels.ON_DEMAND
    vcpus = cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 1)
    return (class_of(raw.get("InstanceType", "")), capacity_type), vcpus


def _reachable_classes(pool: NodePool) -> set[tuple[str, str]]:
    """Class and capacity type of the types in the pool's requirements; without any, of the standard types."""
    requirements = {one.key: one for one in pool.spec.template.spec.requirements if one.operator == "In"}
    named = [
        value
        for key in (labels.INSTANCE_TYPE, labels.INSTANCE_FAMILY, labels.INSTANCE_CATEGORY)
        for value in (requirements[key].values if key in requirements else ())
    ]
    # A category has only letters; with a digit it matches the patterns, which are for families.
    classes = {class_of(one if any(c.isdigit() for c in one) else f"{one}1") for one in named} - {""} or {"Standard"}
    capacity_types = requirements.get(labels.CAPACITY_TYPE)
    types = capacity_types.values if capacity_types else (labels.SPOT, labels.ON_DEMAND)
    return {(name, capacity) for name in classes for capacity in types if capacity != labels.RESERVED}
