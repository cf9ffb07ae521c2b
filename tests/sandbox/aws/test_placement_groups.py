"""Placement groups: made, found, used by launches."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.kit import StandInKit, code, ids


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
