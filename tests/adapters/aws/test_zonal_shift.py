"""Zonal shift on the AWS stand-in: no calls with the setting off; no launches in shifted zones with it on."""

from collections.abc import AsyncIterator

import pytest

from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.errors import BadInput, TryLater
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.steps import prepare_launch, resolve_nodeclass


@pytest.fixture
async def shift_aware_cloud(endpoint: str, control: AwsControl, region: Region) -> AsyncIterator[AwsAdapters]:
    one = adapters(endpoint, region, zonal_shift=True)
    yield one
    one.close()


async def test_no_zonal_shift_call_with_the_setting_off(cloud: AwsAdapters, control: AwsControl) -> None:
    control.shift_zone("usw2-az1")
    await cloud.zones.check()
    assert await cloud.zones.fetch_shifted_zones() == frozenset()
    assert control.count_calls("arc-zonal-shift:GetManagedResource") == 0


async def test_launch_excludes_shifted_zones(shift_aware_cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolve_nodeclass(shift_aware_cloud)
    shifted_subnet = next(subnet for subnet in one.status.subnets)
    control.shift_zone(shifted_subnet.zone_id)
    request = await prepare_launch(shift_aware_cloud, one)
    zones = {override.zone for override in request.overrides}
    assert zones and shifted_subnet.zone not in zones


async def test_zonal_shift_is_read_once_in_half_a_minute(shift_aware_cloud: AwsAdapters, control: AwsControl) -> None:
    for _ in range(5):
        await shift_aware_cloud.zones.fetch_shifted_zones()
    assert control.count_calls("arc-zonal-shift:GetManagedResource") == 1


async def test_missing_instance_is_not_reported_gone_during_a_shift(
    shift_aware_cloud: AwsAdapters, control: AwsControl
) -> None:
    control.shift_zone("usw2-az1")
    with pytest.raises(TryLater, match="usw2-az1"):
        await shift_aware_cloud.instances.get("i-0123456789abcdef0")


async def test_ended_zonal_shift_no_longer_applies(shift_aware_cloud: AwsAdapters, control: AwsControl) -> None:
    control.shift_zone("usw2-az1")
    control.end_zonal_shifts()
    assert await shift_aware_cloud.instances.get("i-0123456789abcdef0") is None


async def test_cluster_not_registered_for_zonal_shift_is_rejected(endpoint: str, control: AwsControl) -> None:
    control.add_fault(
        "error", service="arc-zonal-shift", action="GetManagedResource", code="ResourceNotFoundException", http=404
    )
    one = adapters(endpoint, zonal_shift=True)
    with pytest.raises(BadInput, match="ENABLE_ZONAL_SHIFT"):
        await one.zones.check()
    one.close()
