"""Builders of inputs for tests of the AWS adapters."""

from collections.abc import Mapping
from typing import Any

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.instancetype.capacity import Machine
from tenure.aws.instancetype.info import TypeInfo
from tenure.aws.instancetype.prices import ListedPrices, PriceTable
from tenure.aws.instancetype.resolver import Region
from tenure.aws.instancetype.static_prices import estimate_price
from tenure.aws.kubelet.config import Kubelet
from tenure.aws.settings import AwsSettings
from tenure.model.launch import LaunchGroup, LaunchGroupMember, LaunchOverride, LaunchRequest
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types

REGION = "us-west-2"
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
SETTINGS = AwsSettings(cluster_name="demo", region=REGION)
CLUSTER = ClusterFacts(
    name="demo",
    version="1.34",
    endpoint="https://demo.invalid",
    ca_bundle="Q0E=",
    cidr="10.100.0.0/16",
    dns="10.100.0.10",
)
DISCOVERY = {"karpenter.sh/discovery": "demo"}


def build_type_info(name: str) -> TypeInfo:
    """An instance type as EC2 describes it."""
    return TypeInfo.from_ec2(all_types()[name])


def machine(name: str, family: str = "AL2023", settings: AwsSettings = SETTINGS, **spec: Any) -> Machine:
    parsed = build_nodeclass(**spec).spec
    return Machine(build_type_info(name), FAMILIES[family], Kubelet.of(parsed.kubelet), parsed, settings)


def build_nodeclass(status: Mapping[str, Any] | None = None, uid: str = "11112222-3333", **spec: Any) -> EC2NodeClass:
    """Keys of spec and status as in YAML."""
    full_spec = {
        "role": "KarpenterNodeRole-demo",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": DISCOVERY}],
        "securityGroupSelectorTerms": [{"tags": DISCOVERY}],
    } | spec
    meta = {"name": "default", "uid": uid, "generation": 1}
    return EC2NodeClass.from_object({"metadata": meta, "spec": full_spec, "status": status or {}})


def resolved_status(**more: Any) -> dict[str, Any]:
    """Three subnets, one security group, and five AL2023 images, NVIDIA's the newest."""
    standard = [
        _instance_count_requirement("gpu", "DoesNotExist"),
        _instance_count_requirement("accelerator", "DoesNotExist"),
    ]
    kinds = [
        ("ami-nvidia-amd64", "amd64", [_instance_count_requirement("gpu", "Exists")]),
        ("ami-nvidia-arm64", "arm64", [_instance_count_requirement("gpu", "Exists")]),
        ("ami-neuron-amd64", "amd64", [_instance_count_requirement("accelerator", "Exists")]),
        ("ami-standard-amd64", "amd64", standard),
        ("ami-standard-arm64", "arm64", standard),
    ]
    images = [
        {"id": i, "requirements": [{"key": labels.ARCH, "operator": "In", "values": [a]}, *w]} for i, a, w in kinds
    ]
    return {
        "subnets": [{"id": f"subnet-{z[-1]}", "zone": z, "zoneID": f"usw2-az{n}"} for n, z in enumerate(ZONES, 1)],
        "securityGroups": [{"id": "sg-1", "name": "nodes"}],
        "amis": images,
        "instanceProfile": "demo_profile",
    } | more


def build_nodeclaim(
    *requirements: tuple[Any, ...], requests: Mapping[str, str] | None = None, **meta: Any
) -> NodeClaim:
    """Requirements as `(key, operator, values...)`."""
    return NodeClaim.from_object(
        {
            "metadata": {"name": "general-abc", "uid": "u1", "labels": {labels.NODEPOOL: "general"}} | meta,
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [{"key": r[0], "operator": r[1], "values": list(r[2:])} for r in requirements],
                "resources": {"requests": dict(requests or {"cpu": "1", "memory": "1Gi", "pods": "3"})},
            },
        }
    )


def region(*names: str, spot: float = 0.3, on_demand: Mapping[str, float] | None = None) -> Region:
    """Types that are offered in all zones. Prices are estimates; spot costs `spot` times the on-demand price."""
    types = {name: build_type_info(name) for name in names or all_types()}
    prices = dict(on_demand or {name: estimate_price(one) for name, one in types.items()})
    spots = {(name, zone): price * spot for name, price in prices.items() for zone in ZONES}
    offered = {name: frozenset(ZONES) for name in types}
    return Region(types=types, zones_of=offered, zones=ZONES, prices=PriceTable(ListedPrices(prices, spots)))


def launch_group(members: int = 1, capacity_type: str = "on-demand", attempt: int = 1) -> LaunchGroup:
    overrides = tuple(
        LaunchOverride(
            launch_template=f"karpenter.k8s.aws/{number}",
            instance_type=name,
            zone=zone,
            subnet_id=f"subnet-{zone[-1]}",
            image_id="ami-1",
            priority=0.1,
        )
        for number, name in enumerate(("m5.large", "c5.large"))
        for zone in ZONES[:2]
    )
    request = LaunchRequest(
        node_class="default", capacity_type=capacity_type, overrides=overrides, tags={labels.TAG_NODEPOOL: "general"}
    )
    group_members = tuple(LaunchGroupMember(name=f"general-{n}", uid=f"uid-{n}") for n in range(members))
    return LaunchGroup(group_id="plan-1", attempt=attempt, members=group_members, request=request)


def _instance_count_requirement(kind: str, operator: str) -> dict[str, Any]:
    return {"key": f"karpenter.k8s.aws/instance-{kind}-count", "operator": operator}
