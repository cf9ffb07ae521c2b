"""The adapters against the stand-in, as a process, under the IAM policy that ships: from a class to nothing left."""

import asyncio
from datetime import UTC, datetime

import pytest

from aws.adapters import AwsAdapters
from model import labels
from model.faults import BadInput, Forbidden, Throttled, TryLater
from model.kinds import EC2NodeClass, NodeClaim
from model.launches import LaunchGroup, LaunchPrepared, LaunchRefused, LaunchRequest, Member
from sandbox.aws.control import AwsControl
from tests.aws.builders import claim, node_class
from tests.aws.conftest import adapters

pytestmark = pytest.mark.sandbox

WANTED = claim(
    (labels.CAPACITY_TYPE, "In", "on-demand"),
    (labels.ARCH, "In", "amd64"),
    ("karpenter.k8s.aws/instance-cpu", "Lt", "9"),
    requests={"cpu": "7", "memory": "7Gi", "pods": "9"},
)


async def resolved(cloud: AwsAdapters, wanted: EC2NodeClass | None = None) -> EC2NodeClass:
    """A class with its status written, as the API server would hold it."""
    one = wanted or node_class()
    found = await cloud.resolver.resolve(one)
    assert {condition.status for condition in found.conditions} == {"True"}, found.conditions
    return EC2NodeClass.from_object({**one.to_object(), "status": found.status})


async def prepared(cloud: AwsAdapters, one: EC2NodeClass, wanted: NodeClaim = WANTED) -> LaunchRequest:
    found = await cloud.fleet.prepare(wanted, one, now=datetime.now(UTC))
    assert isinstance(found, LaunchPrepared), found
    return found.request


def group_of(request: LaunchRequest, members: int = 1, attempt: int = 1) -> LaunchGroup:
    people = tuple(Member(name=f"general-{n}", uid=f"uid-{n}") for n in range(members))
    return LaunchGroup(group_id="plan-1", attempt=attempt, members=people, request=request)


async def test_from_a_class_to_instances_and_back_to_nothing(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    one = await resolved(cloud)
    group = group_of(await prepared(cloud, one), members=3)
    answer = await cloud.fleet.create(group)
    ids = [instance.instance_id for instance in answer.instances]
    assert len(set(ids)) == 3

    facts = await cloud.fleet.describe(answer, one, WANTED)
    seen = await asyncio.gather(*(cloud.instances.get(instance_id) for instance_id in ids))
    for shown, found in zip(facts, seen, strict=True):
        assert found is not None
        assert shown.provider_id == f"aws:///{found.zone}/{found.instance_id}"
        assert shown.image_id == found.image_id
        assert shown.labels[labels.INSTANCE_TYPE] == found.instance_type
        assert shown.labels[labels.CAPACITY_TYPE] == found.capacity_type == "on-demand"
        assert shown.allocatable["cpu"] == 7910
        assert found.tags["tenure.sh/launch-group"] == "plan-1"
    assert {found.instance_id for found in await cloud.instances.list_managed()} == set(ids)

    assert all(await asyncio.gather(*(cloud.instances.terminate(instance_id) for instance_id in ids)))
    control.advance(10)
    assert await asyncio.gather(*(cloud.instances.get(instance_id) for instance_id in ids)) == [None] * 3
    assert await cloud.instances.terminate(ids[0]) is False
    assert list(await cloud.instances.list_managed()) == []

    await cloud.resolver.clean_up(one)
    stranger = adapters(endpoint).clients
    assert stranger.ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert stranger.iam.list_instance_profiles()["InstanceProfiles"] == []
    assert control.denials() == []


async def test_one_token_buys_one_set_of_instances_whoever_repeats_it(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    group = group_of(await prepared(cloud, await resolved(cloud)), members=2)
    first = await cloud.fleet.create(group)
    other = adapters(endpoint)
    assert await other.fleet.create(group) == first
    assert control.instances()["launched"] == 2
    again = await other.fleet.create(group.model_copy(update={"attempt": 2}))
    assert {one.instance_id for one in again.instances}.isdisjoint({one.instance_id for one in first.instances})
    other.close()


async def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_token(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    group = group_of(await prepared(cloud, await resolved(cloud)))
    control.add_fault("answer-lost", service="ec2", action="CreateFleet", times=2)
    with pytest.raises(TryLater):
        await cloud.fleet.create(group)
    answer = await cloud.fleet.create(group)
    assert len(answer.instances) == 1
    assert control.instances()["launched"] == 1


async def test_a_hundred_and_forty_three_claims_are_one_call(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolved(cloud)
    await cloud.offerings.refresh()
    control.clear_counters()
    group = group_of(await prepared(cloud, one), members=143)
    answer = await cloud.fleet.create(group)
    await cloud.fleet.describe(answer, one, WANTED)
    ids = [instance.instance_id for instance in answer.instances]
    seen = await asyncio.gather(*(cloud.instances.get(instance_id) for instance_id in ids))
    assert sum(found is not None for found in seen) == 143
    calls = {action: counted["count"] for action, counted in control.counters().items()}
    assert calls["ec2:CreateFleet"] == 1
    assert calls["ec2:DescribeInstances"] == 1
    assert sum(calls.values()) < 15
    assert all(await asyncio.gather(*(cloud.instances.terminate(instance_id) for instance_id in ids)))
    assert control.count("ec2:TerminateInstances") == 1


async def test_a_launch_prepared_again_calls_nobody(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolved(cloud)
    first = await prepared(cloud, one)
    control.clear_counters()
    assert await prepared(cloud, one) == first
    assert control.counters() == {}


async def test_a_class_resolved_again_at_once_calls_nobody(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolved(cloud)
    control.clear_counters()
    assert (await resolved(cloud, one)).status == one.status
    assert control.counters() == {}


async def test_no_capacity_is_an_answer_and_the_next_launch_looks_elsewhere(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    one = await resolved(cloud)
    request = await prepared(cloud, one)
    control.set_pool(0)
    answer = await cloud.fleet.create(group_of(request))
    assert answer.instances == ()
    assert answer.errors and all(error.insufficient for error in answer.errors)
    control.clear_pools()
    refused = {(error.instance_type, error.zone) for error in answer.errors}
    found = await cloud.fleet.prepare(WANTED, one, now=datetime.now(UTC))
    if isinstance(found, LaunchPrepared):
        assert refused.isdisjoint({(o.instance_type, o.zone) for o in found.request.overrides})
    else:
        assert found.reason == "InsufficientCapacity"


async def test_what_nothing_can_hold_is_refused(cloud: AwsAdapters) -> None:
    one = await resolved(cloud)
    found = await cloud.fleet.prepare(claim(requests={"cpu": "100000"}), one, now=datetime.now(UTC))
    assert isinstance(found, LaunchRefused)
    assert found.reason == "InsufficientCapacity"


async def test_a_launch_template_that_was_deleted_is_made_again(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolved(cloud)
    group = group_of(await prepared(cloud, one))
    for template in cloud.clients.ec2.describe_launch_templates()["LaunchTemplates"]:
        cloud.clients.ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    answers = []
    for attempt in (1, 2):
        try:
            answers.append(await cloud.fleet.create(group.model_copy(update={"attempt": attempt})))
        except TryLater:
            answers.append(await cloud.fleet.create(group.model_copy(update={"attempt": attempt})))
        if answers[-1].instances:
            break
        assert {error.reason for error in answers[-1].errors} == {"LaunchTemplateNotFound"}
        await prepared(cloud, one)
    assert answers[-1].instances


async def test_one_token_for_other_words_is_wrong(cloud: AwsAdapters, control: AwsControl) -> None:
    control.add_fault("error", service="ec2", action="CreateFleet", code="IdempotentParameterMismatch", http=400)
    with pytest.raises(BadInput, match="token tenure-"):
        await cloud.fleet.create(group_of(await prepared(cloud, await resolved(cloud))))


async def test_faults_of_ec2_keep_their_class(cloud: AwsAdapters, control: AwsControl) -> None:
    control.add_fault("throttle", service="ec2", action="DescribeInstances")
    with pytest.raises(Throttled):
        await cloud.instances.list_managed()
    control.clear_faults()
    control.add_fault("5xx", service="ec2", action="DescribeInstances")
    with pytest.raises(TryLater):
        await cloud.instances.get("i-0123456789abcdef0")


async def test_the_policy_is_really_in_force(cloud: AwsAdapters) -> None:
    with pytest.raises(Forbidden):
        await cloud.clients.call(cloud.clients.ec2.create_vpc, CidrBlock="10.9.0.0/16")


async def test_one_instance_that_is_gone_does_not_keep_others_from_their_end(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    answer = await cloud.fleet.create(group_of(await prepared(cloud, await resolved(cloud)), members=2))
    ids = [one.instance_id for one in answer.instances]
    found = await asyncio.gather(*(cloud.instances.terminate(one) for one in [*ids, "i-0123456789abcdef0"]))
    assert found == [True, True, False]
    assert await cloud.instances.get("i-0123456789abcdef0") is None


@pytest.mark.parametrize(
    ("spec", "condition", "status", "reason"),
    [
        (
            {"amiSelectorTerms": [{"id": "ami-0000000000000dead"}], "amiFamily": "AL2023"},
            "AMIsReady",
            "False",
            "AMINotFound",
        ),
        ({"amiSelectorTerms": [{"alias": "al2@latest"}]}, "AMIsReady", "False", "UnsupportedAlias"),
        ({"subnetSelectorTerms": [{"tags": {"no": "such"}}]}, "SubnetsReady", "False", "SubnetsNotFound"),
        (
            {"securityGroupSelectorTerms": [{"name": "no-such"}]},
            "SecurityGroupsReady",
            "False",
            "SecurityGroupsNotFound",
        ),
        ({"role": "no-such-role"}, "InstanceProfileReady", "Unknown", "AwaitingReconciliation"),
        ({"kubelet": {"maxPods": "max_pods"}}, "ValidationSucceeded", "False", "KubeletExpressionsDisabled"),
    ],
)
async def test_a_class_that_names_what_is_not_there_says_so(
    cloud: AwsAdapters, spec: dict[str, object], condition: str, status: str, reason: str
) -> None:
    found = await cloud.resolver.resolve(node_class(**spec))
    said = {one.type: one for one in found.conditions}
    assert (said[condition].status, said[condition].reason) == (status, reason)
    assert said[condition].message
    if condition != "ValidationSucceeded":
        assert said["ValidationSucceeded"].reason == "DependenciesNotReady"


async def test_selectors_by_id_and_name_find_the_same(cloud: AwsAdapters) -> None:
    one = await resolved(cloud)
    status = one.status
    named = node_class(
        uid="another",
        amiFamily="AL2023",
        amiSelectorTerms=[{"id": status.amis[0].id}],
        subnetSelectorTerms=[{"id": status.subnets[0].id}, {"tags": {"karpenter.sh/discovery": "*"}}],
        securityGroupSelectorTerms=[{"name": status.security_groups[0].name}],
    )
    found = await resolved(cloud, named)
    assert {subnet.id for subnet in found.status.subnets} == {subnet.id for subnet in status.subnets}
    assert found.status.security_groups == status.security_groups
    assert [image.id for image in found.status.amis] == [status.amis[0].id]
    assert [need.key for need in found.status.amis[0].requirements] == [labels.ARCH]


async def test_a_role_that_changes_gets_a_profile_of_its_own_and_both_go_with_the_class(
    cloud: AwsAdapters, control: AwsControl
) -> None:
    first = await resolved(cloud, node_class(role="KarpenterNodeRole-demo"))
    with_path = await resolved(cloud, node_class(role="some/path/KarpenterNodeRole-demo"))
    assert with_path.status.instance_profile == first.status.instance_profile
    given = await resolved(cloud, node_class(role="", instanceProfile="mine"))
    assert given.status.instance_profile == "mine"
    await cloud.resolver.clean_up(first)
    assert cloud.clients.iam.list_instance_profiles()["InstanceProfiles"] == []


async def test_spot_is_bought_as_spot_and_read_back_as_spot(cloud: AwsAdapters) -> None:
    one = await resolved(cloud)
    request = await prepared(cloud, one, claim((labels.CAPACITY_TYPE, "In", "spot", "on-demand")))
    assert request.capacity_type == "spot"
    answer = await cloud.fleet.create(group_of(request))
    found = await cloud.instances.get(answer.instances[0].instance_id)
    assert found is not None
    assert answer.instances[0].capacity_type == found.capacity_type == "spot"


async def test_prices_that_cannot_be_read_are_estimated(endpoint: str, control: AwsControl) -> None:
    control.add_fault("5xx", service="pricing")
    control.add_fault("5xx", service="ec2", action="DescribeSpotPriceHistory")
    cloud = adapters(endpoint)
    types = await cloud.offerings.instance_types(await resolved(cloud))
    prices = {one.name: one.offerings[0].price for one in types if one.offerings}
    assert prices["m5.large"] < prices["m5.xlarge"] < prices["g5.xlarge"]
    cloud.close()


async def test_the_catalogue_holds_every_type_of_every_class(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolved(cloud)
    found = await cloud.offerings.catalogue([one])
    types = {each.name: each for each in found.by_node_class["default"]}
    assert len(types) > 1300
    assert types["m5.large"].image_id != types["m6g.large"].image_id != types["g5.xlarge"].image_id
    zones = {o.zone for o in types["m5.large"].offerings if o.available}
    assert zones == {subnet.zone for subnet in one.status.subnets}
    control.clear_counters()
    assert (await cloud.offerings.catalogue([one])).by_node_class["default"] == found.by_node_class["default"]
    assert control.counters() == {}
