"""EC2 protocol in both directions, against botocore's serializer and parser."""

import datetime as dt
from typing import Any
from xml.etree import ElementTree

import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from tenure.sandbox.aws.wire.query import ec2_operation, parse_form
from tenure.sandbox.aws.wire.responses import AwsError, error_response
from tenure.sandbox.aws.wire.xml import Raw, action_response, named_shape

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("DescribeInstances", {"InstanceIds": ["i-1", "i-2"], "Filters": [{"Name": "a", "Values": ["x", "y"]}]}),
    ("DescribeInstances", {"MaxResults": 5, "DryRun": True}),
    (
        "CreateFleet",
        {
            "Type": "instant",
            "ClientToken": "t",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": "name", "Version": "$Latest"},
                    "Overrides": [{"InstanceType": "m5.large", "SubnetId": "s", "Priority": 0.25}] * 12,
                }
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "spot"},
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a.b/c", "Value": "1=2&3"}]}],
        },
    ),
    (
        "CreateLaunchTemplate",
        {
            "LaunchTemplateName": "name",
            "ClientToken": "t",
            "LaunchTemplateData": {
                "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-1", "sg-2"], "DeleteOnTermination": False}],
                "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "Encrypted": True}}],
                "SecurityGroupIds": ["sg-3"],
                "IamInstanceProfile": {"Name": "p"},
                "TagSpecifications": [{"ResourceType": "network-interface", "Tags": [{"Key": "k", "Value": ""}]}],
            },
        },
    ),
    ("CreateTags", {"Resources": ["i-1"], "Tags": [{"Key": "Name", "Value": "ä ö"}]}),
    ("DescribeInstanceTypes", {"InstanceTypes": ["m5.large"]}),
]


@pytest.mark.parametrize(("action", "request_"), REQUESTS)
def test_serialized_request_is_parsed(action: str, request_: dict[str, Any]) -> None:
    form = create_serializer("ec2").serialize_to_request(request_, ec2_operation(action))["body"]
    assert parse_form(action, {key: str(value) for key, value in form.items()}) == request_


@pytest.mark.parametrize(
    "form",
    [{"MaxResults": "many"}, {"DryRun": "perhaps"}, {"Filter.x.Name": "a"}, {"Filter": "a", "Filter.1.Name": "b"}],
)
def test_invalid_form_is_a_client_error(form: dict[str, str]) -> None:
    with pytest.raises(AwsError) as error:
        parse_form("DescribeInstances", form)
    assert error.value.code == "InvalidParameterValue"


def read(action: str, body: bytes, status: int = 200) -> dict[str, Any]:
    shape = ec2_operation(action).output_shape
    assert shape is not None
    parsed: dict[str, Any] = create_parser("ec2").parse({"status_code": status, "headers": {}, "body": body}, shape)
    return parsed


def test_response_is_parsed_by_botocore() -> None:
    stamp = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    instance = {
        "InstanceId": "i-1",
        "LaunchTime": stamp,
        "EbsOptimized": False,
        "Tags": [{"Key": "<&>", "Value": "ü"}],
        "SecurityGroups": [],
        "KeyName": None,
    }
    values = {"Reservations": [{"ReservationId": "r-1", "Instances": [instance]}], "NextToken": None}
    (reservation,) = read("DescribeInstances", action_response("DescribeInstances", values))["Reservations"]
    (found,) = reservation["Instances"]
    assert found == {k: v for k, v in instance.items() if v is not None}


def test_cached_xml_parses_like_new_xml() -> None:
    facts = {"InstanceType": "m5.large", "VCpuInfo": {"DefaultVCpus": 2, "ValidCores": [1, 2]}}
    cached = named_shape("InstanceTypeInfo", facts)
    assert isinstance(cached, Raw)
    body = action_response("DescribeInstanceTypes", {"InstanceTypes": [cached, facts]})
    first, second = read("DescribeInstanceTypes", body)["InstanceTypes"]
    assert first == second == facts


@pytest.mark.parametrize(("service", "root"), [("ec2", "Response"), ("iam", "ErrorResponse")])
def test_xml_services_return_xml_errors(service: str, root: str) -> None:
    response = error_response(service, AwsError("Some.Code", "a < b"))
    tree = ElementTree.fromstring(response.body)
    assert tree.tag == root
    assert tree.findtext(".//Error/Code") == "Some.Code"
    assert tree.findtext(".//Error/Message") == "a < b"


def test_json_services_return_json_errors() -> None:
    response = error_response("ssm", AwsError("ParameterNotFound", "no"))
    assert response.headers["x-amzn-ErrorType"] == "ParameterNotFound"
    assert b'"__type": "ParameterNotFound"' in response.body
