"""The parts of an EC2NodeClass stand by themselves: what AWS does not answer keeps no other from being resolved."""

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
async def test_a_part_that_is_not_answered_stays_as_it_was_and_the_others_are_written(
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


async def test_a_part_that_was_ready_at_this_generation_is_relied_upon_while_it_is_not_answered(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    before = with_status(build_nodeclass(), await cloud.resolver.resolve(build_nodeclass()))
    control.add_fault("throttle", service="ssm")
    control.add_fault("throttle", service="ec2", action="DescribeSubnets")
    forgetful = resolver_with_empty_cache(cloud)
    found = await forgetful.resolve(before)
    assert conditions_by_type(found)["ValidationSucceeded"].status == "True"
    assert len(found.failed_lookups) == 1 and "subnets" not in found.status


async def test_a_part_of_an_older_generation_is_not_relied_upon(cloud: AwsAdapters, control: AwsControl) -> None:
    one = build_nodeclass()
    before = with_status(one, await cloud.resolver.resolve(one)).to_object()
    before["metadata"]["generation"] = 2
    control.add_fault("throttle", service="ec2", action="DescribeSubnets")
    found = await cloud.resolver.resolve(EC2NodeClass.from_object(before))
    assert conditions_by_type(found)["ValidationSucceeded"].status == "Unknown"


async def test_the_condition_goes_when_aws_answers_again(cloud: AwsAdapters, control: AwsControl) -> None:
    control.add_fault("throttle", service="ec2", action="DescribeSubnets")
    silent = with_status(build_nodeclass(), await cloud.resolver.resolve(build_nodeclass()))
    control.clear_faults()
    found = await cloud.resolver.resolve(silent)
    assert conditions_by_type(found)["AWSAnswers"].status == ""
    assert found.failed_lookups == ()


async def test_a_trial_leaves_no_launch_template_and_no_instance(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    await resolve_nodeclass(cloud)
    for action in ("CreateLaunchTemplate", "CreateFleet", "RunInstances", "DeleteLaunchTemplate"):
        assert control.count_calls(f"ec2:{action}") == 1, action
    assert admin_client(endpoint).describe_launch_templates()["LaunchTemplates"] == []
    assert control.list_instances()["instances"] == []


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("CreateLaunchTemplate", "CreateLaunchTemplateAuthCheckFailed"),
        ("CreateFleet", "CreateFleetAuthCheckFailed"),
        ("RunInstances", "RunInstancesAuthCheckFailed"),
    ],
)
async def test_a_call_that_is_not_allowed_has_its_own_reason(
    cloud: AwsAdapters, control: AwsControl, endpoint: str, action: str, reason: str
) -> None:
    control.add_fault("error", service="ec2", action=action, code="UnauthorizedOperation", http=403)
    found = conditions_by_type(await cloud.resolver.resolve(build_nodeclass()))["ValidationSucceeded"]
    assert (found.status, found.reason) == ("False", reason)
    assert admin_client(endpoint).describe_launch_templates()["LaunchTemplates"] == []


@pytest.mark.parametrize("action", ["CreateLaunchTemplate", "CreateFleet", "RunInstances"])
async def test_a_call_that_is_throttled_is_tried_once_and_is_no_failure(
    cloud: AwsAdapters, control: AwsControl, action: str
) -> None:
    control.add_fault("throttle", service="ec2", action=action)
    found = await cloud.resolver.resolve(build_nodeclass())
    assert "ValidationSucceeded" not in conditions_by_type(found)
    assert found.failed_lookups and control.count_calls(f"ec2:{action}") == 1
    control.clear_faults()
    assert conditions_by_type(await cloud.resolver.resolve(build_nodeclass()))["ValidationSucceeded"].status == "True"


async def test_groups_of_another_network_are_told(cloud: AwsAdapters, endpoint: str) -> None:
    ec2 = admin_client(endpoint)
    vpc = ec2.create_vpc(CidrBlock="10.99.0.0/16")["Vpc"]["VpcId"]
    group = ec2.create_security_group(GroupName="elsewhere", Description="of another VPC", VpcId=vpc)["GroupId"]
    one = build_nodeclass(securityGroupSelectorTerms=[{"id": group}])
    found = conditions_by_type(await cloud.resolver.resolve(one))["ValidationSucceeded"]
    assert (found.status, found.reason) == ("False", "SecurityGroupSubnetVPCMismatch")


async def test_a_term_that_says_more_than_one_thing_is_read_by_its_id_then_its_name(cloud: AwsAdapters) -> None:
    """The API server lets such a term pass beside a good one (reference Q1)."""
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


async def test_a_class_that_says_nothing_is_not_ready_and_says_what_is_missing(cloud: AwsAdapters) -> None:
    raw = {"metadata": {"name": "empty", "uid": "u-empty", "generation": 1}}
    found = await cloud.resolver.resolve(EC2NodeClass.from_object(raw))
    by_type = conditions_by_type(found)
    assert {part: by_type[part].status for part in PARTS} == dict.fromkeys(PARTS, "False") | {
        "InstanceProfileReady": "Unknown"
    }
    assert "spec.role" in by_type["InstanceProfileReady"].message
    assert found.failed_lookups == ()


async def test_a_profile_that_somebody_deleted_is_made_again_as_soon_as_ec2_misses_it(
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


async def test_one_instance_profile_of_the_users_own_that_is_not_there(cloud: AwsAdapters) -> None:
    one = build_nodeclass(role="", instanceProfile="no-such")
    found = conditions_by_type(await cloud.resolver.resolve(one))["ValidationSucceeded"]
    assert (found.status, found.reason) == ("False", "InstanceProfileNotFound")
    assert "spec.instanceProfile" in found.message and "no-such" in found.message


def profile_of(iam: Any, name: str) -> Any:
    return iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]


def with_status(one: EC2NodeClass, found: ResolvedNodeClass) -> EC2NodeClass:
    """As the API server would hold it afterwards."""
    raw: dict[str, Any] = one.to_object()
    conditions = [
        {"type": each.type, "status": each.status, "reason": each.reason or each.type, "observedGeneration": 1}
        for each in found.conditions
        if each.status
    ]
    raw["status"] = {**(raw.get("status") or {}), **found.status, "conditions": conditions}
    return EC2NodeClass.from_object(raw)


def resolver_with_empty_cache(cloud: AwsAdapters) -> AwsNodeClasses:
    """The same resolver after its memory of subnets ran out."""
    cloud.resolver._parts.networks._subnets.clear()
    return cloud.resolver
