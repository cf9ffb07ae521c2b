"""Stops and starts through the AWS adapter, under the shipped policy."""

import pytest

from tenure.aws.adapters import AwsAdapters
from tenure.model.errors import Forbidden
from tenure.sandbox.aws.admin.client import AwsControl
from tests.support.aws.steps import admin_client, make_launch_group, prepare_launch, resolve_nodeclass
from tests.support.product.eventually import wait_until


async def test_an_instance_of_the_cluster_is_stopped_and_started(cloud: AwsAdapters, control: AwsControl) -> None:
    result = await cloud.fleet.create(make_launch_group(await prepare_launch(cloud, await resolve_nodeclass(cloud))))
    (one,) = (instance.instance_id for instance in result.instances)

    async def is_in(state: str) -> None:
        found = await cloud.instances.get(one)
        assert found is not None and (found.state, found.root) == (state, "ebs")

    await wait_until(lambda: is_in("running"))
    assert await cloud.instances.stop(one)
    await wait_until(lambda: is_in("stopped"))
    assert await cloud.instances.start(one)
    await wait_until(lambda: is_in("running"))
    assert await cloud.instances.stop("i-0123456789abcdef0") is False
    assert await cloud.instances.start("i-0123456789abcdef0") is False
    assert control.list_denials() == []


async def test_instances_of_others_may_not_be_stopped(cloud: AwsAdapters, endpoint: str) -> None:
    ec2 = admin_client(endpoint)
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    image = next(one["ImageId"] for one in ec2.describe_images()["Images"] if one["Architecture"] == "x86_64")
    run = ec2.run_instances(MinCount=1, MaxCount=1, InstanceType="m5.large", SubnetId=subnet, ImageId=image)
    for call in (cloud.instances.stop, cloud.instances.start):
        with pytest.raises(Forbidden):
            await call(run["Instances"][0]["InstanceId"])
