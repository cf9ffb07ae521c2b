"""The stand-in enforces the shipped IAM policy: it allows the controller's calls and denies others with AWS's
errors.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.resources import IAM_FILES
from tenure.sandbox.aws.iam.credentials import WORKER_KEY
from tenure.sandbox.aws.iam.policy import shipped_policies
from tests.support.sandbox.aws.kit import (
    AL2023,
    USER_DATA,
    FakeAwsClient,
    error_codes,
    instance_ids,
    raises_code,
    start_fake_aws,
    stop_process,
)

CLUSTER = {
    "kubernetes.io/cluster/demo": "owned",
    "eks:eks-cluster-name": "demo",
    "karpenter.sh/nodepool": "default",
    "karpenter.k8s.aws/ec2nodeclass": "default",
}
PROFILE = {
    "kubernetes.io/cluster/demo": "owned",
    "eks:eks-cluster-name": "demo",
    "karpenter.k8s.aws/ec2nodeclass": "default",
    "topology.kubernetes.io/region": "us-west-2",
}


def tags_of(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tag_specifications(tags: dict[str, str], *kinds: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tags_of(tags)} for kind in kinds]


class WorkerClient(FakeAwsClient):
    """FakeAwsClient whose EC2 and IAM calls use the worker's access key."""

    def __init__(self, kit: FakeAwsClient) -> None:
        super().__init__(kit.url)
        self.ec2 = self.client("ec2", key=WORKER_KEY)
        self.iam = self.client("iam", key=WORKER_KEY)

    def make_template(self, name: str = "own", tags: dict[str, str] = CLUSTER, **data: Any) -> None:
        full = {
            "ImageId": self.image_id(),
            "UserData": USER_DATA,
            "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [self.security_group_id()]}],
            "TagSpecifications": tag_specifications(CLUSTER, "network-interface", "spot-instances-request"),
            **data,
        }
        self.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData=full,
            TagSpecifications=tag_specifications(tags, "launch-template"),
        )

    def create_own_fleet(self, count: int = 1, *kinds: str, tags: dict[str, str] = CLUSTER, **request: Any) -> Any:
        kinds = kinds or ("instance", "volume", "fleet")
        request = {"template": "own", "TagSpecifications": tag_specifications(tags, *kinds), **request}
        return self.create_fleet(self.overrides("m5.large", zones="a"), count, **request)


@pytest.fixture
def worker(kit: FakeAwsClient) -> Iterator[WorkerClient]:
    policies = shipped_policies(cluster="demo", region="us-west-2", account="123456789012")
    kit.control.bind_key(WORKER_KEY, list(policies.values()))
    yield WorkerClient(kit)
    kit.control.reset()


def without(tags: dict[str, str], key: str) -> dict[str, str]:
    return {k: v for k, v in tags.items() if k != key}


@pytest.mark.parametrize("capacity_type", ["on-demand", "spot"])
def test_node_lifecycle_calls_are_allowed(worker: WorkerClient, capacity_type: str) -> None:
    iam = worker.iam
    iam.create_instance_profile(InstanceProfileName="mine", Path="/karpenter/", Tags=tags_of(PROFILE))
    iam.add_role_to_instance_profile(InstanceProfileName="mine", RoleName="KarpenterNodeRole-demo")
    worker.make_template(IamInstanceProfile={"Name": "mine"})
    (one,) = instance_ids(worker.create_own_fleet(capacity_type=capacity_type, ClientToken="token"))
    assert worker.describe_instance(one)["InstanceId"] == one
    worker.ec2.create_tags(Resources=[one], Tags=tags_of({"Name": "n", "karpenter.sh/nodeclaim": "c"}))
    worker.ec2.terminate_instances(InstanceIds=[one])
    worker.ec2.delete_launch_template(LaunchTemplateName="own")
    iam.remove_role_from_instance_profile(InstanceProfileName="mine", RoleName="KarpenterNodeRole-demo")
    iam.delete_instance_profile(InstanceProfileName="mine")
    assert worker.control.list_denials() == []


def test_every_read_of_the_controller_is_allowed(worker: WorkerClient) -> None:
    key = {"key": WORKER_KEY}
    for call in (
        "describe_capacity_reservations",
        "describe_images",
        "describe_instances",
        "describe_instance_status",
        "describe_instance_type_offerings",
        "describe_instance_types",
        "describe_launch_templates",
        "describe_placement_groups",
        "describe_security_groups",
        "describe_spot_price_history",
        "describe_subnets",
    ):
        getattr(worker.ec2, call)()
    worker.client("ssm", **key).get_parameter(Name=f"{AL2023}/x86_64/standard/recommended/image_id")
    worker.client("pricing", region="us-east-1", **key).get_products(ServiceCode="AmazonEC2")
    worker.client("eks", **key).describe_cluster(name="demo")
    sqs = worker.client("sqs", **key)
    url = sqs.get_queue_url(QueueName="demo")["QueueUrl"]
    sqs.receive_message(QueueUrl=url)
    arc = worker.client("arc-zonal-shift", **key)
    arc.get_managed_resource(resourceIdentifier="arn:aws:eks:us-west-2:123456789012:cluster/demo")
    worker.client("sts", **key).get_caller_identity()
    worker.iam.list_instance_profiles(PathPrefix="/karpenter/")
    assert worker.control.list_denials() == []


@pytest.mark.parametrize(
    ("service", "method", "request_", "expected"),
    [
        ("ec2", "describe_availability_zones", {}, "UnauthorizedOperation"),
        ("ec2", "describe_volumes", {}, "UnauthorizedOperation"),
        ("ec2", "create_vpc", {"CidrBlock": "10.8.0.0/16"}, "UnauthorizedOperation"),
        ("ssm", "get_parameter", {"Name": "/own/secret"}, "AccessDeniedException"),
        ("ssm", "put_parameter", {"Name": "/x", "Value": "y", "Type": "String"}, "AccessDeniedException"),
        ("eks", "describe_cluster", {"name": "other"}, "AccessDeniedException"),
        ("iam", "get_role", {"RoleName": "KarpenterNodeRole-demo"}, "AccessDenied"),
        ("iam", "create_instance_profile", {"InstanceProfileName": "untagged"}, "AccessDenied"),
        ("iam", "create_role", {"RoleName": "r", "AssumeRolePolicyDocument": "{}"}, "AccessDenied"),
        ("sqs", "get_queue_url", {"QueueName": "other"}, "AccessDeniedException"),
    ],
)
def test_action_outside_the_policy_is_denied(
    worker: WorkerClient, service: str, method: str, request_: dict[str, Any], expected: str
) -> None:
    with raises_code(expected):
        getattr(worker.client(service, key=WORKER_KEY), method)(**request_)
    assert worker.control.list_denials()


@pytest.mark.parametrize("key", ["kubernetes.io/cluster/demo", "eks:eks-cluster-name", "karpenter.sh/nodepool"])
def test_template_without_a_required_tag_is_denied(worker: WorkerClient, key: str) -> None:
    with raises_code("UnauthorizedOperation"):
        worker.make_template(tags=without(CLUSTER, key))


@pytest.mark.parametrize("kind", ["instance", "volume"])
def test_launch_without_required_tags_is_an_error_of_the_fleet(worker: WorkerClient, kind: str) -> None:
    worker.make_template()
    kinds = {"instance", "volume", "fleet"} - {kind}
    response = worker.create_own_fleet(1, *kinds)
    assert response["Instances"] == []
    assert error_codes(response) == {"m5.large/us-west-2a": "UnauthorizedOperation"}
    assert {denial["resource"].split(":")[-1] for denial in worker.control.list_denials()} == {f"{kind}/*"}


def test_fleet_without_its_tags_is_denied(worker: WorkerClient) -> None:
    worker.make_template()
    with raises_code("UnauthorizedOperation"):
        worker.create_own_fleet(1, "instance", "volume")


def test_template_must_tag_network_interfaces(worker: WorkerClient) -> None:
    worker.make_template(TagSpecifications=[])
    response = worker.create_own_fleet()
    assert error_codes(response) == {"m5.large/us-west-2a": "UnauthorizedOperation"}


def test_template_must_tag_spot_requests(worker: WorkerClient) -> None:
    worker.make_template(TagSpecifications=tag_specifications(CLUSTER, "network-interface"))
    assert instance_ids(worker.create_own_fleet())
    response = worker.create_own_fleet(capacity_type="spot")
    assert error_codes(response) == {"m5.large/us-west-2a": "UnauthorizedOperation"}


def test_foreign_launch_template_is_denied(worker: WorkerClient, kit: FakeAwsClient) -> None:
    kit.create_template("theirs")
    with raises_code("UnauthorizedOperation"):
        worker.create_own_fleet(template="theirs")


def test_passing_another_role_is_denied(worker: WorkerClient, kit: FakeAwsClient) -> None:
    kit.iam.create_role(RoleName="admin", AssumeRolePolicyDocument="{}")
    kit.iam.create_instance_profile(InstanceProfileName="power")
    kit.iam.add_role_to_instance_profile(InstanceProfileName="power", RoleName="admin")
    worker.make_template(IamInstanceProfile={"Name": "power"})
    response = worker.create_own_fleet()
    assert error_codes(response) == {"m5.large/us-west-2a": "UnauthorizedOperation"}
    assert [denial["action"] for denial in worker.control.list_denials()] == ["iam:PassRole"]


def test_foreign_instance_cannot_be_terminated_or_tagged(worker: WorkerClient, kit: FakeAwsClient) -> None:
    (foreign,) = kit.launch_instances()
    for call, request in (
        (worker.ec2.terminate_instances, {"InstanceIds": [foreign]}),
        (worker.ec2.create_tags, {"Resources": [foreign], "Tags": tags_of({"Name": "mine"})}),
    ):
        with raises_code("UnauthorizedOperation"):
            call(**request)
    assert kit.describe_instance(foreign)["State"]["Name"] == "pending"


def test_ownership_tags_cannot_be_changed_later(worker: WorkerClient) -> None:
    worker.make_template()
    (one,) = instance_ids(worker.create_own_fleet())
    with raises_code("UnauthorizedOperation"):
        worker.ec2.create_tags(Resources=[one], Tags=tags_of({"karpenter.sh/nodepool": "other"}))
    with raises_code("UnauthorizedOperation"):
        worker.ec2.create_tags(Resources=[one], Tags=tags_of({"eks:eks-cluster-name": "other"}))


def test_dry_run_distinguishes_allowed_from_denied(worker: WorkerClient) -> None:
    worker.make_template()
    for tags, expected in ((CLUSTER, "DryRunOperation"), (without(CLUSTER, "karpenter.sh/nodepool"), None)):
        with raises_code(expected or "UnauthorizedOperation"):
            worker.ec2.run_instances(
                DryRun=True,
                MinCount=1,
                MaxCount=1,
                InstanceType="m5.large",
                LaunchTemplate={"LaunchTemplateName": "own"},
                NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": worker.subnets()[0]["SubnetId"]}],
                TagSpecifications=tag_specifications(tags, "instance", "volume", "network-interface"),
            )


def test_another_region_is_denied(worker: WorkerClient) -> None:
    with raises_code("UnauthorizedOperation"):
        worker.client("ec2", key=WORKER_KEY, region="eu-west-1").describe_instances()


def test_other_keys_are_not_limited(worker: WorkerClient, kit: FakeAwsClient) -> None:
    assert kit.ec2.describe_availability_zones()["AvailabilityZones"]
    worker.control.release_key(WORKER_KEY)
    assert worker.ec2.describe_availability_zones()["AvailabilityZones"]


def test_policy_option_limits_the_worker_key(tmp_path: Path) -> None:
    process, url = start_fake_aws(*(f"--policy={file}" for file in IAM_FILES), "--cluster-name=other")
    try:
        kit = FakeAwsClient(url)
        kit.control.reset()
        eks = kit.client("eks", key=WORKER_KEY)
        assert eks.describe_cluster(name="other")["cluster"]["name"] == "other"
        with raises_code("UnauthorizedOperation"):
            kit.client("ec2", key=WORKER_KEY).describe_vpcs()
    finally:
        stop_process(process)


def deny(condition: dict[str, Any], kind: str, action: str = "ec2:RunInstances") -> dict[str, Any]:
    resource = f"arn:aws:ec2:*:*:{kind}/*"
    statement = {"Sid": "Guard", "Effect": "Deny", "Action": action, "Resource": resource, "Condition": condition}
    return {"Version": "2012-10-17", "Statement": [statement]}


@pytest.mark.parametrize(
    ("kind", "condition", "denied_data", "right"),
    [
        (
            "instance",
            {"StringNotEquals": {"ec2:MetadataHttpTokens": "required"}},
            {},
            {"MetadataOptions": {"HttpTokens": "required"}},
        ),
        (
            "volume",
            {"Bool": {"ec2:Encrypted": "false"}},
            {},
            {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "VolumeSize": 20}}]},
        ),
    ],
)
def test_additional_deny_policy_denies_launches_explicitly(
    kit: FakeAwsClient, kind: str, condition: dict[str, Any], denied_data: dict[str, Any], right: dict[str, Any]
) -> None:
    policies = shipped_policies(cluster="demo", region="us-west-2", account="123456789012")
    kit.control.bind_key(WORKER_KEY, [*policies.values(), deny(condition, kind)])
    worker = WorkerClient(kit)
    worker.make_template("wrong", **denied_data)
    response = worker.create_own_fleet(template="wrong")
    assert error_codes(response) == {"m5.large/us-west-2a": "UnauthorizedOperation"}
    assert "with an explicit deny" in response["Errors"][0]["ErrorMessage"]
    worker.make_template("right", **right)
    assert instance_ids(worker.create_own_fleet(template="right"))


def test_role_resource_includes_its_path(worker: WorkerClient, kit: FakeAwsClient) -> None:
    kit.iam.create_role(RoleName="deep", Path="/teams/", AssumeRolePolicyDocument="{}")
    worker.iam.create_instance_profile(InstanceProfileName="p", Tags=tags_of(PROFILE))
    with raises_code("AccessDenied"):
        worker.iam.add_role_to_instance_profile(InstanceProfileName="p", RoleName="deep")
    (denial,) = worker.control.list_denials()
    assert denial["resource"] == "arn:aws:iam::123456789012:role/teams/deep"


@pytest.mark.parametrize(
    ("layer", "effect", "expected"),
    [
        ("permissions boundary", "Deny", "with an explicit deny in a permissions boundary"),
        ("service control policy", "Deny", "with an explicit deny in a service control policy"),
        ("permissions boundary", "Allow", "because no permissions boundary allows the ec2:RunInstances action"),
    ],
)
def test_permissions_boundary_or_scp_overrides_the_policy_and_is_named(
    worker: WorkerClient, layer: str, effect: str, expected: str
) -> None:
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    denied = {"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "*"}
    most = {"Effect": "Allow", "NotAction": "ec2:RunInstances", "Resource": "*"}
    statements = [everything, denied] if effect == "Deny" else [most]
    worker.make_template()
    worker.control.guard_key(WORKER_KEY, layer, {"Version": "2012-10-17", "Statement": statements})
    response = worker.create_own_fleet()
    assert error_codes(response) == {"m5.large/us-west-2a": "UnauthorizedOperation"}
    assert expected in response["Errors"][0]["ErrorMessage"]
    worker.control.guard_key(WORKER_KEY, layer, None)
    assert instance_ids(worker.create_own_fleet())
