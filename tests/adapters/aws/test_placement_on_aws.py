"""Placement groups against the stand-in, under the IAM policy that ships: resolved, launched into, refused by."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.launch import FleetAnswer, LaunchRequest
from tenure.model.provider_results import Resolved
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import claim, node_class
from tests.support.aws.steps import group_of, outsider, prepared, resolved

KEY = labels.PLACEMENT_GROUP_PARTITION
PLAIN = ((labels.CAPACITY_TYPE, "In", "on-demand"), (labels.INSTANCE_TYPE, "In", "m5.large"))
IN_A = (labels.ZONE, "In", "us-west-2a")


def group(endpoint: str, name: str = "racks", **more: Any) -> str:
    """Made by somebody else: its id."""
    made = outsider(endpoint).create_placement_group(GroupName=name, **{"Strategy": "partition", **more})
    return str(made["PlacementGroup"]["GroupId"])


def placed(name: str = "racks") -> EC2NodeClass:
    return node_class(placementGroupSelector={"name": name})


async def launched(
    cloud: AwsAdapters, one: EC2NodeClass, *wanted: tuple[Any, ...], attempt: int = 1
) -> tuple[LaunchRequest, FleetAnswer]:
    request = await prepared(cloud, one, claim(*PLAIN, *wanted))
    return request, await cloud.fleet.create(group_of(request, attempt=attempt))


def told(found: Resolved) -> tuple[str, str]:
    (one,) = [each for each in found.conditions if each.type == labels.PLACEMENT_GROUP_READY]
    return one.status, one.reason


async def test_a_launch_goes_into_the_partition_that_was_asked_for(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    made = group(endpoint, PartitionCount=3)
    one = await resolved(cloud, placed())
    request, answer = await launched(cloud, one, (KEY, "In", "3", "2"))
    assert (request.placement_group, request.partition) == (made, "2")
    found = await cloud.instances.get(answer.instances[0].instance_id)
    assert found is not None and (found.placement_group, found.partition) == (made, "2")
    (facts,) = await cloud.fleet.describe(answer, one, claim(*PLAIN))
    assert (facts.labels[labels.PLACEMENT_GROUP_ID], facts.labels[KEY]) == (made, "2")
    assert control.denials() == []


async def test_a_partition_that_ec2_chooses_is_unknown_until_it_is_read(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    group(endpoint, PartitionCount=3)
    one = await resolved(cloud, placed())
    request, answer = await launched(cloud, one)
    assert request.partition == ""
    (facts,) = await cloud.fleet.describe(answer, one, claim(*PLAIN))
    assert facts.labels[KEY] == ""
    control.advance(30)
    found = await cloud.instances.get(answer.instances[0].instance_id)
    assert found is not None and found.partition in ("1", "2", "3")


async def test_types_in_a_partitioned_group_are_offered_once_for_each_partition(
    cloud: AwsAdapters, endpoint: str
) -> None:
    group(endpoint, PartitionCount=3)
    one = await resolved(cloud, placed())
    of = {each.name: each for each in await cloud.offerings.instance_types(one)}["m5.large"]
    assert of.labels[KEY] == ("1", "2", "3")
    counts = [len([offering for offering in of.offerings if offering.partition == n]) for n in ("1", "2", "3", "")]
    assert counts[0] == counts[1] == counts[2] > 0 and counts[3] == 0


async def test_a_full_partition_is_not_asked_for_again_and_others_are(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    made = group(endpoint, PartitionCount=3)
    control.fill_placement_group(made, partition=2)
    one = await resolved(cloud, placed())
    wanted = (KEY, "In", "3", "2")
    _, answer = await launched(cloud, one, IN_A, wanted)
    assert answer.instances == ()
    assert {error.partition for error in answer.errors} == {"2"}
    request, answer = await launched(cloud, one, IN_A, wanted)
    assert request.partition == "3"
    assert len(answer.instances) == 1


async def test_a_full_group_is_full_for_all_types_in_its_zone_and_for_no_other_class(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    made = group(endpoint, Strategy="spread")
    one = await resolved(cloud, placed())
    for attempt in range(1, 8):
        _, answer = await launched(cloud, one, IN_A, attempt=attempt)
        assert len(answer.instances) == 1
    request, answer = await launched(cloud, one, IN_A, attempt=8)
    assert answer.instances == ()
    assert {(error.placement_group, error.insufficient) for error in answer.errors} == {(made, True)}
    other_type = claim((labels.CAPACITY_TYPE, "In", "on-demand"), (labels.INSTANCE_TYPE, "In", "c5.large"))
    request = await prepared(cloud, one, other_type)
    assert "us-west-2a" not in {each.zone for each in request.overrides}
    plain = await resolved(cloud, node_class(uid="another"))
    assert "us-west-2a" in {each.zone for each in (await prepared(cloud, plain, other_type)).overrides}


async def test_types_that_cannot_stand_in_a_group_of_its_strategy_are_left_out(
    cloud: AwsAdapters, endpoint: str
) -> None:
    group(endpoint, Strategy="cluster")
    one = await resolved(cloud, placed())
    of = {each.name: each for each in await cloud.offerings.instance_types(one)}
    assert any(offering.available for offering in of["m5.large"].offerings)
    assert not any(offering.available for offering in of["t3.large"].offerings)


async def test_a_group_that_is_deleted_and_made_anew_is_found_again(
    control: AwsControl, region: Region, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.aws.nodeclass.placement_groups._FRESH_SECONDS", 0.0)
    cloud = adapters(endpoint, region)
    first = group(endpoint)
    one = await resolved(cloud, placed())
    outsider(endpoint).delete_placement_group(GroupName="racks")
    found = await cloud.resolver.resolve(one)
    assert told(found) == ("False", labels.PLACEMENT_GROUP_NOT_FOUND)
    assert found.again_in is not None and found.again_in.total_seconds() <= 60
    second = group(endpoint)
    assert told(await cloud.resolver.resolve(one)) == ("True", "")
    assert (await prepared(cloud, one, claim(*PLAIN))).placement_group == second != first
    cloud.close()


async def test_while_ec2_does_not_answer_the_last_group_stands(
    control: AwsControl, region: Region, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.aws.nodeclass.placement_groups._FRESH_SECONDS", 0.0)
    cloud = adapters(endpoint, region)
    made = group(endpoint)
    one = await resolved(cloud, placed())
    control.add_fault("throttle", service="ec2", action="DescribePlacementGroups")
    found = await cloud.fleet.prepare(claim(*PLAIN), one, now=datetime.now(UTC))
    assert found.kind == "prepared" and found.request.placement_group == made
    cloud.close()
