"""Zonal shift on the stand-in: with the setting off nobody asks; with it on nothing is bought where it is away."""

from collections.abc import AsyncIterator

import pytest

from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.errors import BadInput, TryLater
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.steps import prepare_launch, resolve_nodeclass


@pytest.fixture
async def shifting(endpoint: str, control: AwsControl, region: Region) -> AsyncIterator[AwsAdapters]:
    one = adapters(endpoint, region, zonal_shift=True)
    yield one
    one.close()


async def test_nothing_is_asked_while_the_setting_is_off(cloud: AwsAdapters, control: AwsControl) -> None:
    control.shift_zone("usw2-az1")
    await cloud.zones.check()
    assert await cloud.zones.fetch_shifted_zones() == frozenset()
    assert control.count_calls("arc-zonal-shift:GetManagedResource") == 0


async def test_no_launch_names_a_zone_that_is_away(shifting: AwsAdapters, control: AwsControl) -> None:
    one = await resolve_nodeclass(shifting)
    shifted_subnet = next(subnet for subnet in one.status.subnets)
    control.shift_zone(shifted_subnet.zone_id)
    request = await prepare_launch(shifting, one)
    zones = {override.zone for override in request.overrides}
    assert zones and shifted_subnet.zone not in zones


async def test_a_shift_is_read_once_in_half_a_minute(shifting: AwsAdapters, control: AwsControl) -> None:
    for _ in range(5):
        await shifting.zones.fetch_shifted_zones()
    assert control.count_calls("arc-zonal-shift:GetManagedResource") == 1


async def test_an_instance_that_is_not_listed_is_not_taken_for_gone(shifting: AwsAdapters, control: AwsControl) -> None:
    control.shift_zone("usw2-az1")
    with pytest.raises(TryLater, match="usw2-az1"):
        await shifting.instances.get("i-0123456789abcdef0")


async def test_a_shift_that_has_ended_is_forgotten(shifting: AwsAdapters, control: AwsControl) -> None:
    control.shift_zone("usw2-az1")
    control.end_zonal_shifts()
    assert await shifting.instances.get("i-0123456789abcdef0") is None


async def test_a_cluster_that_takes_no_shifts_is_refused_at_the_start(endpoint: str, control: AwsControl) -> None:
    control.add_fault(
        "error", service="arc-zonal-shift", action="GetManagedResource", code="ResourceNotFoundException", http=404
    )
    one = adapters(endpoint, zonal_shift=True)
    with pytest.raises(BadInput, match="ENABLE_ZONAL_SHIFT"):
        await one.zones.check()
    one.close()
