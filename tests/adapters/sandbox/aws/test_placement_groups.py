"""Placement groups: made, found, used by launches."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import StandInKit, code, errors_of, ids


def test_placement_groups(kit: StandInKit) -> None:
    made = kit.ec2.create_placement_group(GroupName="near", Strategy="partition", PartitionCount=3)["PlacementGroup"]
    (found,) = kit.ec2.describe_placement_groups(
        GroupIds=[made["GroupId"]], Filters=[{"Name": "state", "Values": ["available"]}]
    )["PlacementGroups"]
    assert (found["GroupName"], found["PartitionCount"]) == ("near", 3)
    kit.template(Placement={"GroupId": made["GroupId"], "PartitionNumber": 2})
    (one,) = ids(kit.fleet(kit.overrides("m5.large", zones="a")))
    placement = kit.describe(one)["Placement"]
    assert (placement["GroupName"], placement["PartitionNumber"]) == ("near", 2)
    with pytest.raises(ClientError) as missing:
        kit.ec2.describe_placement_groups(GroupNames=["far"])
    assert code(missing) == "InvalidPlacementGroup.Unknown"


def group(kit: StandInKit, strategy: str, **request: Any) -> str:
    made = kit.ec2.create_placement_group(GroupName=strategy, Strategy=strategy, **request)
    return str(made["PlacementGroup"]["GroupId"])


def buy(kit: StandInKit, placement: dict[str, Any], count: int = 1, kind: str = "m5.large", zones: str = "a") -> Any:
    name = f"group-{len(kit.ec2.describe_launch_templates()['LaunchTemplates'])}"
    kit.template(name, Placement=placement)
    return kit.fleet(kit.overrides(kind, zones=zones), count, template=name)


def test_ec2_spreads_over_the_partitions_and_tells_once_the_instance_runs(kit: StandInKit) -> None:
    launched = ids(buy(kit, {"GroupId": group(kit, "partition", PartitionCount=3)}, 4))
    assert "PartitionNumber" not in kit.describe(launched[0])["Placement"]
    kit.control.advance(2)
    assert sorted(kit.describe(one)["Placement"]["PartitionNumber"] for one in launched) == [1, 1, 2, 3]
    wanted = [{"Name": "placement-partition-number", "Values": ["2"]}]
    assert len(kit.listed(Filters=wanted)) == 1


@pytest.mark.parametrize(
    ("strategy", "placement", "kind", "expected"),
    [
        ("partition", {"PartitionNumber": 8}, "m5.large", "InvalidParameterValue"),
        ("spread", {"PartitionNumber": 1}, "m5.large", "InvalidParameterCombination"),
        ("cluster", {}, "t3.large", "InvalidParameterCombination"),
    ],
)
def test_what_a_group_does_not_support_is_an_error_of_the_pool(
    kit: StandInKit, strategy: str, placement: dict[str, Any], kind: str, expected: str
) -> None:
    answer = buy(kit, {"GroupId": group(kit, strategy), **placement}, kind=kind)
    assert set(errors_of(answer).values()) == {expected}


def test_a_spread_group_takes_seven_in_a_zone(kit: StandInKit) -> None:
    placement = {"GroupId": group(kit, "spread")}
    answer = buy(kit, placement, 8)
    assert len(ids(answer)) == 7
    (error,) = answer["Errors"]
    assert error["ErrorCode"] == "UnfulfillableCapacity"
    assert "limit of instances in this spread placement group" in error["ErrorMessage"]
    assert len(ids(buy(kit, placement, zones="b"))) == 1
    kit.ec2.terminate_instances(InstanceIds=ids(answer)[:1])
    assert len(ids(buy(kit, placement))) == 1


def test_a_cluster_stays_in_one_zone_and_is_not_deleted_under_its_instances(kit: StandInKit) -> None:
    placement = {"GroupId": group(kit, "cluster")}
    (one,) = ids(buy(kit, placement))
    assert set(errors_of(buy(kit, placement, zones="b")).values()) == {"InvalidPlacementGroup.InUse"}
    with pytest.raises(ClientError) as refused:
        kit.ec2.delete_placement_group(GroupName="cluster")
    assert code(refused) == "InvalidPlacementGroup.InUse"
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.ec2.delete_placement_group(GroupName="cluster")


def test_a_full_partition_is_passed_over_or_has_no_capacity(kit: StandInKit) -> None:
    made = group(kit, "partition", PartitionCount=2)
    kit.control.fill_placement_group(made, partition=1)
    (one,) = ids(buy(kit, {"GroupId": made}))
    kit.control.advance(2)
    assert kit.describe(one)["Placement"]["PartitionNumber"] == 2
    answer = buy(kit, {"GroupId": made, "PartitionNumber": 1})
    assert set(errors_of(answer).values()) == {"InsufficientInstanceCapacity"}
    kit.control.fill_placement_group(made, partition=1, full=False)
    assert ids(buy(kit, {"GroupId": made, "PartitionNumber": 1}))


@pytest.mark.parametrize(
    "request_",
    [{"Strategy": "pile"}, {"Strategy": "spread", "PartitionCount": 2}, {"Strategy": "partition", "PartitionCount": 8}],
)
def test_senseless_groups_are_refused(kit: StandInKit, request_: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as refused:
        kit.ec2.create_placement_group(GroupName="x", **request_)
    assert code(refused) == "InvalidParameterValue"
