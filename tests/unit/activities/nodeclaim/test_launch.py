"""Launching: one call for a group, instances handed out in order, nothing bought that nobody owns."""

from contextlib import suppress
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import TryLater
from tenure.model.instance_types import OfferingShard
from tenure.model.launch import (
    DELETED,
    FleetError,
    FleetResult,
    GroupOutcome,
    LaunchedInstance,
    LaunchGroup,
    LaunchGroupMember,
    LaunchPreparation,
    LaunchRejection,
    PreparedLaunchRequest,
)
from tenure.model.nodeclaim.requests import (
    GroupLaunchRequest,
    GroupRejection,
    NodeClaimLaunchRequest,
    NodeClaimRef,
    PreparationResult,
)
from tenure.model.plan import LaunchDraft
from tests.support.fakes.cloud import REQUEST
from tests.unit.activities.builders import FakeCluster, run_activity


def launch_group(cluster: FakeCluster, *names: str) -> LaunchGroup:
    for name in names:
        cluster.claims.add(name)
    return LaunchGroup(group_id="group-1", pool="default", members=group_members(*names), request=REQUEST)


async def launch_request(cluster: FakeCluster, request: LaunchGroup, *, attempt: int = 1) -> GroupOutcome:
    return await run_activity(cluster.launching.launch_group, request, attempt=attempt)


async def launch(cluster: FakeCluster, *names: str) -> GroupOutcome:
    return await launch_request(cluster, launch_group(cluster, *names))


async def prepare(cluster: FakeCluster) -> LaunchPreparation | None:
    request = NodeClaimLaunchRequest(claim=NodeClaimRef(name="a", uid="uid-a"))
    return (await run_activity(cluster.launching.prepare_launch, request)).preparation


async def prepare_group(cluster: FakeCluster, *names: str, retry: bool = False, **fields: Any) -> PreparationResult:
    shard = fields.pop("offering_shard", None)
    members = group_members(*names)
    draft = LaunchDraft(group_id="g", pool="default", node_class="default", members=members, offering_shard=shard)
    request = GroupLaunchRequest(draft=draft.model_copy(update={"attempt": 1 + retry}), retry=retry, **fields)
    return await run_activity(cluster.launching.prepare_launch_group, request)


async def fail_group(cluster: FakeCluster, *names: str, **fields: str) -> None:
    members = tuple(NodeClaimRef(name=name, uid=f"uid-{name}") for name in names)
    request = GroupRejection.model_validate({"group_id": "g", "members": members, **fields})
    await run_activity(cluster.launching.fail_launch_group, request)


def notified_instances(cluster: FakeCluster) -> dict[str, str]:
    """Instance by UID, as the members' workflows were told."""
    results = {uid: group_result.result for uid, group_result in cluster.workflows.results.items()}
    return {
        uid: one.provider_id.rpartition("/")[2] for uid, one in results.items() if isinstance(one, LaunchedInstance)
    }


async def test_instances_are_handed_out_by_uid_in_the_order_of_the_answer(cluster: FakeCluster) -> None:
    outcome = await launch(cluster, "c", "a", "b")
    assert notified_instances(cluster) == {"uid-a": "i-0000", "uid-b": "i-0001", "uid-c": "i-0002"}
    assert outcome == GroupOutcome(group_id="group-1")


async def test_a_repeated_call_hands_out_the_same(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b")
    await launch_request(cluster, request)
    first = notified_instances(cluster)
    await launch_request(cluster, request)
    assert notified_instances(cluster) == first and len(cluster.instances.running) == 2


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
async def test_a_hand_out_that_is_cut_anywhere_and_repeated_in_another_order_gives_each_its_own(
    cluster: FakeCluster, cut: int
) -> None:
    """The answer itself was lost, and what runs is found by tag in the order of ids."""
    request = launch_group(cluster, "a", "b", "c")
    cluster.fleet.instances.running = {}
    token = request.client_token()
    await cluster.fleet.create(request)
    fleet_result = cluster.fleet.results[token]
    cluster.claims.faults["patch"] = [*[None] * cut, TryLater("503")]
    with suppress(ApplicationError):
        await launch_request(cluster, request)
    before = assigned_instances(cluster)
    cluster.fleet.results[token] = FleetResult(instances=tuple(reversed(fleet_result.instances)))
    await launch_request(cluster, request, attempt=2)
    after = assigned_instances(cluster)
    assert before.items() <= after.items()
    assert sorted(after.values()) == ["i-0000", "i-0001", "i-0002"] == sorted(cluster.instances.running)
    assert notified_instances(cluster).items() <= after.items()


def assigned_instances(cluster: FakeCluster) -> dict[str, str]:
    """Instance by UID, as the NodeClaims show it."""
    provider_ids = {
        one["metadata"]["uid"]: one.get("status", {}).get("providerID", "") for one in cluster.claims.found.values()
    }
    return {uid: provider.rpartition("/")[2] for uid, provider in provider_ids.items() if provider}


async def test_the_first_hand_out_reads_no_more_than_one_nodeclaim_and_a_repeated_one_each(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, get, read = launch_group(cluster, "a", "b", "c"), cluster.claims.get, list[str]()

    async def counted(name: str) -> NodeClaim | None:
        read.append(name)
        return await get(name)

    monkeypatch.setattr(cluster.claims, "get", counted)
    await launch_request(cluster, request)
    assert len(read) == 1
    await launch_request(cluster, request, attempt=2)
    assert {*read} == {"a", "b", "c"}


async def test_what_was_launched_is_shown_on_the_claim_before_its_workflow_hears(cluster: FakeCluster) -> None:
    await launch(cluster, "a")
    claim = cluster.claims.found["a"]
    assert claim["status"]["providerID"] == "aws:///us-west-2a/i-0000"
    assert claim["status"]["capacity"] == {"cpu": "2"}
    assert claim["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "m5.large"
    assert cluster.claims.condition_text("a", "Launched").startswith("True")
    assert cluster.claims.condition_text("a", "Registered") == "Unknown NodeNotFound"


async def test_one_that_launches_alone_is_answered_by_result_and_not_by_signal(cluster: FakeCluster) -> None:
    outcome = await run_activity(cluster.launching.launch_one, launch_group(cluster, "a"))
    result = outcome.results["uid-a"]
    assert (
        isinstance(result, LaunchedInstance)
        and result.provider_id.endswith("i-0000")
        and cluster.workflows.results == {}
    )


async def test_a_fleet_that_is_too_small_serves_the_first_and_marks_the_offering(cluster: FakeCluster) -> None:
    cluster.fleet.capacity = 1
    outcome = await launch(cluster, "a", "b")
    assert notified_instances(cluster) == {"uid-a": "i-0000"}
    assert outcome.rejected == group_members("b") and outcome.rejection is not None and outcome.rejection.final
    assert outcome.rejection.reason == "InsufficientCapacity"
    assert cluster.claims.condition_text("b", "Launched") == "Unknown InsufficientCapacity"
    assert cluster.events.reasons_for("b") == ["InsufficientCapacityError"]
    mark = outcome.unavailable[0]
    assert (mark.instance_type, mark.zone, mark.capacity_type) == ("m5.large", "us-west-2a", "on-demand")


async def test_an_instance_beyond_what_was_asked_for_is_ended(cluster: FakeCluster) -> None:
    cluster.fleet.extra_instances = 2
    await launch(cluster, "a")
    assert list(cluster.instances.running) == ["i-0000"]
    assert cluster.instances.terminated == ["i-0001", "i-0002"]


async def test_the_instance_of_a_claim_that_is_gone_is_ended_and_the_others_stay(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b", "c")
    del cluster.claims.found["b"]
    await launch_request(cluster, request)
    assert cluster.instances.terminated == ["i-0001"] and list(cluster.instances.running) == ["i-0000", "i-0002"]
    assert set(cluster.workflows.results) == {"uid-a", "uid-c"}


async def test_a_claim_that_was_made_anew_under_its_name_gets_nothing_of_the_old_ones(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b")
    cluster.claims.add("b", uid="uid-other")
    await launch_request(cluster, request)
    assert cluster.instances.terminated == ["i-0001"] and set(cluster.workflows.results) == {"uid-a"}


async def test_a_group_whose_claims_are_all_gone_leaves_no_instance(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b")
    cluster.claims.found.clear()
    await launch_request(cluster, request)
    assert cluster.instances.running == {} and len(cluster.instances.terminated) == 2


async def test_a_passing_error_of_the_fleet_is_no_final_refusal(cluster: FakeCluster) -> None:
    cluster.fleet.next_error = FleetError(code="InternalError", message="try again")
    outcome = await launch(cluster, "a")
    assert outcome.rejection == LaunchRejection(reason="LaunchFailed", message="InternalError: try again", final=False)
    assert outcome.rejected == group_members("a") and cluster.workflows.results == {}
    assert outcome.unavailable == ()


async def test_a_lost_answer_is_a_fault_that_is_tried_again(cluster: FakeCluster) -> None:
    cluster.fleet.lost_responses = [TryLater("connection cut")]
    request = launch_group(cluster, "a")
    with pytest.raises(ApplicationError) as fault:
        await launch_request(cluster, request)
    assert not fault.value.non_retryable
    await launch_request(cluster, request)
    assert len(cluster.instances.running) == 1


async def test_preparing_puts_the_finalizer_on_before_anything_may_be_bought(cluster: FakeCluster) -> None:
    cluster.claims.add("a")
    prepared = await prepare(cluster)
    assert isinstance(prepared, PreparedLaunchRequest)
    assert cluster.claims.found["a"]["metadata"]["finalizers"] == ["karpenter.sh/termination"]
    assert cluster.fleet.calls == []


@pytest.mark.parametrize(("ready", "final"), [("False", True), ("Unknown", False), ("", False)])
async def test_a_node_class_that_is_not_ready_refuses_for_good_only_when_it_says_so(
    cluster: FakeCluster, ready: str, final: bool
) -> None:
    cluster.node_classes.add("default", ready=ready)
    cluster.claims.add("a")
    rejection = await prepare(cluster)
    assert isinstance(rejection, LaunchRejection)
    assert rejection.reason == "NodeClassNotReady" and rejection.final is final


@pytest.mark.parametrize(("observed", "waits"), [(1, True), (2, False)])
async def test_a_status_of_an_earlier_generation_is_waited_for(
    cluster: FakeCluster, observed: int, waits: bool
) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": observed}
    meta = {"name": "default", "uid": "uid-default", "generation": 2}
    cluster.node_classes.found["default"] = EC2NodeClass.model_validate(
        {"metadata": meta, "spec": {}, "status": {"conditions": [ready]}}
    )
    cluster.claims.add("a")
    prepared = await prepare(cluster)
    assert isinstance(prepared, LaunchRejection) is waits
    if isinstance(prepared, LaunchRejection):
        assert not prepared.final and "generation 1, not yet of 2" in prepared.message


@pytest.mark.parametrize("deleting", [True, False])
async def test_a_node_class_that_goes_or_is_gone_refuses(cluster: FakeCluster, deleting: bool) -> None:
    cluster.node_classes.found.clear()
    if deleting:
        cluster.node_classes.add("default", deleting=True)
    cluster.claims.add("a")
    prepared = await prepare(cluster)
    assert isinstance(prepared, LaunchRejection) and "not there or is going" in prepared.message


async def test_nothing_is_prepared_for_a_claim_that_is_gone(cluster: FakeCluster) -> None:
    prepared = await prepare(cluster)
    assert isinstance(prepared, LaunchRejection) and prepared.reason == "NodeClaimGone"


async def test_the_first_member_that_is_still_there_speaks_for_its_group(cluster: FakeCluster) -> None:
    cluster.claims.add("b")
    assert isinstance((await prepare_group(cluster, "a", "b")).preparation, PreparedLaunchRequest)
    cluster.claims.found.clear()
    assert isinstance((await prepare_group(cluster, "a", "b")).preparation, LaunchRejection)


async def test_another_attempt_is_for_those_that_still_wait(cluster: FakeCluster) -> None:
    for name in "abcd":
        cluster.claims.add(name)
    cluster.claims.set_status("b", provider_id="aws:///us-west-2a/i-1")
    cluster.claims.add("c", uid="uid-other")
    prepared = await prepare_group(cluster, *"abcd", retry=True)
    assert isinstance(prepared.preparation, PreparedLaunchRequest) and prepared.members == group_members("a", "d")


async def test_what_is_known_to_be_refused_is_left_out_of_the_request(cluster: FakeCluster) -> None:
    cluster.fleet.types = ("m5.large", "c5.large")
    cluster.fleet.capacity_by_type = {"m5.large": 0}
    first = await launch(cluster, "a")
    prepared = (await prepare_group(cluster, "a", unavailable=first.unavailable, retry=True)).preparation
    assert isinstance(prepared, PreparedLaunchRequest)
    assert [one.instance_type for one in prepared.request.overrides] == ["c5.large"]


@pytest.mark.parametrize(
    ("offering_shard", "is_retry", "capacity_type", "expected_type"),
    [
        (None, False, "spot", "m5.large"),
        ("us-west-2a/0/2", False, "spot", "m5.large"),
        ("us-west-2a/1/2", False, "spot", "c5.large"),
        ("us-west-2a/1/2", True, "spot", "m5.large"),
        ("us-west-2b/0/1", False, "spot", "m5.large"),
        ("us-west-2a/1/2", False, "on-demand", "m5.large"),
    ],
    ids=["calm", "its types", "the others", "at another attempt", "nothing in its zone", "no spot to be had"],
)
async def test_a_group_of_a_storm_asks_from_its_slice_at_first_and_from_all_before_it_gets_nothing(
    cluster: FakeCluster, offering_shard: str | None, is_retry: bool, capacity_type: str, expected_type: str
) -> None:
    cluster.fleet.types, cluster.fleet.capacity_type = ("m5.large", "c5.large"), capacity_type
    types = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "c5.large"]}
    cluster.claims.add("a", requirements=[types])
    subnets = [{"id": f"subnet-{zone}", "zone": f"us-west-2{zone}"} for zone in "ab"]
    known = cluster.node_classes.found["default"]
    status = known.status.model_validate({**known.status.model_dump(by_alias=True), "subnets": subnets})
    cluster.node_classes.found["default"] = known.model_copy(update={"status": status})
    shard = OfferingShard.read(offering_shard) if offering_shard else None
    prepared = (await prepare_group(cluster, "a", retry=is_retry, offering_shard=shard)).preparation
    assert isinstance(prepared, PreparedLaunchRequest)
    assert [one.instance_type for one in prepared.request.overrides] == [expected_type]


async def test_a_reason_that_a_person_can_mend_stands_on_the_claim_with_what_to_do(cluster: FakeCluster) -> None:
    cluster.fleet.next_error = FleetError(
        code="UnauthorizedOperation", message="not allowed", reason="Unauthorized", remedy="allow ec2:CreateFleet"
    )
    outcome = await launch(cluster, "a")
    assert cluster.claims.condition_text("a", "Launched") == "Unknown Unauthorized"
    assert cluster.events.reasons_for("a") == ["Unauthorized"]
    assert outcome.rejection is not None and not outcome.rejection.final
    assert outcome.rejection.message == "UnauthorizedOperation: not allowed; allow ec2:CreateFleet"


async def test_of_mixed_errors_the_offerings_without_room_are_marked_and_the_rest_is_tried_again(
    cluster: FakeCluster,
) -> None:
    short = FleetError(
        code="InsufficientInstanceCapacity",
        message="",
        instance_type="m5.large",
        zone="us-west-2a",
        capacity_type="spot",
        insufficient=True,
    )
    denied = FleetError(code="UnauthorizedOperation", message="no", reason="Unauthorized")
    request = launch_group(cluster, "a")
    cluster.fleet.results[request.client_token()] = FleetResult(errors=(denied, short))
    outcome = await launch_request(cluster, request)
    assert outcome.rejection is not None and outcome.rejection.reason == "Unauthorized" and not outcome.rejection.final
    assert [offering.instance_type for offering in outcome.unavailable] == ["m5.large"]


async def test_a_call_that_goes_wrong_for_ever_ends_with_its_members_and_leaves_no_instance(
    cluster: FakeCluster,
) -> None:
    request = launch_group(cluster, "a", "b")
    cluster.fleet.lost_responses = [TryLater("503") for _ in range(3)]
    for attempt, there in ((4, False), (5, True)):
        if there:
            cluster.claims.add("a")
        with pytest.raises(ApplicationError):
            await run_activity(cluster.launching.launch_group, request, attempt=attempt)
    cluster.claims.found.clear()
    outcome = await launch_request(cluster, request, attempt=10)
    assert outcome.rejected == () and cluster.instances.running == {} and len(cluster.instances.terminated) == 2


async def test_instances_of_a_class_that_is_gone_for_good_are_ended(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a")
    cluster.node_classes.found.clear()
    with pytest.raises(ApplicationError):
        await launch_request(cluster, request)
    outcome = await launch_request(cluster, request, attempt=5)
    assert outcome.rejected == group_members("a") and cluster.instances.running == {}


async def test_a_refused_group_tells_every_member_that_is_still_there(cluster: FakeCluster) -> None:
    cluster.claims.add("a")
    cluster.claims.add("b", uid="uid-other")
    await fail_group(cluster, "a", "b", "c", reason="NodeClassNotReady", message="no subnets")
    assert set(cluster.workflows.results) == {"uid-a"}
    assert cluster.workflows.results["uid-a"].result == LaunchRejection(
        reason="NodeClassNotReady", message="no subnets"
    )


async def test_what_a_nodeclaim_shows_already_stands_whatever_is_refused(cluster: FakeCluster) -> None:
    cluster.claims.add("a")
    cluster.claims.set_status("a", provider_id="aws:///us-west-2a/i-1")
    await fail_group(cluster, "a", reason=DELETED)
    result = cluster.workflows.results["uid-a"].result
    assert isinstance(result, LaunchedInstance) and result.provider_id == "aws:///us-west-2a/i-1"


async def test_one_that_was_deleted_before_its_launch_is_told_also_where_its_nodeclaim_is_gone(
    cluster: FakeCluster,
) -> None:
    await fail_group(cluster, "a", reason=DELETED)
    assert cluster.workflows.results["uid-a"].result == LaunchRejection(reason=DELETED)


def group_members(*names: str) -> tuple[LaunchGroupMember, ...]:
    return tuple(LaunchGroupMember(name=name, uid=f"uid-{name}") for name in names)


async def test_each_is_told_the_price_that_it_was_launched_at(cluster: FakeCluster) -> None:
    await launch(cluster, "a")
    result = cluster.workflows.results["uid-a"].result
    assert isinstance(result, LaunchedInstance) and result.price == REQUEST.overrides[0].priority > 0


async def test_where_ec2_chose_what_was_not_asked_for_no_price_is_made_up(cluster: FakeCluster) -> None:
    elsewhere = REQUEST.overrides[0].model_copy(update={"zone": "us-west-2c"})
    request = launch_group(cluster, "a").model_copy(
        update={"request": REQUEST.model_copy(update={"overrides": (elsewhere,)})}
    )
    await launch_request(cluster, request)
    result = cluster.workflows.results["uid-a"].result
    assert isinstance(result, LaunchedInstance) and result.price == 0
