"""The simulator as a process next to the AWS stand-in: nodes appear and disappear with a fleet's instances."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from tenure.model.base import instance_id_of
from tenure.sandbox.kube_client import KubeApi
from tenure.sandbox.nodes.control_api import NodesControl
from tenure.sandbox.nodes.fault_rules import Match, NeverRegister, NotReady
from tests.integration.sandbox.builders import condition, wait_until
from tests.integration.sandbox.nodes.instance_builders import USER_DATA
from tests.support.product.shared_sandbox import SharedSandbox

if TYPE_CHECKING:
    from types_boto3_ec2.client import EC2Client

TEMPLATE = "simulator-test"
TAG = "simulator-test"


class Fleet:
    """Instances of one launch template, through EC2's own API."""

    def __init__(self, endpoint: str, region: str, cluster: str) -> None:
        self._client: EC2Client = boto3.client(
            "ec2", endpoint_url=endpoint, region_name=region, aws_access_key_id="t", aws_secret_access_key="t"
        )
        self._cluster = cluster

    def launch(self, count: int) -> list[str]:
        discovered = [{"Name": "tag:karpenter.sh/discovery", "Values": [self._cluster]}]
        subnet = self._client.describe_subnets(Filters=discovered)["Subnets"][0]  # type: ignore[arg-type]
        architecture = [{"Name": "architecture", "Values": ["x86_64"]}, {"Name": "name", "Values": ["*al2023*"]}]
        image = self._client.describe_images(Filters=architecture)["Images"][0]  # type: ignore[arg-type]
        data = base64.b64encode(USER_DATA.encode()).decode()
        self._client.create_launch_template(
            LaunchTemplateName=TEMPLATE, LaunchTemplateData={"ImageId": image["ImageId"], "UserData": data}
        )
        response = self._client.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": TEMPLATE, "Version": "$Latest"},
                    "Overrides": [{"InstanceType": "m5.large", "SubnetId": subnet["SubnetId"]}],
                }
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": "on-demand"},
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": "karpenter.sh/nodepool", "Value": TAG}]},
            ],
        )
        return [name for group in response["Instances"] for name in group["InstanceIds"]]

    def terminate_all(self, instance_ids: list[str]) -> None:
        self._client.terminate_instances(InstanceIds=instance_ids)
        self._client.delete_launch_template(LaunchTemplateName=TEMPLATE)


@pytest.fixture
async def control(shared_sandbox: SharedSandbox) -> AsyncIterator[NodesControl]:
    async with NodesControl(shared_sandbox.nodes_endpoint) as client:
        yield client
        await client.clear()


@pytest.fixture
async def admin(shared_sandbox: SharedSandbox) -> AsyncIterator[KubeApi]:
    async with shared_sandbox.cluster.client() as client:
        yield client


async def nodes_of(admin: KubeApi, instance_ids: list[str]) -> dict[str, Any]:
    found = (await admin.request("GET", "/api/v1/nodes"))["items"]
    named = {instance_id_of(node["spec"].get("providerID", "")): node for node in found}
    return {name: named[name] for name in instance_ids if name in named}


async def test_fleet_registers_with_faults_and_is_deleted(
    shared_sandbox: SharedSandbox, control: NodesControl, admin: KubeApi
) -> None:
    fleet = Fleet(shared_sandbox.aws_endpoint, shared_sandbox.plan.region, shared_sandbox.plan.cluster_name)
    await control.add(NeverRegister(), match=Match(nodepool=TAG), count=1)
    instance_ids = await asyncio.to_thread(fleet.launch, 3)

    async def two_are_ready() -> bool:
        nodes = await nodes_of(admin, instance_ids)
        return [condition(node, "Ready") for node in nodes.values()] == ["True"] * 2

    async def all_deleted() -> bool:
        return not await nodes_of(admin, instance_ids)

    try:
        await wait_until(two_are_ready)
        (rule,) = await control.rules()
        (silent,) = rule["befallen"]
        stages = {machine["instanceId"]: machine["stage"] for machine in await control.nodes()}
        assert stages[silent] == "silent"
        (restarting, *_) = set(instance_ids) - {silent}
        await control.add(NotReady(for_seconds=3600), match=Match(instance_id=restarting))

        async def one_is_not_ready() -> bool:
            return condition((await nodes_of(admin, [restarting]))[restarting], "Ready") == "False"

        await wait_until(one_is_not_ready)
    finally:
        await asyncio.to_thread(fleet.terminate_all, instance_ids)
    await wait_until(all_deleted)
