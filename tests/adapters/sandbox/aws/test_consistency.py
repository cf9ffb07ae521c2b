"""Eventual consistency: what was just made and is not known everywhere yet."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import StandInKit, code, errors_of, ids, tags


def test_a_fresh_profile_is_not_known_to_ec2_for_some_seconds(kit: StandInKit) -> None:
    kit.control.configure(profile_visibility_seconds=10)
    kit.profile("fresh")
    assert kit.iam.get_instance_profile(InstanceProfileName="fresh")
    kit.template(IamInstanceProfile={"Name": "fresh"})
    answer = kit.fleet(kit.overrides("m5.large", zones="a"))
    assert set(errors_of(answer).values()) == {"InvalidParameterValue"}
    assert "Invalid IAM Instance Profile name" in answer["Errors"][0]["ErrorMessage"]
    kit.control.advance(11)
    assert ids(kit.fleet(kit.overrides("m5.large", zones="a")))


def test_a_fresh_template_is_not_found_for_some_seconds(kit: StandInKit) -> None:
    kit.control.configure(template_visibility_seconds=10)
    made = kit.template("fresh")
    assert kit.ec2.describe_launch_templates()["LaunchTemplates"] == []
    with pytest.raises(ClientError) as by_id:
        kit.ec2.describe_launch_templates(LaunchTemplateIds=[made])
    assert code(by_id) == "InvalidLaunchTemplateId.NotFound"
    with pytest.raises(ClientError) as by_name:
        kit.fleet(kit.overrides("m5.large"), template="fresh")
    assert code(by_name) == "InvalidLaunchTemplateName.NotFoundException"
    with pytest.raises(ClientError) as again:
        kit.template("fresh")
    assert code(again) == "InvalidLaunchTemplateName.AlreadyExistsException"
    kit.control.advance(11)
    assert ids(kit.fleet(kit.overrides("m5.large"), template="fresh"))


def test_a_fresh_instance_can_be_neither_listed_nor_tagged_nor_terminated(kit: StandInKit) -> None:
    kit.control.configure(visibility_seconds=10)
    (one,) = kit.launch()
    statuses = kit.ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]
    assert kit.listed() == statuses == []
    for call, request in (
        (kit.ec2.create_tags, {"Resources": [one], "Tags": tags(Name="x")}),
        (kit.ec2.terminate_instances, {"InstanceIds": [one]}),
    ):
        with pytest.raises(ClientError) as unknown:
            call(**request)
        assert code(unknown) == "InvalidInstanceID.NotFound"
    kit.control.advance(11)
    kit.ec2.create_tags(Resources=[one], Tags=tags(Name="x"))
    assert kit.listed() == [one]


def test_prefixes_take_sixteen_addresses_each_and_give_them_back(kit: StandInKit) -> None:
    before = kit.subnets()[0]["AvailableIpAddressCount"]
    kit.template(NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [kit.group()], "Ipv4PrefixCount": 2}])
    (one,) = ids(kit.fleet(kit.overrides("m5.large", zones="a")))
    assert kit.subnets()[0]["AvailableIpAddressCount"] == before - 33
    kit.control.set_free_addresses(kit.subnets()[0]["SubnetId"], 32)
    answer = kit.fleet(kit.overrides("m5.large", zones="a"))
    assert set(errors_of(answer).values()) == {"InsufficientFreeAddressesInSubnet"}
    kit.control.set_free_addresses(kit.subnets()[0]["SubnetId"], None)
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.control.advance(3)
    assert kit.subnets()[0]["AvailableIpAddressCount"] == before
