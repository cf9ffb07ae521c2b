"""Launches against the AWS stand-in, under the shipped IAM policy."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tenure.apis import labels
from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.errors import BadInput, Throttled, TryLater
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import LaunchRejection, PreparedLaunchRequest
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import build_nodeclaim, build_nodeclass
from tests.support.aws.steps import (
    NODECLAIM,
    admin_client,
    launch,
    make_launch_group,
    prepare_launch,
    resolve_nodeclass,
    retry,
)


async def test_instances_launch_from_a_class_and_cleanup_leaves_nothing(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    one = await resolve_nodeclass(cloud)
    group = make_launch_group(await prepare_launch(cloud, one), members=3)
    result = await cloud.fleet.create(group)
    ids = [instance.instance_id for instance in result.instances]
    assert len(set(ids)) == 3

    facts = await cloud.fleet.describe(result, one, NODECLAIM)
    instances = await asyncio.gather(*(cloud.instances.get(instance_id) for instance_id in ids))
    for launch_facts, found in zip(facts, instances, strict=True):
        assert found is not None
        assert launch_facts.provider_id == f"aws:///{found.zone}/{found.instance_id}"
        assert launch_facts.image_id == found.image_id
        assert launch_facts.labels[labels.INSTANCE_TYPE] == found.instance_type
        assert launch_facts.labels[labels.CAPACITY_TYPE] == found.capacity_type == "on-demand"
        assert launch_facts.allocatable["cpu"] == 7910
        assert found.tags["tenure.sh/launch-group"] == "plan-1"
    assert {found.instance_id for found in await cloud.instances.list_managed()} == set(ids)

    assert all(await asyncio.gather(*(cloud.instances.terminate(instance_id) for instance_id in ids)))
    control.advance_clock(10)
    assert await asyncio.gather(*(cloud.instances.get(instance_id) for instance_id in ids)) == [None] * 3
    assert await cloud.instances.terminate(ids[0]) is False
    assert list(await cloud.instances.list_managed()) == []

    await cloud.resolver.clean_up(one)
    stranger = adapters(endpoint).clients
    assert stranger.ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert stranger.iam.list_instance_profiles()["InstanceProfiles"] == []
    assert control.list_denials() == []


async def test_client_token_launches_instances_once_across_workers(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    group = make_launch_group(await prepare_launch(cloud, await resolve_nodeclass(cloud)), members=2)
    first = await cloud.fleet.create(group)
    other = adapters(endpoint)
    assert await other.fleet.create(group) == first
    assert control.list_instances()["launched"] == 2
    repeated = await other.fleet.create(group.model_copy(update={"attempt": 2}))
    assert {one.instance_id for one in repeated.instances}.isdisjoint({one.instance_id for one in first.instances})
    other.close()


async def test_143_nodeclaims_launch_in_one_call(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolve_nodeclass(cloud)
    await cloud.offerings.refresh()
    control.clear_counters()
    group = make_launch_group(await prepare_launch(cloud, one), members=143)
    result = await cloud.fleet.create(group)
    await cloud.fleet.describe(result, one, NODECLAIM)
    ids = [instance.instance_id for instance in result.instances]
    instances = await asyncio.gather(*(cloud.instances.get(instance_id) for instance_id in ids))
    assert sum(found is not None for found in instances) == 143
    calls = {action: counted["count"] for action, counted in control.get_counters().items()}
    assert calls["ec2:CreateFleet"] == 1
    assert calls["ec2:DescribeInstances"] == 1
    assert sum(calls.values()) < 15
    assert all(await asyncio.gather(*(cloud.instances.terminate(instance_id) for instance_id in ids)))
    assert control.count_calls("ec2:TerminateInstances") == 1


async def test_repeated_prepare_makes_no_calls(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolve_nodeclass(cloud)
    first = await prepare_launch(cloud, one)
    control.clear_counters()
    assert await prepare_launch(cloud, one) == first
    assert control.get_counters() == {}


async def test_next_launch_avoids_offerings_without_capacity(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolve_nodeclass(cloud)
    request = await prepare_launch(cloud, one)
    control.set_pool(0)
    result = await cloud.fleet.create(make_launch_group(request))
    assert result.instances == ()
    assert result.errors and all(error.insufficient for error in result.errors)
    control.clear_pools()
    failed_offerings = {(error.instance_type, error.zone) for error in result.errors}
    found = await cloud.fleet.prepare(NODECLAIM, one, now=datetime.now(UTC))
    if isinstance(found, PreparedLaunchRequest):
        assert failed_offerings.isdisjoint({(o.instance_type, o.zone) for o in found.request.overrides})
    else:
        assert found.reason == "InsufficientCapacity"


async def test_request_larger_than_any_type_is_rejected(cloud: AwsAdapters) -> None:
    one = await resolve_nodeclass(cloud)
    found = await cloud.fleet.prepare(build_nodeclaim(requests={"cpu": "100000"}), one, now=datetime.now(UTC))
    assert isinstance(found, LaunchRejection)
    assert found.reason == "InsufficientCapacity"


async def test_deleted_launch_template_is_created_again(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolve_nodeclass(cloud)
    group = make_launch_group(await prepare_launch(cloud, one))
    for template in cloud.clients.ec2.describe_launch_templates()["LaunchTemplates"]:
        cloud.clients.ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    assert len((await cloud.fleet.create(group)).instances) == 1


async def test_idempotency_mismatch_names_the_token(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolve_nodeclass(cloud)
    control.add_fault("error", service="ec2", action="CreateFleet", code="IdempotentParameterMismatch", http=400)
    (error,) = (await cloud.fleet.create(make_launch_group(await prepare_launch(cloud, one)))).errors
    assert "token tenure-" in error.message and not error.insufficient


@pytest.mark.parametrize("code", ["IdempotentParameterMismatch", "UnauthorizedOperation"])
async def test_rejected_retry_finds_instances_of_the_lost_response(
    cloud: AwsAdapters, control: AwsControl, code: str
) -> None:
    """The retry fails after a permission was removed or a newer version changed the request; the instances exist
    anyway.
    """
    group = make_launch_group(await prepare_launch(cloud, await resolve_nodeclass(cloud)), members=3)
    control.add_fault("answer-lost", service="ec2", action="CreateFleet", times=1)
    with pytest.raises(TryLater):
        await cloud.fleet.create(group)
    control.add_fault("error", service="ec2", action="CreateFleet", code=code, http=403)
    result = await cloud.fleet.create(group)
    found = await cloud.instances.list_managed()
    assert [one.instance_id for one in result.instances] == sorted(one.instance_id for one in found)
    assert len(found) == 3 and result.errors == ()
    assert (await cloud.fleet.create(group.model_copy(update={"attempt": 2}))).instances == ()


async def test_missing_template_is_reported_and_the_next_attempt_creates_it(
    cloud: AwsAdapters, endpoint: str, region: Region
) -> None:
    one = await resolve_nodeclass(cloud)
    request = await prepare_launch(cloud, one)
    for template in cloud.clients.ec2.describe_launch_templates()["LaunchTemplates"]:
        cloud.clients.ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    other = adapters(endpoint, region)
    errors = (await other.fleet.create(make_launch_group(request))).errors
    assert {error.reason for error in errors} == {"LaunchTemplateNotFound"}
    found = await cloud.fleet.prepare(NODECLAIM, one, now=datetime.now(UTC), is_retry=True)
    assert isinstance(found, PreparedLaunchRequest)
    assert len((await other.fleet.create(make_launch_group(found.request, attempt=2))).instances) == 1
    other.close()


async def test_unavailable_offerings_of_the_caller_are_excluded(cloud: AwsAdapters) -> None:
    """The worker itself has not seen these rejections."""
    one = await resolve_nodeclass(cloud)
    first = (await prepare_launch(cloud, one)).overrides[0]
    now = datetime.now(UTC)
    mark = UnavailableOffering(
        instance_type=first.instance_type, zone=first.zone, capacity_type="on-demand", until=now + timedelta(minutes=3)
    )
    full = UnavailableOffering(
        instance_type="*", zone="*", capacity_type="*", until=mark.until, subnet_id=first.subnet_id, node_class=one.name
    )
    for unavailable_offerings in ([mark], [full]):
        found = await cloud.fleet.prepare(NODECLAIM, one, now=now, unavailable=unavailable_offerings)
        assert isinstance(found, PreparedLaunchRequest)
        overrides = {(o.instance_type, o.zone, o.subnet_id) for o in found.request.overrides}
        assert (first.instance_type, first.zone, first.subnet_id) not in overrides


async def test_ec2_errors_keep_their_kind(cloud: AwsAdapters, control: AwsControl) -> None:
    control.add_fault("throttle", service="ec2", action="DescribeInstances")
    with pytest.raises(Throttled):
        await cloud.instances.list_managed()
    control.clear_faults()
    control.add_fault("5xx", service="ec2", action="DescribeInstances")
    with pytest.raises(TryLater):
        await cloud.instances.get("i-0123456789abcdef0")


async def test_missing_instance_does_not_block_other_terminations(cloud: AwsAdapters, control: AwsControl) -> None:
    result = await launch(cloud, members=2)
    ids = [one.instance_id for one in result.instances]
    found = await asyncio.gather(*(cloud.instances.terminate(one) for one in [*ids, "i-0123456789abcdef0"]))
    assert found == [True, True, False]
    assert await cloud.instances.get("i-0123456789abcdef0") is None


async def test_protected_instance_does_not_block_other_terminations(cloud: AwsAdapters, control: AwsControl) -> None:
    result = await launch(cloud, members=3)
    protected, *others = [one.instance_id for one in result.instances]
    match = {"InstanceId": protected}
    control.add_fault("error", action="TerminateInstances", match=match, code="OperationNotPermitted", http=400)
    terminations = (cloud.instances.terminate(one) for one in (protected, *others))
    rejected, *ended = await asyncio.gather(*terminations, return_exceptions=True)
    assert isinstance(rejected, BadInput) and ended == [True, True]


async def test_instance_profile_unknown_to_ec2_is_reported_and_retried(cloud: AwsAdapters, control: AwsControl) -> None:
    request = await prepare_launch(cloud, await resolve_nodeclass(cloud))
    error_message = "Value (demo) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
    control.add_fault(
        "error", action="CreateFleet", code="InvalidParameterValue", message=error_message, http=400, times=1
    )
    (error,) = (await cloud.fleet.create(make_launch_group(request))).errors
    assert error.reason == "InstanceProfileNameInvalid" and not error.insufficient and "is retried" in error.remedy
    assert len((await cloud.fleet.create(make_launch_group(request, attempt=2))).instances) == 1


async def test_concurrent_lists_share_one_call(cloud: AwsAdapters, control: AwsControl) -> None:
    result = await launch(cloud, members=2)
    control.clear_counters()
    found = await asyncio.gather(*(cloud.instances.list_managed() for _ in range(50)))
    assert control.count_calls("ec2:DescribeInstances") == 1
    ids = {one.instance_id for one in result.instances}
    assert all({one.instance_id for one in each} == ids for each in found)


async def test_concurrent_lookups_by_nodeclaim_share_one_call(cloud: AwsAdapters, control: AwsControl) -> None:
    result = await launch(cloud, members=3)
    first, second, _ = (one.instance_id for one in result.instances)
    await cloud.orphaned_resources.tag_instance(first, {labels.TAG_NODECLAIM: "a"})
    await cloud.orphaned_resources.tag_instance(second, {labels.TAG_NODECLAIM: "b"})
    control.clear_counters()
    found = await asyncio.gather(*(cloud.instances.find_by_nodeclaim(name) for name in ("a", "b", "c", "a")))
    assert [[one.instance_id for one in each] for each in found] == [[first], [second], [], [first]]
    assert control.count_calls("ec2:DescribeInstances") == 1
    await cloud.instances.terminate(first)
    assert not await cloud.instances.find_by_nodeclaim("a")


async def test_launch_and_cleanup_succeed_with_30_percent_lost_responses(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    control.seed_faults(7)
    control.add_fault("answer-lost", service="ec2", probability=0.3)
    control.add_fault("answer-lost", service="iam", probability=0.3)
    one = await retry(lambda: resolve_nodeclass(cloud))
    request = await retry(lambda: prepare_launch(cloud, one))
    group = make_launch_group(request, members=4)
    result = await retry(lambda: cloud.fleet.create(group))
    ids = [each.instance_id for each in result.instances]
    await retry(lambda: asyncio.gather(*(cloud.instances.terminate(each) for each in ids)))
    control.advance_clock(10)
    assert control.list_instances()["launched"] == control.list_instances()["terminated"] == 4
    await retry(lambda: cloud.resolver.clean_up(one))
    control.clear_faults()
    assert cloud.clients.ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert cloud.clients.iam.list_instance_profiles()["InstanceProfiles"] == []


async def test_instances_of_a_class_with_enclaves_are_of_types_that_support_them(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    one = await resolve_nodeclass(cloud, build_nodeclass(enclaveOptions={"enabled": True}))
    nodeclaim = build_nodeclaim(
        (labels.CAPACITY_TYPE, "In", labels.ON_DEMAND), (labels.INSTANCE_TYPE, "In", "m5.large", "m5.xlarge")
    )
    result = await cloud.fleet.create(make_launch_group(await prepare_launch(cloud, one, nodeclaim)))
    (found,) = admin_client(endpoint).describe_instances(InstanceIds=[result.instances[0].instance_id])["Reservations"]
    (instance,) = found["Instances"]
    assert (instance["EnclaveOptions"]["Enabled"], instance["InstanceType"]) == (True, "m5.xlarge")
