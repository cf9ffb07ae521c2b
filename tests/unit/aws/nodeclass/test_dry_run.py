"""Dry-run launches: the requests, the chosen instance type, and the meaning of EC2's responses."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tenure.apis import labels
from tenure.apis.nodepool import NodePool
from tenure.aws.amifamily.families import FAMILIES
from tenure.aws.client.errors import fault_of
from tenure.aws.instance.launch_templates import LaunchTemplate, launch_template
from tenure.aws.nodeclass.dry_run import Rejected, Undecided, classify_fault
from tenure.aws.nodeclass.dry_run_request import (
    Choice,
    choose_launch,
    create_fleet,
    run_instances,
    trial_template,
)
from tenure.aws.tags import instance_tags
from tenure.model.errors import BadInput, Fault, Forbidden, Throttled, TryLater
from tests.support.aws.builders import SETTINGS, build_nodeclass, region, resolved_status

TAGS = {"kubernetes.io/cluster/demo": "owned", "karpenter.sh/nodepool": "general"}
PROFILE = "Value (demo_x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
ROLE_CLASS = build_nodeclass()
OWN_PROFILE = build_nodeclass(role="", instanceProfile="mine")


def pool(*requirements: tuple[Any, ...], name: str = "general") -> NodePool:
    node_requirements = [{"key": one[0], "operator": one[1], "values": list(one[2:])} for one in requirements]
    return NodePool.from_object(
        {
            "metadata": {"name": name},
            "spec": {"template": {"spec": {"requirements": node_requirements, "nodeClassRef": {"name": "default"}}}},
        }
    )


def choose_from(*names: str, pools: tuple[NodePool, ...] = (), family: str = "AL2023", **status: Any) -> Choice | None:
    one = build_nodeclass(resolved_status(**status), amiFamily=family)
    return choose_launch(region(*names), one, SETTINGS, pools, {})


TYPES = ("c5.large", "g5.xlarge", "m5.large", "m6g.large", "r5.large")


@pytest.mark.parametrize(
    ("pools", "names", "found"),
    [
        ((pool((labels.INSTANCE_TYPE, "In", "r5.large")),), TYPES, "r5.large"),
        ((pool((labels.ARCH, "In", "arm64")),), TYPES, "m6g.large"),
        ((pool((labels.CAPACITY_TYPE, "In", "spot")),), TYPES, "m5.large"),
        ((pool((labels.INSTANCE_TYPE, "In", "r5.large", "c5.large")),), TYPES, "c5.large"),
        ((pool((labels.INSTANCE_TYPE, "In", "g5.xlarge")),), TYPES, "m5.large"),
        ((pool((labels.INSTANCE_TYPE, "In", "none.such")),), TYPES, "m5.large"),
        ((pool((labels.INSTANCE_CPU, "Gt", "many")),), TYPES, "m5.large"),
        ((), TYPES, "m5.large"),
        ((), ("c5.large", "m6g.large"), "m6g.large"),
        ((), ("c5.large", "g5.xlarge"), "c5.large"),
    ],
)
def test_dry_run_uses_type_of_nodepool_or_common_type(
    pools: tuple[NodePool, ...], names: tuple[str, ...], found: str
) -> None:
    choice = choose_from(*names, pools=pools)
    assert choice is not None and choice.instance_type.name == found
    assert choice.zones == {"us-west-2a", "us-west-2b", "us-west-2c"}


def test_windows_dry_run_uses_common_type() -> None:
    requirements = [{"key": labels.ARCH, "operator": "In", "values": ["amd64"]}]
    windows = {"amis": [{"id": "ami-windows", "requirements": requirements}]}
    choice = choose_from(
        *TYPES, pools=(pool((labels.INSTANCE_TYPE, "In", "r5.large")),), family="Windows2022", **windows
    )
    assert choice is not None and choice.instance_type.name == "m5.large"


def test_no_dry_run_without_image() -> None:
    assert choose_from(*TYPES, amis=[]) is None


@pytest.mark.parametrize(
    ("requirement", "tenancy"),
    [
        ((labels.INSTANCE_TENANCY, "In", "dedicated"), "dedicated"),
        ((labels.INSTANCE_TENANCY, "In", "default", "dedicated"), "dedicated"),
        ((labels.INSTANCE_TENANCY, "In", "default"), "default"),
        ((labels.INSTANCE_TENANCY, "NotIn", "dedicated"), "default"),
        ((labels.ARCH, "In", "amd64"), "default"),
    ],
)
def test_dedicated_tenancy_is_used_if_nodepool_allows_it(requirement: tuple[Any, ...], tenancy: str) -> None:
    choice = choose_from(*TYPES, pools=(pool(requirement), pool((labels.OS, "In", "linux"), name="other")))
    assert choice is not None and choice.tenancy == tenancy


def test_tags_use_first_nodepool_or_nodeclass() -> None:
    with_pools = choose_from(*TYPES, pools=(pool(name="b"), pool(name="a")))
    without = choose_from(*TYPES)
    assert with_pools is not None and with_pools.pool == "a"
    assert without is not None and without.pool == "default"


def template(**spec: Any) -> LaunchTemplate:
    return launch_template(
        build_nodeclass(resolved_status(), **spec),
        FAMILIES["AL2023"],
        SETTINGS,
        image_id="ami-1",
        user_data="hello",
        tags=TAGS,
        capacity_type="on-demand",
    )


def choice() -> Choice:
    found = choose_from(*TYPES)
    assert found is not None
    return found


def test_trial_template_has_its_own_name() -> None:
    one = template()
    trial = trial_template(one)
    assert trial.name != one.name and trial.name.startswith("karpenter.k8s.aws/validation/")
    assert trial == trial_template(one) and trial.data == one.data
    request = trial.create_request()
    assert request["LaunchTemplateName"] == trial.name
    tags = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
    assert (request["TagSpecifications"][0]["ResourceType"], tags) == ("launch-template", TAGS)


def test_create_fleet_dry_run_has_all_subnets_and_tags() -> None:
    subnets = build_nodeclass(resolved_status()).status.subnets
    request = create_fleet(template(), choice(), subnets)
    assert request["DryRun"] is True
    target = request["TargetCapacitySpecification"]
    assert target == {"DefaultTargetCapacityType": "on-demand", "TotalTargetCapacity": 1}
    (config,) = request["LaunchTemplateConfigs"]
    assert [one["SubnetId"] for one in config["Overrides"]] == [subnet.id for subnet in subnets]
    assert {one["InstanceType"] for one in config["Overrides"]} == {"m5.large"}
    assert {one["ResourceType"] for one in request["TagSpecifications"]} == {"fleet", "instance", "volume"}
    launched = set(instance_tags(TAGS, "group", "token", nodeclaim="claim"))
    assert all({tag["Key"] for tag in one["Tags"]} == launched for one in request["TagSpecifications"])


def test_run_instances_dry_run_sets_subnet_and_groups_per_interface() -> None:
    subnet = build_nodeclass(resolved_status()).status.subnets[0]
    cards = [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]
    request = run_instances(template(networkInterfaces=cards), choice(), subnet)
    assert request["DryRun"] is True and (request["MinCount"], request["MaxCount"]) == (1, 1)
    assert [(one["SubnetId"], one["Groups"]) for one in request["NetworkInterfaces"]] == [(subnet.id, ["sg-1"])] * 2
    counts = {one["ResourceType"]: len(one["Tags"]) for one in request["TagSpecifications"]}
    launched = len(instance_tags(TAGS, "group", "token", nodeclaim="claim"))
    assert counts == {"instance": launched, "volume": launched, "network-interface": len(TAGS)}
    assert "SubnetId" not in request and "SecurityGroupIds" not in request


@pytest.mark.parametrize(
    "fault",
    [
        BadInput("would have succeeded", code="DryRunOperation"),
        BadInput("no capacity", code="InsufficientInstanceCapacity"),
        BadInput("full", code="InsufficientFreeAddressesInSubnet"),
        BadInput("not in this zone", code="Unsupported"),
        BadInput("limit", code="VcpuLimitExceeded"),
    ],
)
def test_dry_run_success_and_capacity_errors_are_accepted(fault: Fault) -> None:
    assert classify_fault(fault, ROLE_CLASS, "Forbidden") is None


@pytest.mark.parametrize(
    ("fault", "soon"),
    [
        (Throttled("slow down", code="RequestLimitExceeded"), False),
        (TryLater("oops", code="InternalError"), False),
        (TryLater("timed out", code="ReadTimeoutError"), False),
        (TryLater("later", code="ServiceUnavailable"), False),
        (Forbidden("who are you", code="NoCredentials"), False),
        (Forbidden("who are you", code="InvalidClientTokenId"), False),
        (BadInput("not there yet", code="InvalidLaunchTemplateName.NotFoundException"), True),
        (BadInput(PROFILE, code="InvalidParameterValue"), True),
        (BadInput("instance-profile/x has no associated IAM Roles", code="InvalidParameterValue"), True),
    ],
)
def test_inconclusive_fault_is_undecided(fault: Fault, soon: bool) -> None:
    result = classify_fault(fault, ROLE_CLASS, "Forbidden")
    assert isinstance(result, Undecided)
    assert bool(result.retry_after) == soon


@pytest.mark.parametrize(
    ("code", "message", "reason", "field"),
    [
        ("UnauthorizedOperation", "You are not authorized", "TheCallsReason", "deploy/iam"),
        ("AccessDenied", "no", "TheCallsReason", "deploy/iam"),
        ("OptInRequired", "subscribe first", "TheCallsReason", "OptInRequired"),
        ("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure", "spec.amiSelectorTerms"),
        ("InvalidAMIID.NotFound", "ami-1 does not exist", "AMINotFound", "spec.amiSelectorTerms"),
        ("InvalidAMIID.Unavailable", "no longer", "InvalidAMIID", "spec.amiSelectorTerms"),
        ("InvalidSnapshot.NotFound", "snap-1 does not exist", "DryRunFailed", "spec.blockDeviceMappings"),
        ("InvalidBlockDeviceMapping", "iops", "DryRunFailed", "spec.blockDeviceMappings"),
        ("InvalidGroup.NotFound", "sg-1 does not exist", "DryRunFailed", "spec.securityGroupSelectorTerms"),
        ("InvalidSubnetID.NotFound", "subnet-1", "DryRunFailed", "spec.subnetSelectorTerms"),
        ("InvalidPlacementGroup.Unknown", "pg", "DryRunFailed", "spec.placementGroupSelector"),
        (
            "InvalidUserData.Malformed",
            "User data is limited to 16384 bytes",
            "UserDataSizeLimitExceeded",
            "spec.userData",
        ),
        ("InvalidParameterValue", "something else", "DryRunFailed", "spec"),
        (
            "InvalidParameter",
            "Security group sg-1 and subnet subnet-1 belong to different networks.",
            "SecurityGroupSubnetVPCMismatch",
            "spec",
        ),
    ],
)
def test_rejection_has_reason_and_names_field(code: str, message: str, reason: str, field: str) -> None:
    result = classify_fault(fault_of(client_error(code, message), "run_instances"), ROLE_CLASS, "TheCallsReason")
    assert isinstance(result, Rejected), result
    assert result.reason == reason
    assert field in result.message and message in result.message


@pytest.mark.parametrize(
    ("message", "reason", "expected"),
    [
        (PROFILE, "InstanceProfileNotFound", "instance profile 'mine' does not exist"),
        ("instance-profile/mine has no associated IAM Roles", "DryRunFailed", "instance profile 'mine' has no role"),
    ],
)
def test_missing_custom_profile_is_rejected_and_not_cached(message: str, reason: str, expected: str) -> None:
    result = classify_fault(BadInput(message, code="InvalidParameterValue"), OWN_PROFILE, "Forbidden")
    assert isinstance(result, Rejected)
    assert (result.reason, result.cacheable) == (reason, False)
    assert "spec.instanceProfile" in result.message and expected in result.message


def client_error(code: str, message: str) -> Exception:
    response: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError(response, "RunInstances")
