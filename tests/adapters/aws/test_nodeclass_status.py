"""The parts of an EC2NodeClass's status are independent: an AWS error in one does not block the others."""

from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.adapters import AwsAdapters
from tenure.aws.nodeclass.status import AwsNodeClasses
from tenure.model.provider_results import ConditionPatch, ResolvedNodeClass
from tenure.sandbox.aws.admin.client import AwsControl
from tests.support.aws.builders import build_nodeclass
from tests.support.aws.steps import admin_client, resolve_nodeclass

PARTS = {
    "AMIsReady": ("ssm", "GetParameter", "amis"),
    "SubnetsReady": ("ec2", "DescribeSubnets", "subnets"),
    "SecurityGroupsReady": ("ec2", "DescribeSecurityGroups", "securityGroups"),
    "InstanceProfileReady": ("iam", "GetInstanceProfile", "instanceProfile"),
}


def conditions_by_type(found: ResolvedNodeClass) -> dict[str, ConditionPatch]:
    return {one.type: one for one in found.conditions}


@pytest.mark.parametrize("kind", ["throttle", "5xx", "answer-lost"])
@pytest.mark.parametrize("part", PARTS)
async def test_part_with_aws_error_is_unchanged_and_others_are_written(
    cloud: AwsAdapters, control: AwsControl, part: str, kind: str
) -> None:
    service, action, key = PARTS[part]
    control.add_fault(kind, service=service, action=action)
    found = await cloud.resolver.resolve(build_nodeclass())
    by_type = conditions_by_type(found)
    assert part not in by_type and key not in found.status
    others = set(PARTS) - {part}
    assert {by_type[other].status for other in others} == {"True"}
    assert {PARTS[other][2] for other in others} <= set(found.status)
    assert by_type["AWSAnswers"].status == "False" and part in by_type["AWSAnswers"].message
    assert any(failure.startswith(f"{part}: ") for failure in found.failed_lookups)
    assert (by_type["ValidationSucceeded"].status, by_type["ValidationSucceeded"].reason) == (
        "Unknown",
        "DependenciesNotReady",
    )


async def test_part_ready_at_this_generation_counts_during_aws_errors(cloud: AwsAdapters, control: AwsControl) -> None:
    before = with_status(build_nodeclass(), await cloud.resolver.resolve(build_nodeclass()))
    control.add_fault("throttle", service="ssm")
    control.add_fault("throttle", service="ec2", action="DescribeSubnets")
    forgetful = resolver_with_empty_cache(cloud)
    found = await forgetful.resolve(before)
    assert conditions_by_type(found)["ValidationSucceeded"].status == "True"
    assert len(found.failed_lookups) == 1 and "subnets" not in found.status


async def test_part_of_an_older_generation_does_not_count(cloud: AwsAdapters, control: AwsControl) -> None:
    one = build_nodeclass()
    before = with_status(one, await cloud.resolver.resolve(one)).to_object()
    before["metadata"]["generation"] = 2
    control.add_fault("throttle", service="ec2", action="DescribeSubnets")
    found = await cloud.resolver.resolve(EC2NodeClass.from_object(before))
    assert conditions_by_type(found)["ValidationSucceeded"].status == "Unknown"


async def test_aws_answers_condition_is_removed_after_recovery(cloud: AwsAdapters, control: AwsControl) -> None:
    control.add_fault("throttle", service="ec2", action="DescribeSubnets")
    silent = with_status(build_nodeclass(), await cloud.resolver.resolve(build_nodeclass()))
    control.clear_faults()
    found = await cloud.resolver.resolve(silent)
    assert conditions_by_type(found)["AWSAnswers"].status == ""
    assert found.failed_lookups == ()


async def test_validation_leaves_no_launch_template_and_no_instance(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    await resolve_nodeclass(cloud)
    for action in ("CreateLaunchTemplate", "CreateFleet", "RunInstances", "DeleteLaunchTemplate"):
        assert control.count_calls(f"ec2:{action}") == 1, action
    assert admin_client(endpoint).describe_launch_templates()["LaunchTemplates"] == []
    assert control.list_instances()["instances"] == []


@pytest.mark.parametrize("action", ["CreateLaunchTemplate", "CreateFleet", "RunInstances"])
async def test_throttled_validation_call_is_tried_once_and_is_not_a_failure(
    cloud: AwsAdapters, control: AwsControl, action: str
) -> None:
    control.add_fault("throttle", service="ec2", action=action)
    found = await cloud.resolver.resolve(build_nodeclass())
    assert "ValidationSucceeded" not in conditions_by_type(found)
    assert found.failed_lookups and control.count_calls(f"ec2:{action}") == 1
    control.clear_faults()
    assert conditions_by_type(await cloud.resolver.resolve(build_nodeclass()))["ValidationSucceeded"].status == "True"


async def test_security_group_of_another_vpc_is_reported(cloud: AwsAdapters, endpoint: str) -> None:
    ec2 = admin_client(endpoint)
    vpc = ec2.create_vpc(CidrBlock="10.99.0.0/16")["Vpc"]["VpcId"]
    group = ec2.create_security_group(GroupName="elsewhere", Description="of another VPC", VpcId=vpc)["GroupId"]
    one = build_nodeclass(securityGroupSelectorTerms=[{"id": group}])
    found = conditions_by_type(await cloud.resolver.resolve(one))["ValidationSucceeded"]
    assert (found.status, found.reason) == ("False", "SecurityGroupSubnetVPCMismatch")


async def test_selector_term_with_several_fields_uses_id_then_name(cloud: AwsAdapters) -> None:
    """The API server accepts such a term if another term of the list is valid (reference Q1)."""
    status = (await resolve_nodeclass(cloud)).status
    subnet, group = status.subnets[0].id, status.security_groups[0]
    one = build_nodeclass(
        uid="mixed",
        subnetSelectorTerms=[{"id": subnet, "tags": {"no": "such"}}, {"tags": {"none": "either"}}],
        securityGroupSelectorTerms=[{"name": group.name, "tags": {"no": "such"}}],
    )
    found = (await resolve_nodeclass(cloud, one)).status
    assert [one.id for one in found.subnets] == [subnet]
    assert [one.id for one in found.security_groups] == [group.id]


async def test_empty_class_is_not_ready_and_names_missing_fields(cloud: AwsAdapters) -> None:
    raw = {"metadata": {"name": "empty", "uid": "u-empty", "generation": 1}}
    found = await cloud.resolver.resolve(EC2NodeClass.from_object(raw))
    by_type = conditions_by_type(found)
    assert {part: by_type[part].status for part in PARTS} == dict.fromkeys(PARTS, "False") | {
        "InstanceProfileReady": "Unknown"
    }
    assert "spec.role" in by_type["InstanceProfileReady"].message
    assert found.failed_lookups == ()


async def test_deleted_instance_profile_is_created_again_after_ec2_rejects_it(
    cloud: AwsAdapters, endpoint: str
) -> None:
    iam, one = admin_client(endpoint, "iam"), build_nodeclass()
    name = (await resolve_nodeclass(cloud)).status.instance_profile
    iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=one.spec.role)
    iam.delete_instance_profile(InstanceProfileName=name)
    changed = build_nodeclass(tags={"a": "change"})
    found = await cloud.resolver.resolve(changed)
    assert found.retry_after is not None and "ValidationSucceeded" not in conditions_by_type(found)
    assert conditions_by_type(await cloud.resolver.resolve(changed))["ValidationSucceeded"].status == "True"
    assert [role["RoleName"] for role in profile_of(iam, name)["Roles"]] == [one.spec.role]


def profile_of(iam: Any, name: str) -> Any:
    return iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]


def with_status(one: EC2NodeClass, found: ResolvedNodeClass) -> EC2NodeClass:
    """The class as the API server would store it after this result."""
    raw: dict[str, Any] = one.to_object()
    conditions = [
        {"type": each.type, "status": each.status, "reason": each.reason or each.type, "observedGeneration": 1}
        for each in found.conditions
        if each.status
    ]
    raw["status"] = {**(raw.get("status") or {}), **found.status, "conditions": conditions}
    return EC2NodeClass.from_object(raw)


def resolver_with_empty_cache(cloud: AwsAdapters) -> AwsNodeClasses:
    """The same resolver after its cache of subnets expired."""
    cloud.resolver._parts.networks._subnets.clear()
    return cloud.resolver
