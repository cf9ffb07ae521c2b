"""Launching: one call for a group, instances handed out in order, nothing bought that nobody owns."""

from contextlib import suppress

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import TryLater
from tenure.model.instance_types import PoolSlice
from tenure.model.launch import (
    DELETED,
    FleetAnswer,
    FleetError,
    GroupOutcome,
    Launched,
    LaunchGroup,
    LaunchPrepared,
    LaunchRefused,
    Member,
)
from tenure.model.nodeclaim_requests import ClaimRef, GroupAsked, GroupRefused, LaunchAsked
from tenure.model.provisioning import LaunchDraft
from tests.support.fakes.cloud import REQUEST
from tests.unit.activities.builders import Scene, performed


def group(scene: Scene, *names: str) -> LaunchGroup:
    for name in names:
        scene.claims.add(name)
    members = tuple(Member(name=name, uid=f"uid-{name}") for name in names)
    return LaunchGroup(group_id="group-1", pool="default", members=members, request=REQUEST)


def handed_out(scene: Scene) -> dict[str, str]:
    """Instance by UID, as the members' workflows were told."""
    told = {uid: answer.result for uid, answer in scene.lives.told.items()}
    return {uid: one.provider_id.rpartition("/")[2] for uid, one in told.items() if isinstance(one, Launched)}


async def test_instances_are_handed_out_by_uid_in_the_order_of_the_answer(scene: Scene) -> None:
    outcome = await performed(scene.launching.launch_group, group(scene, "c", "a", "b"))
    assert handed_out(scene) == {"uid-a": "i-0000", "uid-b": "i-0001", "uid-c": "i-0002"}
    assert outcome == GroupOutcome(group_id="group-1")


async def test_a_repeated_call_hands_out_the_same(scene: Scene) -> None:
    wanted = group(scene, "a", "b")
    await performed(scene.launching.launch_group, wanted)
    first = handed_out(scene)
    await performed(scene.launching.launch_group, wanted)
    assert handed_out(scene) == first and len(scene.instances.running) == 2


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
async def test_a_hand_out_that_is_cut_anywhere_and_repeated_in_another_order_gives_each_its_own(
    scene: Scene, cut: int
) -> None:
    """The answer itself was lost, and what runs is found by tag in the order of ids."""
    wanted = group(scene, "a", "b", "c")
    scene.fleet.instances.running = {}
    token = wanted.token()
    await scene.fleet.create(wanted)
    answer = scene.fleet.answers[token]
    scene.claims.faults["patch"] = [*[None] * cut, TryLater("503")]
    with suppress(ApplicationError):
        await performed(scene.launching.launch_group, wanted)
    before = held(scene)
    scene.fleet.answers[token] = FleetAnswer(instances=tuple(reversed(answer.instances)))
    await performed(scene.launching.launch_group, wanted, attempt=2)
    after = held(scene)
    assert before.items() <= after.items()
    assert sorted(after.values()) == ["i-0000", "i-0001", "i-0002"] == sorted(scene.instances.running)
    assert handed_out(scene).items() <= after.items()


def held(scene: Scene) -> dict[str, str]:
    """Instance by UID, as the NodeClaims show it."""
    shown = {one["metadata"]["uid"]: one.get("status", {}).get("providerID", "") for one in scene.claims.found.values()}
    return {uid: provider.rpartition("/")[2] for uid, provider in shown.items() if provider}


async def test_the_first_hand_out_reads_no_more_than_one_nodeclaim_and_a_repeated_one_each(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, get, read = group(scene, "a", "b", "c"), scene.claims.get, list[str]()

    async def counted(name: str) -> NodeClaim | None:
        read.append(name)
        return await get(name)

    monkeypatch.setattr(scene.claims, "get", counted)
    await performed(scene.launching.launch_group, wanted)
    assert len(read) == 1
    await performed(scene.launching.launch_group, wanted, attempt=2)
    assert {*read} == {"a", "b", "c"}


async def test_what_was_launched_is_shown_on_the_claim_before_its_workflow_hears(scene: Scene) -> None:
    await performed(scene.launching.launch_group, group(scene, "a"))
    claim = scene.claims.found["a"]
    assert claim["status"]["providerID"] == "aws:///us-west-2a/i-0000"
    assert claim["status"]["capacity"] == {"cpu": "2"}
    assert claim["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "m5.large"
    assert scene.claims.condition("a", "Launched").startswith("True")
    assert scene.claims.condition("a", "Registered") == "Unknown NodeNotFound"


async def test_one_that_launches_alone_is_answered_by_result_and_not_by_signal(scene: Scene) -> None:
    outcome = await performed(scene.launching.launch_alone, group(scene, "a"))
    result = outcome.results["uid-a"]
    assert isinstance(result, Launched) and result.provider_id.endswith("i-0000") and scene.lives.told == {}


async def test_a_fleet_that_is_too_small_serves_the_first_and_marks_the_offering(scene: Scene) -> None:
    scene.fleet.capacity = 1
    outcome = await performed(scene.launching.launch_group, group(scene, "a", "b"))
    assert handed_out(scene) == {"uid-a": "i-0000"}
    assert outcome.refused == members("b") and outcome.refusal is not None and outcome.refusal.final
    assert outcome.refusal.reason == "InsufficientCapacity"
    assert scene.claims.condition("b", "Launched") == "Unknown InsufficientCapacity"
    assert scene.events.reasons("b") == ["InsufficientCapacityError"]
    mark = outcome.unavailable[0]
    assert (mark.instance_type, mark.zone, mark.capacity_type) == ("m5.large", "us-west-2a", "on-demand")


async def test_an_instance_beyond_what_was_asked_for_is_ended(scene: Scene) -> None:
    scene.fleet.spare = 2
    await performed(scene.launching.launch_group, group(scene, "a"))
    assert list(scene.instances.running) == ["i-0000"]
    assert scene.instances.terminated == ["i-0001", "i-0002"]


async def test_the_instance_of_a_claim_that_is_gone_is_ended_and_the_others_stay(scene: Scene) -> None:
    asked = group(scene, "a", "b", "c")
    del scene.claims.found["b"]
    await performed(scene.launching.launch_group, asked)
    assert scene.instances.terminated == ["i-0001"] and list(scene.instances.running) == ["i-0000", "i-0002"]
    assert set(scene.lives.told) == {"uid-a", "uid-c"}


async def test_a_claim_that_was_made_anew_under_its_name_gets_nothing_of_the_old_ones(scene: Scene) -> None:
    asked = group(scene, "a", "b")
    scene.claims.add("b", uid="uid-other")
    await performed(scene.launching.launch_group, asked)
    assert scene.instances.terminated == ["i-0001"] and set(scene.lives.told) == {"uid-a"}


async def test_a_group_whose_claims_are_all_gone_leaves_no_instance(scene: Scene) -> None:
    asked = group(scene, "a", "b")
    scene.claims.found.clear()
    await performed(scene.launching.launch_group, asked)
    assert scene.instances.running == {} and len(scene.instances.terminated) == 2


async def test_a_passing_error_of_the_fleet_is_no_final_refusal(scene: Scene) -> None:
    scene.fleet.error = FleetError(code="InternalError", message="try again")
    outcome = await performed(scene.launching.launch_group, group(scene, "a"))
    assert outcome.refusal == LaunchRefused(reason="LaunchFailed", message="InternalError: try again", final=False)
    assert outcome.refused == members("a") and scene.lives.told == {}
    assert outcome.unavailable == ()


async def test_a_lost_answer_is_a_fault_that_is_tried_again(scene: Scene) -> None:
    scene.fleet.lost = [TryLater("connection cut")]
    asked = group(scene, "a")
    with pytest.raises(ApplicationError) as fault:
        await performed(scene.launching.launch_group, asked)
    assert not fault.value.non_retryable
    await performed(scene.launching.launch_group, asked)
    assert len(scene.instances.running) == 1


async def test_preparing_puts_the_finalizer_on_before_anything_may_be_bought(scene: Scene) -> None:
    scene.claims.add("a")
    prepared = await performed(scene.launching.prepare_launch, alone("a"))
    assert isinstance(prepared.preparation, LaunchPrepared)
    assert scene.claims.found["a"]["metadata"]["finalizers"] == ["karpenter.sh/termination"]
    assert scene.fleet.calls == []


@pytest.mark.parametrize(
    ("ready", "final"),
    [("False", True), ("Unknown", False), ("", False)],
)
async def test_a_node_class_that_is_not_ready_refuses_for_good_only_when_it_says_so(
    scene: Scene, ready: str, final: bool
) -> None:
    scene.node_classes.add("default", ready=ready)
    scene.claims.add("a")
    prepared = await performed(scene.launching.prepare_launch, alone("a"))
    refused = prepared.preparation
    assert isinstance(refused, LaunchRefused) and refused.reason == "NodeClassNotReady" and refused.final is final


@pytest.mark.parametrize(("observed", "waits"), [(1, True), (2, False)])
async def test_a_status_of_an_earlier_generation_is_waited_for(scene: Scene, observed: int, waits: bool) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": observed}
    meta = {"name": "default", "uid": "uid-default", "generation": 2}
    scene.node_classes.found["default"] = EC2NodeClass.model_validate(
        {"metadata": meta, "spec": {}, "status": {"conditions": [ready]}}
    )
    scene.claims.add("a")
    prepared = (await performed(scene.launching.prepare_launch, alone("a"))).preparation
    assert isinstance(prepared, LaunchRefused) is waits
    if isinstance(prepared, LaunchRefused):
        assert not prepared.final and "generation 1, not yet of 2" in prepared.message


@pytest.mark.parametrize("deleting", [True, False])
async def test_a_node_class_that_goes_or_is_gone_refuses(scene: Scene, deleting: bool) -> None:
    scene.node_classes.found.clear()
    if deleting:
        scene.node_classes.add("default", deleting=True)
    scene.claims.add("a")
    prepared = await performed(scene.launching.prepare_launch, alone("a"))
    assert isinstance(prepared.preparation, LaunchRefused) and "not there or is going" in prepared.preparation.message


async def test_nothing_is_prepared_for_a_claim_that_is_gone(scene: Scene) -> None:
    prepared = await performed(scene.launching.prepare_launch, alone("a"))
    assert isinstance(prepared.preparation, LaunchRefused) and prepared.preparation.reason == "NodeClaimGone"


async def test_the_first_member_that_is_still_there_speaks_for_its_group(scene: Scene) -> None:
    scene.claims.add("b")
    draft = LaunchDraft(group_id="g", pool="default", node_class="default", members=members("a", "b"))
    wanted = GroupAsked(draft=draft)
    assert isinstance((await performed(scene.launching.prepare_group, wanted)).preparation, LaunchPrepared)
    scene.claims.found.clear()
    assert isinstance((await performed(scene.launching.prepare_group, wanted)).preparation, LaunchRefused)


async def test_another_attempt_is_for_those_that_still_wait(scene: Scene) -> None:
    for name in "abcd":
        scene.claims.add(name)
    scene.claims.give("b", provider_id="aws:///us-west-2a/i-1")
    scene.claims.add("c", uid="uid-other")
    draft = LaunchDraft(group_id="g", pool="default", node_class="default", members=members(*"abcd"), attempt=2)
    prepared = await performed(scene.launching.prepare_group, GroupAsked(draft=draft, again=True))
    assert isinstance(prepared.preparation, LaunchPrepared) and prepared.members == members("a", "d")


async def test_what_is_known_to_be_refused_is_left_out_of_the_request(scene: Scene) -> None:
    scene.fleet.types = ("m5.large", "c5.large")
    scene.fleet.room = {"m5.large": 0}
    first = await performed(scene.launching.launch_group, group(scene, "a"))
    draft = LaunchDraft(group_id="g", pool="default", node_class="default", members=members("a"), attempt=2)
    asked = GroupAsked(draft=draft, unavailable=first.unavailable, again=True)
    prepared = (await performed(scene.launching.prepare_group, asked)).preparation
    assert isinstance(prepared, LaunchPrepared)
    assert [one.instance_type for one in prepared.request.overrides] == ["c5.large"]


@pytest.mark.parametrize(
    ("pool_slice", "again", "capacity_type", "asked"),
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
    scene: Scene, pool_slice: str | None, again: bool, capacity_type: str, asked: str
) -> None:
    scene.fleet.types, scene.fleet.capacity_type = ("m5.large", "c5.large"), capacity_type
    types = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "c5.large"]}
    scene.claims.add("a", requirements=[types])
    subnets = [{"id": f"subnet-{zone}", "zone": f"us-west-2{zone}"} for zone in "ab"]
    known = scene.node_classes.found["default"]
    status = known.status.model_validate({**known.status.model_dump(by_alias=True), "subnets": subnets})
    scene.node_classes.found["default"] = known.model_copy(update={"status": status})
    draft = LaunchDraft(
        group_id="g",
        pool="default",
        node_class="default",
        members=members("a"),
        pool_slice=PoolSlice.read(pool_slice) if pool_slice else None,
    )
    wanted = GroupAsked(draft=draft, again=again)
    prepared = (await performed(scene.launching.prepare_group, wanted)).preparation
    assert isinstance(prepared, LaunchPrepared)
    assert [one.instance_type for one in prepared.request.overrides] == [asked]


async def test_a_reason_that_a_person_can_mend_stands_on_the_claim_with_what_to_do(scene: Scene) -> None:
    scene.fleet.error = FleetError(
        code="UnauthorizedOperation", message="not allowed", reason="Unauthorized", mend="allow ec2:CreateFleet"
    )
    outcome = await performed(scene.launching.launch_group, group(scene, "a"))
    assert scene.claims.condition("a", "Launched") == "Unknown Unauthorized"
    assert scene.events.reasons("a") == ["Unauthorized"]
    assert outcome.refusal is not None and not outcome.refusal.final
    assert outcome.refusal.message == "UnauthorizedOperation: not allowed; allow ec2:CreateFleet"


async def test_of_mixed_errors_the_offerings_without_room_are_marked_and_the_rest_is_tried_again(scene: Scene) -> None:
    short = FleetError(
        code="InsufficientInstanceCapacity",
        message="",
        instance_type="m5.large",
        zone="us-west-2a",
        capacity_type="spot",
        insufficient=True,
    )
    denied = FleetError(code="UnauthorizedOperation", message="no", reason="Unauthorized")
    wanted = group(scene, "a")
    scene.fleet.answers[wanted.token()] = FleetAnswer(errors=(denied, short))
    outcome = await performed(scene.launching.launch_group, wanted)
    assert outcome.refusal is not None and outcome.refusal.reason == "Unauthorized" and not outcome.refusal.final
    assert [mark.instance_type for mark in outcome.unavailable] == ["m5.large"]


async def test_a_call_that_goes_wrong_for_ever_ends_with_its_members_and_leaves_no_instance(scene: Scene) -> None:
    wanted = group(scene, "a", "b")
    scene.fleet.lost = [TryLater("503") for _ in range(3)]
    for attempt, there in ((4, False), (5, True)):
        if there:
            scene.claims.add("a")
        with pytest.raises(ApplicationError):
            await performed(scene.launching.launch_group, wanted, attempt=attempt)
    scene.claims.found.clear()
    outcome = await performed(scene.launching.launch_group, wanted, attempt=10)
    assert outcome.refused == () and scene.instances.running == {} and len(scene.instances.terminated) == 2


async def test_instances_of_a_class_that_is_gone_for_good_are_ended(scene: Scene) -> None:
    wanted = group(scene, "a")
    scene.node_classes.found.clear()
    with pytest.raises(ApplicationError):
        await performed(scene.launching.launch_group, wanted)
    outcome = await performed(scene.launching.launch_group, wanted, attempt=5)
    assert outcome.refused == members("a") and scene.instances.running == {}


async def test_a_refused_group_tells_every_member_that_is_still_there(scene: Scene) -> None:
    scene.claims.add("a")
    scene.claims.add("b", uid="uid-other")
    refs = tuple(ClaimRef(name=name, uid=f"uid-{name}") for name in ("a", "b", "c"))
    asked = GroupRefused(group_id="g", members=refs, reason="NodeClassNotReady", message="no subnets")
    await performed(scene.launching.refuse_group, asked)
    assert set(scene.lives.told) == {"uid-a"}
    assert scene.lives.told["uid-a"].result == LaunchRefused(reason="NodeClassNotReady", message="no subnets")


async def test_what_a_nodeclaim_shows_already_stands_whatever_is_refused(scene: Scene) -> None:
    scene.claims.add("a")
    scene.claims.give("a", provider_id="aws:///us-west-2a/i-1")
    asked = GroupRefused(group_id="g", members=(ClaimRef(name="a", uid="uid-a"),), reason=DELETED)
    await performed(scene.launching.refuse_group, asked)
    result = scene.lives.told["uid-a"].result
    assert isinstance(result, Launched) and result.provider_id == "aws:///us-west-2a/i-1"


async def test_one_that_was_deleted_before_its_launch_is_told_also_where_its_nodeclaim_is_gone(scene: Scene) -> None:
    asked = GroupRefused(group_id="g", members=(ClaimRef(name="a", uid="uid-a"),), reason=DELETED)
    await performed(scene.launching.refuse_group, asked)
    assert scene.lives.told["uid-a"].result == LaunchRefused(reason=DELETED)


def members(*names: str) -> tuple[Member, ...]:
    return tuple(Member(name=name, uid=f"uid-{name}") for name in names)


def alone(name: str) -> LaunchAsked:
    return LaunchAsked(claim=ClaimRef(name=name, uid=f"uid-{name}"))


async def test_each_is_told_the_price_that_it_was_launched_at(scene: Scene) -> None:
    await performed(scene.launching.launch_group, group(scene, "a"))
    result = scene.lives.told["uid-a"].result
    assert isinstance(result, Launched) and result.price == REQUEST.overrides[0].priority > 0


async def test_where_ec2_chose_what_was_not_asked_for_no_price_is_made_up(scene: Scene) -> None:
    elsewhere = REQUEST.overrides[0].model_copy(update={"zone": "us-west-2c"})
    wanted = group(scene, "a").model_copy(update={"request": REQUEST.model_copy(update={"overrides": (elsewhere,)})})
    await performed(scene.launching.launch_group, wanted)
    result = scene.lives.told["uid-a"].result
    assert isinstance(result, Launched) and result.price == 0
