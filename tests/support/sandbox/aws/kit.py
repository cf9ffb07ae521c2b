"""A client of a running AWS stand-in, with the calls that most of its tests need."""

import base64
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tenure.sandbox.aws.admin.client import AwsControl
from tests.support.paths import ROOT

AL2023 = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023"
USER_DATA = base64.b64encode(b"MIME-Version: 1.0").decode()
DEFAULT_TEMPLATE = "karpenter.k8s.aws/1"
Json = dict[str, Any]


def start_fake_aws(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a stand-in as a process. Returns the process and its URL."""
    command = [sys.executable, "-m", "tenure.sandbox.aws", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "ready at" in line, line
    return process, line.split()[-1]


def stop_process(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(timeout=60)


@contextmanager
def raises_code(code: str) -> Iterator[pytest.ExceptionInfo[ClientError]]:
    """Like pytest.raises, for an AWS error with this code."""
    with pytest.raises(ClientError) as caught:
        yield caught
    assert caught.value.response["Error"]["Code"] == code


def tag_list(**found: str) -> list[Json]:
    return [{"Key": key, "Value": value} for key, value in found.items()]


def targeted_specification(reservation: str) -> Json:
    return {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": reservation},
    }


class FakeAwsClient:
    """`ec2` never retries, so that a test sees every response of the stand-in."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.control = AwsControl(url)
        self.ec2 = self.client("ec2")
        self.iam = self.client("iam")

    def client(self, service: str, *, key: str = "test", region: str = "us-west-2") -> Any:
        make: Any = boto3.client
        return make(
            service,
            endpoint_url=self.url,
            region_name=region,
            aws_access_key_id=key,
            aws_secret_access_key="secret",
            config=Config(retries={"max_attempts": 0}, read_timeout=30),
        )

    def image_id(self, arch: str = "x86_64", variant: str = "standard") -> str:
        name = f"{AL2023}/{arch}/{variant}/recommended/image_id"
        return str(self.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])

    def subnets(self) -> list[Json]:
        """The seeded subnets, sorted by zone."""
        filters = [{"Name": "tag:karpenter.sh/discovery", "Values": ["demo"]}]
        found: list[Json] = self.ec2.describe_subnets(Filters=filters)["Subnets"]
        return sorted(found, key=lambda subnet: str(subnet["AvailabilityZone"]))

    def security_group_id(self) -> str:
        filters = [{"Name": "tag:karpenter.sh/discovery", "Values": ["demo"]}]
        return str(self.ec2.describe_security_groups(Filters=filters)["SecurityGroups"][0]["GroupId"])

    def create_template(self, name: str = DEFAULT_TEMPLATE, **data: Any) -> str:
        """Create a launch template with the seeded image and security group, overridden by `data`. Returns its id."""
        full = {
            "ImageId": self.image_id(),
            "UserData": USER_DATA,
            "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [self.security_group_id()]}],
            **data,
        }
        full = {key: value for key, value in full.items() if value is not None}
        response = self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=full)
        return str(response["LaunchTemplate"]["LaunchTemplateId"])

    def overrides(self, *types: str, zones: str = "abc", **extra: Any) -> list[Json]:
        """One override per type and zone."""
        return [
            {"InstanceType": one, "SubnetId": s["SubnetId"], "AvailabilityZone": s["AvailabilityZone"], **extra}
            for one in types
            for s in self.subnets()
            if s["AvailabilityZone"][-1] in zones
        ]

    def create_fleet(
        self,
        overrides: Sequence[Json],
        count: int = 1,
        *,
        capacity_type: str = "on-demand",
        template: str = DEFAULT_TEMPLATE,
        **request: Any,
    ) -> Json:
        """Creates the default template if no template exists."""
        if template == DEFAULT_TEMPLATE and not self.ec2.describe_launch_templates()["LaunchTemplates"]:
            self.create_template()
        target = {"TotalTargetCapacity": count, "DefaultTargetCapacityType": capacity_type}
        specification = {"LaunchTemplateName": template, "Version": "$Latest"}
        configs = [{"LaunchTemplateSpecification": specification, "Overrides": list(overrides)}]
        defaults = {"Type": "instant", "LaunchTemplateConfigs": configs, "TargetCapacitySpecification": target}
        response: Json = self.ec2.create_fleet(**{**defaults, **request})
        return response

    def launch_instances(self, *types: str, count: int = 1, **request: Any) -> list[str]:
        """Launch instances of these types. Returns their ids."""
        return instance_ids(self.create_fleet(self.overrides(*(types or ("m5.large",))), count, **request))

    def describe_instance(self, instance_id: str) -> Json:
        reservations = self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
        found: Json = reservations[0]["Instances"][0]
        return found

    def list_instance_ids(self, **request: Any) -> list[str]:
        """Ids that DescribeInstances lists."""
        found = self.ec2.describe_instances(**request)["Reservations"]
        return [instance["InstanceId"] for one in found for instance in one["Instances"]]

    def create_instance_profile(self, name: str = "nodes", path: str = "/", key: str = "test", **request: Any) -> str:
        """Create an instance profile with the node role. Returns its ARN."""
        iam = self.client("iam", key=key)
        created = iam.create_instance_profile(InstanceProfileName=name, Path=path, **request)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName="KarpenterNodeRole-demo")
        return str(created["InstanceProfile"]["Arn"])


def instance_ids(response: Json) -> list[str]:
    return [one for group in response["Instances"] for one in group["InstanceIds"]]


def instance_types(response: Json) -> list[str]:
    return [str(group["InstanceType"]) for group in response["Instances"]]


def error_codes(response: Json) -> dict[str, str]:
    """Error codes by `type/zone` of the pool."""
    found = {}
    for error in response.get("Errors", ()):
        override = error["LaunchTemplateAndOverrides"]["Overrides"]
        found[f"{override.get('InstanceType')}/{override.get('AvailabilityZone')}"] = str(error["ErrorCode"])
    return found
