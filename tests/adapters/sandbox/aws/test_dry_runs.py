"""Dry runs, and the same errors in real calls: what a NodeClass is validated with before anything is bought."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import StandInKit, code, errors_of, tags

NOWHERE = "0123456789abcdef0"


def try_run(kit: StandInKit, *, template: str = "mine", **request: Any) -> str:
    """The code that RunInstances, asked as a dry run in Karpenter's way, is answered with."""
    full = {
        "InstanceType": "m5.large",
        "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": kit.subnets()[0]["SubnetId"]}],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags(a="b")} for kind in ("instance", "volume", "network-interface")
        ],
        **request,
    }
    with pytest.raises(ClientError) as answer:
        kit.ec2.run_instances(
            DryRun=True,
            MinCount=1,
            MaxCount=1,
            LaunchTemplate={"LaunchTemplateName": template, "Version": "$Latest"},
            **full,
        )
    return code(answer)


def other_network(kit: StandInKit) -> str:
    """A security group of another VPC."""
    vpc = kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    return str(kit.ec2.create_security_group(GroupName="far", Description="far", VpcId=vpc)["GroupId"])


def test_a_sound_template_would_have_succeeded_and_makes_nothing(kit: StandInKit) -> None:
    kit.template("mine")
    assert try_run(kit) == "DryRunOperation"
    with pytest.raises(ClientError) as fleet:
        kit.fleet(kit.overrides("m5.large"), template="mine", DryRun=True)
    assert code(fleet) == "DryRunOperation"
    with pytest.raises(ClientError) as template:
        kit.ec2.create_launch_template(
            LaunchTemplateName="other", LaunchTemplateData={"ImageId": kit.image()}, DryRun=True
        )
    assert code(template) == "DryRunOperation"
    assert kit.control.instances()["launched"] == 0
    assert len(kit.ec2.describe_launch_templates()["LaunchTemplates"]) == 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"ImageId": f"ami-{NOWHERE}"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "ami-x"}, "InvalidAMIID.Malformed"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [f"sg-{NOWHERE}"]}]}, "InvalidGroup.NotFound"),
        ({"Placement": {"GroupId": f"pg-{NOWHERE}"}}, "InvalidPlacementGroupId.NotFound"),
    ],
)
def test_what_a_template_names_and_is_not_there(kit: StandInKit, data: dict[str, Any], expected: str) -> None:
    kit.template("mine", **data)
    assert try_run(kit) == expected
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), template="mine")
    assert set(errors_of(answer).values()) == {expected}


def test_subnet_template_and_type_that_are_not_there(kit: StandInKit) -> None:
    kit.template("mine")
    missing = [{"DeviceIndex": 0, "SubnetId": f"subnet-{NOWHERE}"}]
    assert try_run(kit, NetworkInterfaces=missing) == "InvalidSubnetID.NotFound"
    assert try_run(kit, template="theirs") == "InvalidLaunchTemplateName.NotFoundException"
    assert try_run(kit, InstanceType="m99.huge") == "InvalidParameterValue"


def test_a_group_of_another_network(kit: StandInKit) -> None:
    kit.template("mine", NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [other_network(kit)]}])
    assert try_run(kit) == "InvalidParameter"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (base64.b64encode(b"x" * 16384).decode(), "DryRunOperation"),
        (base64.b64encode(b"x" * 16385).decode(), "InvalidUserData.Malformed"),
        ("not base64!", "InvalidUserData.Malformed"),
    ],
)
def test_user_data_has_a_form_and_a_size(kit: StandInKit, text: str, expected: str) -> None:
    kit.template("mine")
    with pytest.raises(ClientError) as answer:
        kit.ec2.create_launch_template(LaunchTemplateName="next", LaunchTemplateData={"UserData": text}, DryRun=True)
    assert code(answer) == expected
    # botocore encodes what RunInstances is given; text that is no base64 cannot reach it.
    if expected == "InvalidUserData.Malformed" and text.isalnum():
        assert try_run(kit, UserData=base64.b64decode(text)) == expected


def test_a_key_that_cannot_be_used_ends_the_instance_before_it_runs(kit: StandInKit) -> None:
    key = kit.client("kms").create_key()["KeyMetadata"]["Arn"]
    mapping = {"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "VolumeSize": 20}}
    for name, given in (("good", key), ("bad", f"arn:aws:kms:us-west-2:123456789012:key/{NOWHERE}")):
        mapping["Ebs"] = {"Encrypted": True, "VolumeSize": 20, "KmsKeyId": given}
        kit.template(name, BlockDeviceMappings=[mapping])
        answer = kit.fleet(kit.overrides("m5.large", zones="a"), template=name)
        (one,) = (i for group in answer["Instances"] for i in group["InstanceIds"])
        kit.control.advance(2)
        found = kit.describe(one)
        assert found["State"]["Name"] == ("running" if name == "good" else "shutting-down")
        assert found.get("StateReason", {}).get("Code") == (None if name == "good" else "Client.InternalError")
