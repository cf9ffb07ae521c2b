"""Single tests of our own parts of the AWS stand-in, and of the parts of moto that we depend on."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import FakeAwsClient, instance_ids, raises_code


def test_security_groups_are_filtered_and_paged(kit: FakeAwsClient) -> None:
    vpc = kit.subnets()[0]["VpcId"]
    groups = [
        kit.ec2.create_security_group(GroupName=f"g{number}", Description="x", VpcId=vpc)["GroupId"]
        for number in range(7)
    ]
    kit.ec2.create_tags(Resources=groups, Tags=[{"Key": "team", "Value": "x"}])

    def found(name: str, *values: str) -> list[str]:
        pages = kit.ec2.get_paginator("describe_security_groups").paginate(
            Filters=[{"Name": name, "Values": list(values)}], PaginationConfig={"PageSize": 5}
        )
        return sorted(group["GroupId"] for page in pages for group in page["SecurityGroups"])

    assert found("tag:team", "x") == found("tag-key", "team") == found("group-id", *groups) == sorted(groups)
    assert found("group-name", "g1") == [groups[1]]
    assert found("tag:team", "y") == []


def test_rebooted_instance_stays_running(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.control.advance_clock(2)
    before = kit.control.list_instances()
    kit.ec2.reboot_instances(InstanceIds=[one])
    assert kit.describe_instance(one)["State"]["Name"] == "running"
    after = kit.control.list_instances()
    assert after["revision"] > before["revision"]
    assert [instance["reboots"] for instance in after["instances"]] == [1]


def test_terminating_instance_cannot_be_rebooted(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.control.advance_clock(2)
    kit.ec2.terminate_instances(InstanceIds=[one])
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        kit.ec2.reboot_instances(InstanceIds=[one])


def test_deleted_fleet_terminates_its_instances_on_request(kit: FakeAwsClient) -> None:
    kit.create_template()
    for takes, state in ((False, "pending"), (True, "shutting-down")):
        response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
        deleted = kit.ec2.delete_fleets(FleetIds=[response["FleetId"]], TerminateInstances=takes)
        assert len(deleted["SuccessfulFleetDeletions"]) == 1
        assert kit.describe_instance(instance_ids(response)[0])["State"]["Name"] == state
        with raises_code("InvalidFleetId.NotFound"):
            kit.ec2.describe_fleets(FleetIds=[response["FleetId"]])


def test_clusters_and_default_quotas_are_listed(kit: FakeAwsClient) -> None:
    assert kit.client("eks").list_clusters()["clusters"] == ["demo"]
    kit.control.set_vcpu_limit("on-demand", 5)
    quotas = kit.client("service-quotas").list_aws_default_service_quotas(ServiceCode="ec2")["Quotas"]
    assert min(quota["Value"] for quota in quotas) > 5


@pytest.mark.parametrize(
    ("expected", "message"), [("MaxFleetCountExceeded", None), ("PendingVerification", "Your request is verified")]
)
def test_pool_can_fail_with_a_configured_error(kit: FakeAwsClient, expected: str, message: str | None) -> None:
    kit.control.set_pool(0, zone="us-west-2a", code=expected, message=message)
    response: Any = kit.create_fleet(kit.overrides("m5.large", zones="ab"), 2)
    assert len(instance_ids(response)) == 2
    kit.control.set_pool(0, zone="us-west-2b")
    codes = {e["ErrorCode"] for e in kit.create_fleet(kit.overrides("m5.large", zones="ab"))["Errors"]}
    assert codes == {expected, "InsufficientInstanceCapacity"}


@pytest.mark.parametrize(
    ("service", "call", "request_", "code"),
    [
        ("ec2", "describe_images", {"ImageIds": ["ami-0123456789abcdef0"]}, "InvalidAMIID.NotFound"),
        ("ec2", "describe_images", {"ImageIds": ["x"]}, "InvalidAMIID.Malformed"),
        ("ec2", "describe_subnets", {"SubnetIds": ["subnet-0123456789abcdef0"]}, "InvalidSubnetID.NotFound"),
        ("ec2", "describe_subnets", {"SubnetIds": ["subnet-x"]}, "InvalidSubnetID.Malformed"),
        ("ec2", "describe_instance_types", {"InstanceTypes": ["m99.huge"]}, "InvalidInstanceType"),
        ("ec2", "describe_placement_groups", {"GroupNames": ["far"]}, "InvalidPlacementGroup.Unknown"),
        (
            "ec2",
            "describe_capacity_reservations",
            {"CapacityReservationIds": ["cr-0123456789abcdef0"]},
            "InvalidCapacityReservationId.NotFound",
        ),
        ("ec2", "describe_verified_access_trust_providers", {}, "InvalidAction"),
        ("eks", "describe_cluster", {"name": "other"}, "ResourceNotFoundException"),
    ],
)
def test_missing_resource_has_its_error_code(
    kit: FakeAwsClient, service: str, call: str, request_: dict[str, Any], code: str
) -> None:
    with raises_code(code):
        getattr(kit.client(service), call)(**request_)
