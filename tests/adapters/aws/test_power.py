"""Reboots, stops and starts through the AWS adapter, under the shipped IAM policy."""

import pytest

from tenure.aws.adapters import AwsAdapters
from tenure.model.errors import Forbidden
from tenure.sandbox.aws.admin.client import AwsControl
from tests.support.aws.steps import launch, run_foreign_instances
from tests.support.product.eventually import wait_until

MISSING_INSTANCE = "i-0123456789abcdef0"


async def test_instance_of_the_cluster_is_rebooted(cloud: AwsAdapters, control: AwsControl) -> None:
    (one,) = (instance.instance_id for instance in (await launch(cloud)).instances)
    assert await cloud.instances.reboot(one)
    (observed,) = control.list_instances()["instances"]
    assert (observed["id"], observed["reboots"]) == (one, 1)
    assert await cloud.instances.reboot(MISSING_INSTANCE) is False
    assert control.list_denials() == []


async def test_instance_of_the_cluster_is_stopped_and_started(cloud: AwsAdapters, control: AwsControl) -> None:
    (one,) = (instance.instance_id for instance in (await launch(cloud)).instances)

    async def is_in(state: str) -> None:
        found = await cloud.instances.get(one)
        assert found is not None and (found.state, found.root) == (state, "ebs")

    await wait_until(lambda: is_in("running"))
    assert await cloud.instances.stop(one)
    await wait_until(lambda: is_in("stopped"))
    assert await cloud.instances.start(one)
    await wait_until(lambda: is_in("running"))
    assert await cloud.instances.stop(MISSING_INSTANCE) is False
    assert await cloud.instances.start(MISSING_INSTANCE) is False
    assert control.list_denials() == []


async def test_foreign_instances_cannot_be_rebooted_stopped_or_started(cloud: AwsAdapters, endpoint: str) -> None:
    (foreign,) = run_foreign_instances(endpoint)
    for call in (cloud.instances.reboot, cloud.instances.stop, cloud.instances.start):
        with pytest.raises(Forbidden):
            await call(foreign)
