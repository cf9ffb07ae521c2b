"""Hostile pods do not take the place of ordinary pods in a plan."""

from benchmarks.hostile_pods import costly_pods, hostile_pods, plan_pods
from tenure.model.blockers import POD_UNPLANNABLE


def test_ordinary_pods_are_planned_next_to_as_many_hostile_pods() -> None:
    plan, ordinary, _ = plan_pods(1_000, 1_000)
    planned = {pod for claim in plan.claims for pod in claim.pods}
    assert ordinary <= planned
    assert not ordinary & {one.pod_uid for one in plan.unschedulable}


def test_ordinary_pods_are_planned_next_to_pods_whose_constraints_multiply() -> None:
    plan, ordinary, _ = plan_pods(1_000, 0, more=costly_pods())
    assert ordinary <= {pod for claim in plan.claims for pod in claim.pods}
    rejected = {one.pod_uid: one.code for one in plan.unschedulable}
    assert {uid.rpartition("-")[0] for uid in rejected} == {"costly-0", "costly-1", "costly-2"}
    assert {*rejected.values()} == {POD_UNPLANNABLE}


def test_hostile_pods_differ_in_many_fields() -> None:
    pods = hostile_pods(1_000)
    assert len(pods) == len({one.uid for one in pods}) == 1_000
    assert len({repr(one.model_copy(update={"uid": "", "name": ""})) for one in pods}) > 100
