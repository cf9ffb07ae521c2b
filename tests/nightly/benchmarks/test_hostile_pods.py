"""Hostile pods do not take the place of ordinary pods in a plan."""

from benchmarks.hostile_pods import hostile_pods, plan_pods


def test_ordinary_pods_are_planned_next_to_as_many_hostile_pods() -> None:
    plan, ordinary, _ = plan_pods(1_000, 1_000)
    planned = {pod for claim in plan.claims for pod in claim.pods}
    assert ordinary <= planned
    assert not ordinary & {one.pod_uid for one in plan.unschedulable}


def test_hostile_pods_differ_in_many_fields() -> None:
    pods = hostile_pods(1_000)
    assert len(pods) == len({one.uid for one in pods}) == 1_000
    assert len({repr(one.model_copy(update={"uid": "", "name": ""})) for one in pods}) > 100
