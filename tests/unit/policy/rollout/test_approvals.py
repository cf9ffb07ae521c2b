"""Plans that people approve or reject, that expire, and go stale when the world moves."""

from typing import Any

import pytest

from tenure.model.rollout import ApproveRollout, Image
from tenure.policy.rollout.plan import rejection_reason
from tests.unit.policy.rollout.rollout_builders import BAD, GOOD, WAVES, FakeNodePool, drifted

WITH_APPROVAL = {**WAVES, "approval": {"required": True, "expires": "4h"}}


def test_no_node_goes_before_the_plan_is_approved() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.play("step 0; says wave 1 of 3 of the rollout of the image")
    assert pool.explains(f"waits for approval until 2026-06-01T16:00Z: tenure approve {pool.plan}")
    pool.play("approve; step 1")


def test_each_wave_has_a_plan_of_its_own() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    first = pool.plan
    pool.play("approve; step; wait 10m; step 0")
    assert pool.plan not in ("", first)
    assert "outdated" in pool.approve(plan=first)
    pool.play("approve; step 1")


def test_a_plan_that_nobody_answers_is_made_anew_under_another_name() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    first = pool.plan
    pool.wait(hours=4)
    assert pool.plan != first
    assert f"the current plan is {pool.plan}" in pool.approve(plan=first)
    assert pool.event_reasons().count("RolloutWaits") == 2


def test_an_approval_lasts_as_long_as_a_plan() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.play("wait 3h; approve; wait 3h; room 1; wait 1h; room 0")


@pytest.mark.parametrize(("nodes", "stale"), [(12, False), (13, True), (8, False), (7, True)])
def test_a_plan_goes_stale_when_there_are_other_nodes_than_it_was_made_for(nodes: int, stale: bool) -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    plan = pool.plan
    pool.approve()
    pool.old = {f"n{number}": GOOD for number in range(nodes)}
    assert (pool.evaluate().headroom == 0) == stale
    assert (pool.plan != plan) == stale


def test_nodes_that_go_with_the_plan_do_not_make_it_stale() -> None:
    pool = drifted({"approval": {"required": True, "staleAfter": "0%"}})
    pool.play("look; approve; grant 5; arrive; step 5")


def test_an_approval_of_one_target_is_none_of_another() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    first = pool.plan
    pool.approve()
    pool.towards(BAD.model_copy(update={"images": (Image(id="ami-other"),)}))
    assert pool.evaluate().headroom == 0
    assert pool.approve(plan=first)


def test_two_people_are_two_names() -> None:
    pool = drifted({"approval": {"required": True, "approvers": 2}})
    pool.play("look; approve ann; approve ann; says waits for 2 approvals (approved by ann); approve ben; room 10")


def test_a_rejected_plan_waits_for_a_person_until_it_is_approved_after_all() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    plan = pool.plan
    pool.play("approve; reject ben; wait 30h")
    assert pool.explains(
        f"rejected by ben since 2026-06-01T12:00Z, 0 of 10 nodes replaced, 0 in progress: no. It needs "
        f"a decision: tenure approve {plan} continues"
    )
    assert pool.approve("ann", plan) == ""
    assert pool.evaluate().headroom == 1


def test_a_roll_out_that_asks_nobody_can_be_rejected_too() -> None:
    pool = drifted()
    pool.play("step; reject; step 0; overdue True; approve; wait 10m; room 1")


def test_a_halted_one_goes_on_when_a_person_says_so_and_halts_again_under_another_name() -> None:
    pool = drifted()
    pool.play("step; sick; wait 2m")
    first = pool.plan
    assert pool.approve() == ""
    assert pool.state.counted_from == pool.now, "starts that failed before count no more"
    pool.play("wait 1m; halted False; wait 2m; halted True")
    assert pool.plan != first
    assert "outdated" in pool.approve(plan=first), "what was said of the first halt says nothing of the second"


def test_a_person_can_roll_back_where_there_is_a_way() -> None:
    pool = drifted()
    pool.step()
    assert pool.reject(roll_back=True) == ""
    found = pool.evaluate()
    assert found.roll_back is not None
    assert found.roll_back.images == {"ami-bad": "ami-good"}

    other = FakeNodePool(WAVES).towards(BAD.model_copy(update={"class_hash": "c2"}))
    other.step()
    assert "cannot be rolled back: not the image alone has changed" in other.reject(roll_back=True)


def test_what_is_said_of_nothing_or_by_nobody_is_refused() -> None:
    pool = FakeNodePool(WAVES)
    rejection = pool.approve(plan="web-0")
    assert rejection.startswith("plan 'web-0' is unknown or outdated: no rollout is in progress; `tenure stuck`")
    pool.play("towards bad; look")
    assert rejection_reason(pool.state, ApproveRollout(plan=pool.plan, by=" "), pool.now).startswith("by: empty")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, ()),
        ({"pool": "p2"}, ("the NodePool's template",)),
        ({"requirements": "r2", "groups": ("sg-2",)}, ("the NodePool's requirements", "the security groups")),
        ({"class_hash": "c2", "images": BAD.images}, ("EC2NodeClass default", "the image")),
    ],
)
def test_what_is_rolled_out_is_named(changed: dict[str, Any], named: tuple[str, ...]) -> None:
    assert GOOD.model_copy(update=changed).changed_from(GOOD) == named


def test_the_same_state_has_the_same_plan() -> None:
    one, other = drifted(WITH_APPROVAL), drifted(WITH_APPROVAL)
    one.evaluate()
    other.evaluate()
    assert one.plan == other.plan
    assert one.plan.startswith("web-")
