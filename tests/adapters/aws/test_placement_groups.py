"""Placement groups against the AWS stand-in, under the shipped IAM policy: resolution, launch and full groups."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.launch import FleetResult, LaunchRequest
from tenure.model.provider_results import ResolvedNodeClass
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import build_nodeclaim, build_nodeclass
from tests.support.aws.steps import admin_client, make_launch_group, prepare_launch, resolve_nodeclass

KEY = labels.PLACEMENT_GROUP_PARTITION
PLAIN = ((labels.CAPACITY_TYPE, "In", "on-demand"), (labels.INSTANCE_TYPE, "In", "m5.large"))
IN_A = (labels.ZONE, "In", "us-west-2a")


def create_placement_group(endpoint: str, name: str = "racks", **more: Any) -> str:
    """Create a placement group outside of Tenure. Returns its id."""
    created = admin_client(endpoint).create_placement_group(GroupName=name, **{"Strategy": "partition", **more})
    return str(created["PlacementGroup"]["GroupId"])


def placement_nodeclass(name: str = "racks") -> EC2NodeClass:
    return build_nodeclass(placementGroupSelector={"name": name})


async def launch(
    cloud: AwsAdapters, one: EC2NodeClass, *requirements: tuple[Any, ...], attempt: int = 1
) -> tuple[LaunchRequest, FleetResult]:
    request = await prepare_launch(cloud, one, build_nodeclaim(*PLAIN, *requirements))
    return request, await cloud.fleet.create(make_launch_group(request, attempt=attempt))


def placement_condition(found: ResolvedNodeClass) -> tuple[str, str]:
    (one,) = [each for each in found.conditions if each.type == labels.PLACEMENT_GROUP_READY]
    return one.status, one.reason


async def test_launch_uses_the_requested_partition(cloud: AwsAdapters, control: AwsControl, endpoint: str) -> None:
    group = create_placement_group(endpoint, PartitionCount=3)
    one = await resolve_nodeclass(cloud, placement_nodeclass())
    request, result = await launch(cloud, one, (KEY, "In", "3", "2"))
    assert (request.placement_group, request.partition) == (group, "2")
    found = await cloud.instances.get(result.instances[0].instance_id)
    assert found is not None and (found.placement_group, found.partition) == (group, "2")
    (facts,) = await cloud.fleet.describe(result, one, build_nodeclaim(*PLAIN))
    assert (facts.labels[labels.PLACEMENT_GROUP_ID], facts.labels[KEY]) == (group, "2")
    assert control.list_denials() == []


async def test_partition_chosen_by_ec2_is_unknown_until_described(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    create_placement_group(endpoint, PartitionCount=3)
    one = await resolve_nodeclass(cloud, placement_nodeclass())
    request, result = await launch(cloud, one)
    assert request.partition == ""
    (facts,) = await cloud.fleet.describe(result, one, build_nodeclaim(*PLAIN))
    assert facts.labels[KEY] == ""
    control.advance_clock(30)
    found = await cloud.instances.get(result.instances[0].instance_id)
    assert found is not None and found.partition in ("1", "2", "3")


async def test_types_have_an_offering_per_partition(cloud: AwsAdapters, endpoint: str) -> None:
    create_placement_group(endpoint, PartitionCount=3)
    one = await resolve_nodeclass(cloud, placement_nodeclass())
    of = {each.name: each for each in await cloud.offerings.instance_types(one)}["m5.large"]
    assert of.labels[KEY] == ("1", "2", "3")
    counts = [len([offering for offering in of.offerings if offering.partition == n]) for n in ("1", "2", "3", "")]
    assert counts[0] == counts[1] == counts[2] > 0 and counts[3] == 0


async def test_launch_after_full_partition_uses_another_partition(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    group = create_placement_group(endpoint, PartitionCount=3)
    control.set_placement_group_full(group, partition=2)
    one = await resolve_nodeclass(cloud, placement_nodeclass())
    partition_requirement = (KEY, "In", "3", "2")
    _, result = await launch(cloud, one, IN_A, partition_requirement)
    assert result.instances == ()
    assert {error.partition for error in result.errors} == {"2"}
    request, result = await launch(cloud, one, IN_A, partition_requirement)
    assert request.partition == "3"
    assert len(result.instances) == 1


async def test_full_group_blocks_all_types_in_its_zone_for_its_class_only(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    group = create_placement_group(endpoint, Strategy="spread")
    one = await resolve_nodeclass(cloud, placement_nodeclass())
    for attempt in range(1, 8):
        _, result = await launch(cloud, one, IN_A, attempt=attempt)
        assert len(result.instances) == 1
    request, result = await launch(cloud, one, IN_A, attempt=8)
    assert result.instances == ()
    assert {(error.placement_group, error.insufficient) for error in result.errors} == {(group, True)}
    other_type = build_nodeclaim((labels.CAPACITY_TYPE, "In", "on-demand"), (labels.INSTANCE_TYPE, "In", "c5.large"))
    request = await prepare_launch(cloud, one, other_type)
    assert "us-west-2a" not in {each.zone for each in request.overrides}
    plain = await resolve_nodeclass(cloud, build_nodeclass(uid="another"))
    assert "us-west-2a" in {each.zone for each in (await prepare_launch(cloud, plain, other_type)).overrides}


async def test_recreated_placement_group_is_found(
    control: AwsControl, region: Region, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.aws.nodeclass.placement_groups._FRESH_SECONDS", 0.0)
    cloud = adapters(endpoint, region)
    first = create_placement_group(endpoint)
    one = await resolve_nodeclass(cloud, placement_nodeclass())
    admin_client(endpoint).delete_placement_group(GroupName="racks")
    found = await cloud.resolver.resolve(one)
    assert placement_condition(found) == ("False", labels.PLACEMENT_GROUP_NOT_FOUND)
    assert found.retry_after is not None and found.retry_after.total_seconds() <= 60
    second = create_placement_group(endpoint)
    assert placement_condition(await cloud.resolver.resolve(one)) == ("True", "")
    assert (await prepare_launch(cloud, one, build_nodeclaim(*PLAIN))).placement_group == second != first
    cloud.close()


async def test_last_placement_group_is_used_while_ec2_is_throttled(
    control: AwsControl, region: Region, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.aws.nodeclass.placement_groups._FRESH_SECONDS", 0.0)
    cloud = adapters(endpoint, region)
    group = create_placement_group(endpoint)
    one = await resolve_nodeclass(cloud, placement_nodeclass())
    control.add_fault("throttle", service="ec2", action="DescribePlacementGroups")
    found = await cloud.fleet.prepare(build_nodeclaim(*PLAIN), one, now=datetime.now(UTC))
    assert found.kind == "prepared" and found.request.placement_group == group
    cloud.close()
