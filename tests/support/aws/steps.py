"""Steps of tests against the AWS stand-in: resolve, prepare, group, and retry as an activity would."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import boto3

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.aws.adapters import AwsAdapters
from tenure.model.errors import Throttled, TryLater
from tenure.model.launch import FleetResult, LaunchGroup, LaunchGroupMember, LaunchRequest, PreparedLaunchRequest
from tests.support.aws.builders import build_nodeclaim, build_nodeclass

T = TypeVar("T")
NODECLAIM = build_nodeclaim(
    (labels.CAPACITY_TYPE, "In", "on-demand"),
    (labels.ARCH, "In", "amd64"),
    ("karpenter.k8s.aws/instance-cpu", "Lt", "9"),
    requests={"cpu": "7", "memory": "7Gi", "pods": "9"},
)


async def resolve_nodeclass(cloud: AwsAdapters, nodeclass: EC2NodeClass | None = None) -> EC2NodeClass:
    """The class with its status, as the API server would store it."""
    spec = nodeclass or build_nodeclass()
    found = await cloud.resolver.resolve(spec)
    if found.failed_lookups:
        raise TryLater("; ".join(found.failed_lookups))
    assert {condition.status for condition in found.conditions} == {"True"}, found.conditions
    return EC2NodeClass.from_object({**spec.to_object(), "status": found.status})


async def prepare_launch(
    cloud: AwsAdapters, nodeclass: EC2NodeClass, nodeclaim: NodeClaim = NODECLAIM
) -> LaunchRequest:
    found = await cloud.fleet.prepare(nodeclaim, nodeclass, now=datetime.now(UTC))
    assert isinstance(found, PreparedLaunchRequest), found
    return found.request


def make_launch_group(request: LaunchRequest, members: int = 1, attempt: int = 1) -> LaunchGroup:
    group_members = tuple(LaunchGroupMember(name=f"general-{n}", uid=f"uid-{n}") for n in range(members))
    return LaunchGroup(group_id="plan-1", attempt=attempt, members=group_members, request=request)


async def launch(cloud: AwsAdapters, members: int = 1) -> FleetResult:
    """Resolve a default class and launch with it."""
    request = await prepare_launch(cloud, await resolve_nodeclass(cloud))
    return await cloud.fleet.create(make_launch_group(request, members))


def launch_template_data(endpoint: str, name: str) -> Any:
    found = admin_client(endpoint).describe_launch_template_versions(LaunchTemplateName=name, Versions=["$Latest"])
    return found["LaunchTemplateVersions"][0]["LaunchTemplateData"]


def run_foreign_instances(endpoint: str, count: int = 1) -> list[str]:
    """Launch instances that no cluster owns. Returns their IDs."""
    ec2 = admin_client(endpoint)
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    image = next(one["ImageId"] for one in ec2.describe_images()["Images"] if one["Architecture"] == "x86_64")
    run = ec2.run_instances(MinCount=count, MaxCount=count, InstanceType="m5.large", SubnetId=subnet, ImageId=image)
    return [one["InstanceId"] for one in run["Instances"]]


async def retry(step: Callable[[], Awaitable[T]]) -> T:
    """Retry as an activity would."""
    for _ in range(50):
        try:
            return await step()
        except (TryLater, Throttled):
            continue
    raise AssertionError("failed 50 times")


def admin_client(endpoint: str, service: Any = "ec2") -> Any:
    """A client without IAM policy."""
    return boto3.client(
        service, region_name="us-west-2", endpoint_url=endpoint, aws_access_key_id="any", aws_secret_access_key="any"
    )
