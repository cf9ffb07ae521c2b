"""Launching: one call for a group, instances handed out in order, nothing bought that nobody owns."""

import pytest
from temporalio.exceptions import ApplicationError

from model.faults import TryLater
from model.launches import FleetError, GroupOutcome, Launched, LaunchGroup, LaunchPrepared, LaunchRefused, Member
from model.plans import LaunchDraft
from model.steps import ClaimRef, GroupRefused
from tests.activities.builders import Scene, performed
from tests.fakes.cloud import REQUEST


def group(scene: Scene, *names: str) -> LaunchGroup:
    for name in names:
        scene.claims.add(name)
    members = tuple(Member(name=name, uid=f"uid-{name}") for name in names)
    return LaunchGroup(group_id="group-1", pool="default", members=members, request=REQUEST)


def handed_out(outcome: GroupOutcome) -> dict[str, str]:
    return {
        uid: result.provider_id.rpartition("/")[2] if isinstance(result, Launched) else result.reason
        for uid, result in outcome.results.items()
    }


async def test_instances_are_handed_out_by_uid_in_the_order_of_the_answer(scene: Scene) -> None:
    outcome = await performed(scene.launching.launch_group, group(scene, "c", "a", "b"))
    assert handed_out(outcome) == {"uid-a": "i-0000", "uid-b": "i-0001", "uid-c": "i-0002"}
    assert {uid: answer.result for uid, answer in scene.lives.told.items()} == outcome.results


async def test_a_repeated_call_hands_out_the_same(scene: Scene) -> None:
    asked = group(scene, "a", "b")
    first = await performed(scene.launching.launch_group, asked)
    again = await performed(scene.launching.launch_group, asked)
    assert first.results == again.results and len(scene.instances.running) == 2


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
    assert handed_out(outcome) == {"uid-a": "i-0000"} and scene.lives.told == {}


async def test_a_fleet_that_is_too_small_serves_the_first_and_marks_the_offering(scene: Scene) -> None:
    scene.fleet.capacity = 1
    outcome = await performed(scene.launching.launch_group, group(scene, "a", "b"))
    assert handed_out(outcome) == {"uid-a": "i-0000", "uid-b": "InsufficientCapacity"}
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
    assert outcome.results["uid-a"] == LaunchRefused(
        reason="LaunchFailed", message="InternalError: try again", final=False
    )
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
    prepared = await performed(scene.launching.prepare_launch, ClaimRef(name="a", uid="uid-a"))
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
    prepared = await performed(scene.launching.prepare_launch, ClaimRef(name="a", uid="uid-a"))
    refused = prepared.preparation
    assert isinstance(refused, LaunchRefused) and refused.reason == "NodeClassNotReady" and refused.final is final


@pytest.mark.parametrize("deleting", [True, False])
async def test_a_node_class_that_goes_or_is_gone_refuses(scene: Scene, deleting: bool) -> None:
    scene.node_classes.found.clear()
    if deleting:
        scene.node_classes.add("default", deleting=True)
    scene.claims.add("a")
    prepared = await performed(scene.launching.prepare_launch, ClaimRef(name="a", uid="uid-a"))
    assert isinstance(prepared.preparation, LaunchRefused) and "not there or is going" in prepared.preparation.message


async def test_nothing_is_prepared_for_a_claim_that_is_gone(scene: Scene) -> None:
    prepared = await performed(scene.launching.prepare_launch, ClaimRef(name="a", uid="uid-a"))
    assert isinstance(prepared.preparation, LaunchRefused) and prepared.preparation.reason == "NodeClaimGone"


async def test_the_first_member_that_is_still_there_speaks_for_its_group(scene: Scene) -> None:
    scene.claims.add("b")
    draft = LaunchDraft(group_id="g", pool="default", node_class="default", members=members("a", "b"))
    assert isinstance((await performed(scene.launching.prepare_group, draft)).preparation, LaunchPrepared)
    scene.claims.found.clear()
    assert isinstance((await performed(scene.launching.prepare_group, draft)).preparation, LaunchRefused)


async def test_a_refused_group_tells_every_member_that_is_still_there(scene: Scene) -> None:
    scene.claims.add("a")
    scene.claims.add("b", uid="uid-other")
    refs = tuple(ClaimRef(name=name, uid=f"uid-{name}") for name in ("a", "b", "c"))
    asked = GroupRefused(group_id="g", members=refs, reason="NodeClassNotReady", message="no subnets")
    await performed(scene.launching.refuse_group, asked)
    assert set(scene.lives.told) == {"uid-a"}
    assert scene.lives.told["uid-a"].result == LaunchRefused(reason="NodeClassNotReady", message="no subnets")


def members(*names: str) -> tuple[Member, ...]:
    return tuple(Member(name=name, uid=f"uid-{name}") for name in names)
