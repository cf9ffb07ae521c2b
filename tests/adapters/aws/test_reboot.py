"""Reboots through the AWS adapter, under the shipped policy."""

import pytest

from tenure.aws.adapters import AwsAdapters
from tenure.model.errors import Forbidden
from tenure.sandbox.aws.admin.client import AwsControl
from tests.support.aws.steps import admin_client, make_launch_group, prepare_launch, resolve_nodeclass


async def test_an_instance_of_the_cluster_is_rebooted_and_one_that_is_gone_is_not(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    result = await cloud.fleet.create(make_launch_group(await prepare_launch(cloud, await resolve_nodeclass(cloud))))
    (one,) = (instance.instance_id for instance in result.instances)
    assert await cloud.instances.reboot(one)
    (observed,) = control.list_instances()["instances"]
    assert (observed["id"], observed["reboots"]) == (one, 1)
    assert await cloud.instances.reboot("i-0123456789abcdef0") is False
    assert control.list_denials() == []


async def test_instances_of_others_may_not_be_rebooted(cloud: AwsAdapters, endpoint: str) -> None:
    ec2 = admin_client(endpoint)
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    image = next(one["ImageId"] for one in ec2.describe_images()["Images"] if one["Architecture"] == "x86_64")
    run = ec2.run_instances(MinCount=1, MaxCount=1, InstanceType="m5.large", SubnetId=subnet, ImageId=image)
    with pytest.raises(Forbidden):
        await cloud.instances.reboot(run["Instances"][0]["InstanceId"])
