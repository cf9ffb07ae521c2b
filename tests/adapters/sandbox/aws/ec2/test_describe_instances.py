"""DescribeInstances: filters, complete pages, and error codes for instance ids."""

import datetime as dt
from typing import Any

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, instance_ids, raises_code, tag_list


def to_filters(**filters: str | list[str]) -> list[dict[str, Any]]:
    """Filters by name; `_` in a name stands for `-`."""
    return [
        {"Name": name.replace("_", "-"), "Values": [value] if isinstance(value, str) else value}
        for name, value in filters.items()
    ]


def launch_tagged(kit: FakeAwsClient, **found: str) -> str:
    specification = [{"ResourceType": "instance", "Tags": tag_list(**found)}]
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a"), TagSpecifications=specification))
    return one


def test_two_filters_of_one_name_are_anded(kit: FakeAwsClient) -> None:
    kit.create_template()
    doubly_tagged, _one = launch_tagged(kit, pool="a", cls="x"), launch_tagged(kit, pool="a")
    filters = [*to_filters(tag_key="pool"), *to_filters(tag_key="cls")]
    assert kit.list_instance_ids(Filters=filters) == [doubly_tagged]


def test_values_of_one_filter_are_ored_and_may_have_wildcards(kit: FakeAwsClient) -> None:
    kit.create_template()
    a, b, _c = launch_tagged(kit, pool="alpha"), launch_tagged(kit, pool="beta"), launch_tagged(kit, pool="gamma")
    assert kit.list_instance_ids(Filters=[{"Name": "tag:pool", "Values": ["al*", "bet?"]}]) == [a, b]


FILTERS = [
    ("instance-type", "m5.large"),
    ("instance-state-name", "pending"),
    ("instance-state-code", "0"),
    ("instance-lifecycle", "spot"),
    ("availability-zone", "us-west-2a"),
    ("architecture", "x86_64"),
    ("tag-value", "here"),
    ("tenancy", "default"),
    ("monitoring-state", "disabled"),
    ("metadata-options.http-tokens", "optional"),
    ("platform-details", "Linux/UNIX"),
]
PATHS = [
    ("instance-id", "InstanceId"),
    ("image-id", "ImageId"),
    ("spot-instance-request-id", "SpotInstanceRequestId"),
    ("client-token", "ClientToken"),
    ("subnet-id", "SubnetId"),
    ("vpc-id", "VpcId"),
    ("private-ip-address", "PrivateIpAddress"),
    ("private-dns-name", "PrivateDnsName"),
    ("availability-zone-id", "Placement.AvailabilityZoneId"),
    ("network-interface.subnet-id", "NetworkInterfaces.SubnetId"),
    ("network-interface.network-interface-id", "NetworkInterfaces.NetworkInterfaceId"),
    ("network-interface.group-id", "NetworkInterfaces.Groups.GroupId"),
    ("instance.group-id", "SecurityGroups.GroupId"),
    ("iam-instance-profile.arn", "IamInstanceProfile.Arn"),
    ("block-device-mapping.volume-id", "BlockDeviceMappings.Ebs.VolumeId"),
]


def launch_spot_instance(kit: FakeAwsClient) -> dict[str, Any]:
    kit.create_instance_profile()
    kit.create_template(IamInstanceProfile={"Name": "nodes"})
    specification = [{"ResourceType": "instance", "Tags": tag_list(where="here")}]
    response = kit.create_fleet(
        kit.overrides("m5.large", zones="a"), capacity_type="spot", TagSpecifications=specification
    )
    return kit.describe_instance(instance_ids(response)[0])


def test_every_usual_filter_includes_and_excludes(kit: FakeAwsClient) -> None:
    instance = launch_spot_instance(kit)
    filters = FILTERS + [(name, _at(instance, path)) for name, path in PATHS]
    filters.append(("launch-time", instance["LaunchTime"].strftime("%Y-%m-%dT*")))
    for name, value in filters:
        assert kit.list_instance_ids(Filters=[{"Name": name, "Values": [value]}]) == [instance["InstanceId"]], name
        assert kit.list_instance_ids(Filters=[{"Name": name, "Values": ["something-else"]}]) == [], name


def _at(view: Any, path: str) -> str:
    for step in path.split("."):
        view = view[0] if isinstance(view, list) else view
        view = view[step]
    return str(view)


def test_pages_count_instances_and_are_complete(kit: FakeAwsClient) -> None:
    launched = {
        one for _ in range(3) for one in instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a"), 4))
    }
    first = kit.ec2.describe_instances(MaxResults=5)
    assert sum(len(r["Instances"]) for r in first["Reservations"]) == 5
    pages = kit.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
    listed = [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]
    assert len(listed) == 12
    assert set(listed) == launched


def test_next_page_continues_after_a_deleted_instance(kit: FakeAwsClient) -> None:
    launched = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a"), 10))
    first = kit.ec2.describe_instances(MaxResults=5)
    listed = [i["InstanceId"] for r in first["Reservations"] for i in r["Instances"]]
    kit.ec2.terminate_instances(InstanceIds=listed)
    kit.control.advance_clock(3)
    kit.control.advance_clock(61)
    rest = kit.ec2.describe_instances(MaxResults=5, NextToken=first["NextToken"])
    assert {i["InstanceId"] for r in rest["Reservations"] for i in r["Instances"]} == set(launched) - set(listed)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"Filters": to_filters(colour="blue")}, "InvalidParameterValue"),
        ({"MaxResults": 4}, "InvalidParameterValue"),
        ({"MaxResults": 1001}, "InvalidParameterValue"),
        ({"MaxResults": 5, "NextToken": "???"}, "InvalidParameterValue"),
        ({"MaxResults": 5, "InstanceIds": ["THERE"]}, "InvalidParameterCombination"),
        ({"InstanceIds": ["THERE", "i-0123456789abcdef0"]}, "InvalidInstanceID.NotFound"),
        ({"InstanceIds": ["THERE", "i-banana"]}, "InvalidInstanceID.Malformed"),
        ({"InstanceIds": ["THERE", "banana"]}, "InvalidInstanceID.Malformed"),
    ],
    ids=str,
)
def test_invalid_request_has_its_error_code(kit: FakeAwsClient, request_: dict[str, Any], code: str) -> None:
    (instance,) = kit.launch_instances()
    if "InstanceIds" in request_:
        request_ = {**request_, "InstanceIds": [instance if one == "THERE" else one for one in request_["InstanceIds"]]}
    with raises_code(code):
        kit.ec2.describe_instances(**request_)


def test_repeated_id_returns_one_instance(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    assert kit.list_instance_ids(InstanceIds=[one, one]) == [one]


def test_new_instance_is_invisible_for_visibility_seconds(kit: FakeAwsClient) -> None:
    kit.control.configure(visibility_seconds=5)
    (one,) = kit.launch_instances()
    assert kit.list_instance_ids() == []
    with raises_code("InvalidInstanceID.NotFound"):
        kit.describe_instance(one)
    kit.control.advance_clock(6)
    assert kit.list_instance_ids() == [one]


def test_status_filters_select_impaired_and_scheduled_instances(kit: FakeAwsClient) -> None:
    impaired, scheduled = kit.launch_instances(count=2)
    kit.control.advance_clock(2)
    kit.control.set_status(impaired, instance="impaired")
    event = {"code": "instance-retirement", "not_before": "2030-01-01T00:00:00.000Z"}
    kit.control.set_status(scheduled, events=[event])

    def statuses(name: str, value: str) -> list[str]:
        found = kit.ec2.describe_instance_status(Filters=[{"Name": name, "Values": [value]}])["InstanceStatuses"]
        return [status["InstanceId"] for status in found]

    assert statuses("instance-status.status", "impaired") == [impaired]
    assert statuses("system-status.status", "impaired") == []
    assert statuses("event.code", "instance-retirement") == [scheduled]
    assert len(kit.ec2.describe_instance_status()["InstanceStatuses"]) == 2


def test_failed_check_has_impaired_since_unless_unset(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.control.advance_clock(2)

    def describe_status(**set_to: Any) -> Any:
        kit.control.set_status(one, **set_to)
        return kit.ec2.describe_instance_status(InstanceIds=[one])["InstanceStatuses"][0]

    now = dt.datetime.now(dt.UTC)
    since = describe_status(system="impaired", impaired_seconds=600)["SystemStatus"]["Details"][0]["ImpairedSince"]
    assert dt.timedelta(seconds=590) < now - since < dt.timedelta(seconds=610)
    assert (
        "ImpairedSince" not in describe_status(instance="impaired", impaired_seconds=-1)["InstanceStatus"]["Details"][0]
    )
    assert describe_status(ebs="impaired")["AttachedEbsStatus"]["Status"] == "impaired"
    assert describe_status()["SystemStatus"]["Status"] == "ok"


def test_status_of_pending_instances_needs_include_all(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    assert kit.ec2.describe_instance_status()["InstanceStatuses"] == []
    (status,) = kit.ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]
    assert (status["InstanceId"], status["InstanceState"]["Name"]) == (one, "pending")
