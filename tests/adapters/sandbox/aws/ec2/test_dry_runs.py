"""Dry runs, with which Tenure validates an EC2NodeClass, and the same errors in real calls."""

import base64
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import FakeAwsClient, error_codes, raises_code, tag_list

NOWHERE = "0123456789abcdef0"


def try_run(kit: FakeAwsClient, *, template: str = "mine", **request: Any) -> str:
    """The error code that RunInstances returns for a dry run in Karpenter's form."""
    full = {
        "InstanceType": "m5.large",
        "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": kit.subnets()[0]["SubnetId"]}],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(a="b")} for kind in ("instance", "volume", "network-interface")
        ],
        **request,
    }
    with pytest.raises(ClientError) as exc_info:
        kit.ec2.run_instances(
            DryRun=True,
            MinCount=1,
            MaxCount=1,
            LaunchTemplate={"LaunchTemplateName": template, "Version": "$Latest"},
            **full,
        )
    error = exc_info.value.response["Error"]
    assert ("Invalid IAM Instance Profile name" in error["Message"]) == ("nobody" in error["Message"])
    return str(error["Code"])


def foreign_security_group(kit: FakeAwsClient) -> str:
    """A security group of another VPC."""
    vpc = kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    return str(kit.ec2.create_security_group(GroupName="far", Description="far", VpcId=vpc)["GroupId"])


def test_dry_run_of_a_valid_template_creates_nothing(kit: FakeAwsClient) -> None:
    kit.create_template("mine")
    assert try_run(kit) == "DryRunOperation"
    with raises_code("DryRunOperation"):
        kit.create_fleet(kit.overrides("m5.large"), template="mine", DryRun=True)
    with raises_code("DryRunOperation"):
        kit.ec2.create_launch_template(
            LaunchTemplateName="other", LaunchTemplateData={"ImageId": kit.image_id()}, DryRun=True
        )
    assert kit.control.list_instances()["launched"] == 0
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
def test_missing_reference_of_a_template_has_its_error_code(
    kit: FakeAwsClient, data: dict[str, Any], expected: str
) -> None:
    kit.create_template("mine", **data)
    assert try_run(kit) == expected
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), template="mine")
    assert set(error_codes(response).values()) == {expected}


def test_missing_subnet_template_and_type_have_their_error_codes(kit: FakeAwsClient) -> None:
    kit.create_template("mine")
    missing = [{"DeviceIndex": 0, "SubnetId": f"subnet-{NOWHERE}"}]
    assert try_run(kit, NetworkInterfaces=missing) == "InvalidSubnetID.NotFound"
    assert try_run(kit, template="theirs") == "InvalidLaunchTemplateName.NotFoundException"
    assert try_run(kit, InstanceType="m99.huge") == "InvalidParameterValue"


def test_security_group_of_another_vpc_is_rejected(kit: FakeAwsClient) -> None:
    kit.create_template("mine", NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [foreign_security_group(kit)]}])
    assert try_run(kit) == "InvalidParameter"


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        (base64.b64encode(b"x" * 16384).decode(), "DryRunOperation", ""),
        (base64.b64encode(b"x" * 16385).decode(), "InvalidUserData.Malformed", "User data is limited to"),
        ("not base64!", "InvalidUserData.Malformed", "Invalid BASE64 encoding"),
    ],
    ids=["largest", "too large", "no base64"],
)
def test_user_data_format_and_size_are_checked(kit: FakeAwsClient, text: str, expected: str, message: str) -> None:
    kit.create_template("mine")
    data = {"UserData": text}
    with raises_code(expected) as error:
        kit.ec2.create_launch_template(LaunchTemplateName="next", LaunchTemplateData=data, DryRun=True)
    assert message in str(error.value)
    # botocore encodes the user data of RunInstances, so invalid base64 cannot reach it.
    if expected == "InvalidUserData.Malformed" and text.isalnum():
        assert try_run(kit, UserData=base64.b64decode(text)) == expected


def test_instance_with_unusable_kms_key_shuts_down_before_it_runs(kit: FakeAwsClient) -> None:
    key = kit.client("kms").create_key()["KeyMetadata"]["Arn"]
    mapping = {"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "VolumeSize": 20}}
    for name, key_arn in (("good", key), ("bad", f"arn:aws:kms:us-west-2:123456789012:key/{NOWHERE}")):
        mapping["Ebs"] = {"Encrypted": True, "VolumeSize": 20, "KmsKeyId": key_arn}
        kit.create_template(name, BlockDeviceMappings=[mapping])
        response = kit.create_fleet(kit.overrides("m5.large", zones="a"), template=name)
        (one,) = (i for group in response["Instances"] for i in group["InstanceIds"])
        kit.control.advance_clock(2)
        found = kit.describe_instance(one)
        assert found["State"]["Name"] == ("running" if name == "good" else "shutting-down")
        assert found.get("StateReason", {}).get("Code") == (None if name == "good" else "Client.InternalError")
