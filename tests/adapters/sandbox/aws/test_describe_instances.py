"""DescribeInstances: filters that mean what they say, pages that lose nobody, and the right errors for ids."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import StandInKit, code, ids, tags


def where(**filters: str | list[str]) -> list[dict[str, Any]]:
    """Filters by name; `_` stands for `-`."""
    return [
        {"Name": name.replace("_", "-"), "Values": [value] if isinstance(value, str) else value}
        for name, value in filters.items()
    ]


def tagged(kit: StandInKit, **found: str) -> str:
    specification = [{"ResourceType": "instance", "Tags": tags(**found)}]
    (one,) = ids(kit.fleet(kit.overrides("m5.large", zones="a"), TagSpecifications=specification))
    return one


def test_two_filters_of_one_name_are_both_required(kit: StandInKit) -> None:
    kit.template()
    both, _one = tagged(kit, pool="a", cls="x"), tagged(kit, pool="a")
    filters = [*where(tag_key="pool"), *where(tag_key="cls")]
    assert kit.listed(Filters=filters) == [both]


def test_values_of_one_filter_are_alternatives_and_may_have_wildcards(kit: StandInKit) -> None:
    kit.template()
    a, b, _c = tagged(kit, pool="alpha"), tagged(kit, pool="beta"), tagged(kit, pool="gamma")
    assert kit.listed(Filters=[{"Name": "tag:pool", "Values": ["al*", "bet?"]}]) == [a, b]


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


def spot_instance(kit: StandInKit) -> dict[str, Any]:
    kit.profile()
    kit.template(IamInstanceProfile={"Name": "nodes"})
    specification = [{"ResourceType": "instance", "Tags": tags(where="here")}]
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type="spot", TagSpecifications=specification)
    return kit.describe(ids(answer)[0])


def test_every_usual_filter_finds_and_excludes(kit: StandInKit) -> None:
    instance = spot_instance(kit)
    wanted = FILTERS + [(name, _at(instance, path)) for name, path in PATHS]
    wanted.append(("launch-time", instance["LaunchTime"].strftime("%Y-%m-%dT*")))
    for name, value in wanted:
        assert kit.listed(Filters=[{"Name": name, "Values": [value]}]) == [instance["InstanceId"]], name
        assert kit.listed(Filters=[{"Name": name, "Values": ["something-else"]}]) == [], name


def _at(view: Any, path: str) -> str:
    for step in path.split("."):
        view = view[0] if isinstance(view, list) else view
        view = view[step]
    return str(view)


def test_an_unknown_filter_is_refused(kit: StandInKit) -> None:
    with pytest.raises(ClientError) as refused:
        kit.listed(Filters=where(colour="blue"))
    assert code(refused) == "InvalidParameterValue"


def test_pages_count_instances_not_reservations_and_lose_nobody(kit: StandInKit) -> None:
    kit.template()
    launched = {one for _ in range(3) for one in ids(kit.fleet(kit.overrides("m5.large", zones="a"), 4))}
    first = kit.ec2.describe_instances(MaxResults=5)
    assert sum(len(r["Instances"]) for r in first["Reservations"]) == 5
    pages = kit.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
    seen = [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]
    assert len(seen) == 12
    assert set(seen) == launched


def test_a_page_goes_on_after_its_last_one_even_if_that_is_gone(kit: StandInKit) -> None:
    kit.template()
    launched = ids(kit.fleet(kit.overrides("m5.large", zones="a"), 10))
    first = kit.ec2.describe_instances(MaxResults=5)
    shown = [i["InstanceId"] for r in first["Reservations"] for i in r["Instances"]]
    kit.ec2.terminate_instances(InstanceIds=shown)
    kit.control.advance(3)
    kit.control.advance(61)
    rest = kit.ec2.describe_instances(MaxResults=5, NextToken=first["NextToken"])
    assert {i["InstanceId"] for r in rest["Reservations"] for i in r["Instances"]} == set(launched) - set(shown)


@pytest.mark.parametrize("size", [4, 1001])
def test_a_page_size_out_of_bounds_is_refused(kit: StandInKit, size: int) -> None:
    with pytest.raises(ClientError) as refused:
        kit.ec2.describe_instances(MaxResults=size)
    assert code(refused) == "InvalidParameterValue"


def test_ids_and_page_size_exclude_each_other(kit: StandInKit) -> None:
    (one,) = kit.launch()
    with pytest.raises(ClientError) as refused:
        kit.ec2.describe_instances(InstanceIds=[one], MaxResults=5)
    assert code(refused) == "InvalidParameterCombination"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("i-0123456789abcdef0", "InvalidInstanceID.NotFound"),
        ("i-banana", "InvalidInstanceID.Malformed"),
        ("banana", "InvalidInstanceID.Malformed"),
    ],
)
def test_wrong_ids_have_their_codes(kit: StandInKit, wrong: str, expected: str) -> None:
    (good,) = kit.launch()
    with pytest.raises(ClientError) as refused:
        kit.ec2.describe_instances(InstanceIds=[good, wrong])
    assert code(refused) == expected


def test_the_same_id_twice_is_one_instance(kit: StandInKit) -> None:
    (one,) = kit.launch()
    assert kit.listed(InstanceIds=[one, one]) == [one]


def test_a_bad_token_is_refused(kit: StandInKit) -> None:
    with pytest.raises(ClientError) as refused:
        kit.ec2.describe_instances(MaxResults=5, NextToken="???")
    assert code(refused) == "InvalidParameterValue"


def test_an_instance_may_be_invisible_for_a_while(kit: StandInKit) -> None:
    kit.control.configure(visibility_seconds=5)
    (one,) = kit.launch()
    assert kit.listed() == []
    with pytest.raises(ClientError) as missing:
        kit.describe(one)
    assert code(missing) == "InvalidInstanceID.NotFound"
    kit.control.advance(6)
    assert kit.listed() == [one]


def test_status_filters_and_impairment(kit: StandInKit) -> None:
    sick, well = kit.launch(count=2)
    kit.control.advance(2)
    kit.control.set_status(sick, instance="impaired")
    event = {"code": "instance-retirement", "not_before": "2030-01-01T00:00:00.000Z"}
    kit.control.set_status(well, events=[event])

    def statuses(name: str, value: str) -> list[str]:
        found = kit.ec2.describe_instance_status(Filters=[{"Name": name, "Values": [value]}])["InstanceStatuses"]
        return [status["InstanceId"] for status in found]

    assert statuses("instance-status.status", "impaired") == [sick]
    assert statuses("system-status.status", "impaired") == []
    assert statuses("event.code", "instance-retirement") == [well]
    assert len(kit.ec2.describe_instance_status()["InstanceStatuses"]) == 2


def test_a_failed_check_says_since_when_unless_ec2_does_not(kit: StandInKit) -> None:
    (one,) = kit.launch()
    kit.control.advance(2)

    def shown(**set_to: Any) -> Any:
        kit.control.set_status(one, **set_to)
        return kit.ec2.describe_instance_status(InstanceIds=[one])["InstanceStatuses"][0]

    now = dt.datetime.now(dt.UTC)
    since = shown(system="impaired", impaired_seconds=600)["SystemStatus"]["Details"][0]["ImpairedSince"]
    assert dt.timedelta(seconds=590) < now - since < dt.timedelta(seconds=610)
    assert "ImpairedSince" not in shown(instance="impaired", impaired_seconds=-1)["InstanceStatus"]["Details"][0]
    assert shown(ebs="impaired")["AttachedEbsStatus"]["Status"] == "impaired"
    assert shown()["SystemStatus"]["Status"] == "ok"


def test_status_of_those_not_running_only_on_demand(kit: StandInKit) -> None:
    (one,) = kit.launch()
    assert kit.ec2.describe_instance_status()["InstanceStatuses"] == []
    (status,) = kit.ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]
    assert (status["InstanceId"], status["InstanceState"]["Name"]) == (one, "pending")
