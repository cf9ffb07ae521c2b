"""Placement groups: creation, filters, and launches into them."""

from typing import Any

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, error_codes, instance_ids, raises_code


def test_instance_launches_into_a_partition(kit: FakeAwsClient) -> None:
    group = kit.ec2.create_placement_group(GroupName="near", Strategy="partition", PartitionCount=3)["PlacementGroup"]
    (found,) = kit.ec2.describe_placement_groups(
        GroupIds=[group["GroupId"]], Filters=[{"Name": "state", "Values": ["available"]}]
    )["PlacementGroups"]
    assert (found["GroupName"], found["PartitionCount"]) == ("near", 3)
    kit.create_template(Placement={"GroupId": group["GroupId"], "PartitionNumber": 2})
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))
    placement = kit.describe_instance(one)["Placement"]
    assert (placement["GroupName"], placement["PartitionNumber"]) == ("near", 2)


def create_placement_group(kit: FakeAwsClient, strategy: str, **request: Any) -> str:
    group = kit.ec2.create_placement_group(GroupName=strategy, Strategy=strategy, **request)
    return str(group["PlacementGroup"]["GroupId"])


def create_fleet(
    kit: FakeAwsClient, placement: dict[str, Any], count: int = 1, kind: str = "m5.large", zones: str = "a"
) -> Any:
    name = f"group-{len(kit.ec2.describe_launch_templates()['LaunchTemplates'])}"
    kit.create_template(name, Placement=placement)
    return kit.create_fleet(kit.overrides(kind, zones=zones), count, template=name)


def test_ec2_chooses_partitions_and_shows_them_once_running(kit: FakeAwsClient) -> None:
    launched = instance_ids(
        create_fleet(kit, {"GroupId": create_placement_group(kit, "partition", PartitionCount=3)}, 4)
    )
    assert "PartitionNumber" not in kit.describe_instance(launched[0])["Placement"]
    kit.control.advance_clock(2)
    assert sorted(kit.describe_instance(one)["Placement"]["PartitionNumber"] for one in launched) == [1, 1, 2, 3]
    filters = [{"Name": "placement-partition-number", "Values": ["2"]}]
    assert len(kit.list_instance_ids(Filters=filters)) == 1


@pytest.mark.parametrize(
    ("strategy", "placement", "kind", "expected"),
    [
        ("partition", {"PartitionNumber": 8}, "m5.large", "InvalidParameterValue"),
        ("spread", {"PartitionNumber": 1}, "m5.large", "InvalidParameterCombination"),
        ("cluster", {}, "t3.large", "InvalidParameterCombination"),
    ],
)
def test_launch_unsupported_by_the_strategy_is_an_error_of_the_pool(
    kit: FakeAwsClient, strategy: str, placement: dict[str, Any], kind: str, expected: str
) -> None:
    response = create_fleet(kit, {"GroupId": create_placement_group(kit, strategy), **placement}, kind=kind)
    assert set(error_codes(response).values()) == {expected}


def test_spread_group_has_seven_instances_per_zone(kit: FakeAwsClient) -> None:
    placement = {"GroupId": create_placement_group(kit, "spread")}
    response = create_fleet(kit, placement, 8)
    assert len(instance_ids(response)) == 7
    (error,) = response["Errors"]
    assert error["ErrorCode"] == "UnfulfillableCapacity"
    assert "limit of instances in this spread placement group" in error["ErrorMessage"]
    assert len(instance_ids(create_fleet(kit, placement, zones="b"))) == 1
    kit.ec2.terminate_instances(InstanceIds=instance_ids(response)[:1])
    assert len(instance_ids(create_fleet(kit, placement))) == 1


def test_cluster_group_has_one_zone_and_cannot_be_deleted_while_in_use(kit: FakeAwsClient) -> None:
    placement = {"GroupId": create_placement_group(kit, "cluster")}
    (one,) = instance_ids(create_fleet(kit, placement))
    assert set(error_codes(create_fleet(kit, placement, zones="b")).values()) == {"InvalidPlacementGroup.InUse"}
    with raises_code("InvalidPlacementGroup.InUse"):
        kit.ec2.delete_placement_group(GroupName="cluster")
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.ec2.delete_placement_group(GroupName="cluster")


def test_full_partition_is_skipped_or_has_no_capacity(kit: FakeAwsClient) -> None:
    group = create_placement_group(kit, "partition", PartitionCount=2)
    kit.control.set_placement_group_full(group, partition=1)
    (one,) = instance_ids(create_fleet(kit, {"GroupId": group}))
    kit.control.advance_clock(2)
    assert kit.describe_instance(one)["Placement"]["PartitionNumber"] == 2
    response = create_fleet(kit, {"GroupId": group, "PartitionNumber": 1})
    assert set(error_codes(response).values()) == {"InsufficientInstanceCapacity"}
    kit.control.set_placement_group_full(group, partition=1, full=False)
    assert instance_ids(create_fleet(kit, {"GroupId": group, "PartitionNumber": 1}))


@pytest.mark.parametrize(
    "request_",
    [{"Strategy": "pile"}, {"Strategy": "spread", "PartitionCount": 2}, {"Strategy": "partition", "PartitionCount": 8}],
)
def test_invalid_placement_groups_are_rejected(kit: FakeAwsClient, request_: dict[str, Any]) -> None:
    with raises_code("InvalidParameterValue"):
        kit.ec2.create_placement_group(GroupName="x", **request_)
