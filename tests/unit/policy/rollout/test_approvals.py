"""Approval and rejection of plans, their expiration, and stale plans."""

from typing import Any

import pytest

from tenure.model.rollout import ApproveRollout, Image
from tenure.policy.rollout.plan import rejection_reason
from tests.unit.policy.rollout.rollout_builders import BAD, GOOD, WAVES, FakeNodePool, drifted

WITH_APPROVAL = {**WAVES, "approval": {"required": True, "expires": "4h"}}


def test_no_node_is_disrupted_before_the_plan_is_approved() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.play("step 0; explains wave 1 of 3 of the rollout of the image")
    assert pool.explains(f"waits for approval until 2026-06-01T16:00Z: tenure approve {pool.plan}")
    pool.play("approve; step 1")


def test_each_wave_has_its_own_plan() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    first = pool.plan
    pool.play("approve; step; wait 10m; step 0")
    assert pool.plan not in ("", first)
    assert "outdated" in pool.approve(plan=first)
    pool.play("approve; step 1")


def test_expired_plan_is_replaced_by_a_plan_with_another_name() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    first = pool.plan
    pool.wait(hours=4)
    assert pool.plan != first
    assert f"the current plan is {pool.plan}" in pool.approve(plan=first)
    assert pool.event_reasons().count("RolloutWaits") == 2


def test_approval_expires_with_its_plan() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.play("wait 3h; approve; wait 3h; headroom 1; wait 1h; headroom 0")


@pytest.mark.parametrize(("nodes", "stale"), [(12, False), (13, True), (8, False), (7, True)])
def test_plan_is_stale_after_the_node_count_changed(nodes: int, stale: bool) -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    plan = pool.plan
    pool.approve()
    pool.old = {f"n{number}": GOOD for number in range(nodes)}
    assert (pool.evaluate().headroom == 0) == stale
    assert (pool.plan != plan) == stale


def test_nodes_disrupted_by_the_plan_do_not_make_it_stale() -> None:
    pool = drifted({"approval": {"required": True, "staleAfter": "0%"}})
    pool.play("evaluate; approve; grant 5; arrive; step 5")


def test_approval_applies_only_to_its_target() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    first = pool.plan
    pool.approve()
    pool.set_target(BAD.model_copy(update={"images": (Image(id="ami-other"),)}))
    assert pool.evaluate().headroom == 0
    assert pool.approve(plan=first)


def test_two_approvals_need_two_names() -> None:
    pool = drifted({"approval": {"required": True, "approvers": 2}})
    pool.play(
        "evaluate; approve ann; approve ann; explains waits for 2 approvals (approved by ann); approve ben; headroom 10"
    )


def test_rejected_plan_waits_until_it_is_approved() -> None:
    pool = drifted(WITH_APPROVAL)
    pool.evaluate()
    plan = pool.plan
    pool.play("approve; reject ben; wait 30h")
    assert pool.explains(
        f"rejected by ben at 2026-06-01T12:00Z, 0 of 10 nodes replaced, 0 in progress: no. To "
        f"decide: tenure approve {plan} continues"
    )
    assert pool.approve("ann", plan) == ""
    assert pool.evaluate().headroom == 1


def test_rollout_without_approval_can_be_rejected() -> None:
    pool = drifted()
    pool.play("step; reject; step 0; overdue True; approve; wait 10m; headroom 1")


def test_approved_halt_continues_and_a_second_halt_has_another_plan() -> None:
    pool = drifted()
    pool.play("step; unhealthy; wait 2m")
    first = pool.plan
    assert pool.approve() == ""
    assert pool.state.counted_from == pool.now, "earlier failed starts are no longer counted"
    pool.play("wait 1m; halted False; wait 2m; halted True")
    assert pool.plan != first
    assert "outdated" in pool.approve(plan=first), "a decision on the first halt does not apply to the second"


def test_rejection_with_roll_back_requires_a_changed_image_only() -> None:
    pool = drifted()
    pool.step()
    assert pool.reject(roll_back=True) == ""
    found = pool.evaluate()
    assert found.roll_back is not None
    assert found.roll_back.images == {"ami-bad": "ami-good"}

    other = FakeNodePool(WAVES).set_target(BAD.model_copy(update={"class_hash": "c2"}))
    other.step()
    assert "cannot be rolled back: more than the image has changed" in other.reject(roll_back=True)


def test_decision_on_an_unknown_plan_or_without_name_is_rejected() -> None:
    pool = FakeNodePool(WAVES)
    rejection = pool.approve(plan="web-0")
    assert rejection.startswith("plan 'web-0' is unknown or outdated: no rollout is in progress; `tenure stuck`")
    pool.play("target bad; evaluate")
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
def test_changes_of_a_target_are_named(changed: dict[str, Any], named: tuple[str, ...]) -> None:
    assert GOOD.model_copy(update=changed).changed_from(GOOD) == named


def test_equal_states_have_equal_plans() -> None:
    one, other = drifted(WITH_APPROVAL), drifted(WITH_APPROVAL)
    one.evaluate()
    other.evaluate()
    assert one.plan == other.plan
    assert one.plan.startswith("web-")
