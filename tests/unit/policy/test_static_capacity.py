"""Static NodePools: missing NodeClaims within limits, order of deletion, and backoff."""

from datetime import timedelta

import pytest

from tenure.model.extra_capacity import MovedPod, NodeLoad
from tenure.policy.static_capacity import (
    Candidate,
    decide_missing,
    eviction_cost,
    pause_after,
    remaining_lifetime_share,
    sort_for_deletion,
)
from tests.unit.policy.builders import NOW, after, before

ONE = NodeLoad(moved=(MovedPod(),))
TWO = NodeLoad(moved=(MovedPod(), MovedPod()))


def candidate(name: str, **fields: object) -> Candidate:
    return Candidate.model_validate({"name": name, "uid": f"uid-{name}", **fields})


@pytest.mark.parametrize(
    ("desired", "existing", "terminating", "limit", "create"),
    [
        pytest.param(3, 0, 0, None, 3, id="none exist"),
        pytest.param(3, 2, 5, None, 1, id="terminating ones are replaced early"),
        pytest.param(3, 3, 0, None, 0, id="all exist"),
        pytest.param(0, 0, 0, None, 0, id="none desired"),
        pytest.param(2, 3, 0, None, 0, id="too many"),
        pytest.param(10, 0, 0, 5, 5, id="up to the limit"),
        pytest.param(10, 5, 0, 5, 0, id="at the limit"),
        pytest.param(5, 4, 1, 5, 0, id="terminating one counts for the limit"),
        pytest.param(10, 7, 0, 5, 0, id="above a lowered limit"),
        pytest.param(3, 0, 0, 0, 0, id="limit zero"),
    ],
)
def test_missing_nodeclaims_within_the_limit(
    desired: int, existing: int, terminating: int, limit: int | None, create: int
) -> None:
    missing = decide_missing("default", desired=desired, existing=existing, terminating=terminating, limit=limit)
    assert missing.create == create
    assert bool(missing.waits_for) is (desired - existing > create)


def test_reached_limit_is_explained() -> None:
    why = decide_missing("default", desired=10, existing=3, terminating=1, limit=5).waits_for
    assert why == "limits.nodes=5 of NodePool default: 5 NodeClaims, 1 of them terminating, 10 wanted"


def test_deletion_order_is_unlaunched_empty_cheapest_protected() -> None:
    candidates = [
        candidate("annotated", do_not_disrupt=True),
        candidate("protected", load=NodeLoad(moved=(MovedPod(),), protected=True)),
        candidate("busier", load=TWO),
        candidate("busy", load=ONE),
        candidate("empty"),
        candidate("unlaunched", launched=False),
    ]
    order = [one.name for one in sort_for_deletion(candidates)]
    assert order == ["unlaunched", "empty", "busy", "busier", "annotated", "protected"]


def test_empty_node_with_a_protected_pod_is_deleted_last() -> None:
    """An example is a DaemonSet pod with do-not-disrupt."""
    order = sort_for_deletion([candidate("a", load=NodeLoad(protected=True)), candidate("b", load=TWO)])
    assert [one.name for one in order] == ["b", "a"]


def test_remaining_lifetime_reduces_the_eviction_cost() -> None:
    order = sort_for_deletion([candidate("new", load=ONE), candidate("old", load=TWO, remaining_lifetime_share=0.4)])
    assert [one.name for one in order] == ["old", "new"]


def test_equal_candidates_are_sorted_by_remaining_lifetime_and_name() -> None:
    order = sort_for_deletion(
        [
            candidate("c"),
            candidate("b"),
            candidate("a", remaining_lifetime_share=0.9),
            candidate("d", remaining_lifetime_share=0.2),
        ]
    )
    assert [one.name for one in order] == ["d", "a", "b", "c"]


@pytest.mark.parametrize(
    ("pod", "cost"),
    [
        (MovedPod(), 1.0),
        (MovedPod(deletion_cost=2**27), 2.0),
        (MovedPod(priority=2**25), 2.0),
        (MovedPod(priority=2_000_000_000), 10.0),
        (MovedPod(deletion_cost=-(2**31)), -10.0),
    ],
)
def test_eviction_cost_of_a_pod(pod: MovedPod, cost: float) -> None:
    assert eviction_cost(pod) == cost


def test_negative_deletion_cost_does_not_make_a_node_empty() -> None:
    cheap = NodeLoad(moved=(MovedPod(deletion_cost=-(2**31)),))
    assert [one.name for one in sort_for_deletion([candidate("busy", load=cheap), candidate("z")])] == ["z", "busy"]


def test_remaining_lifetime_share() -> None:
    assert remaining_lifetime_share(before(hours=1), after(hours=3), NOW) == 0.75
    assert remaining_lifetime_share(before(hours=5), before(hours=1), NOW) == 0.0
    assert remaining_lifetime_share(before(hours=1), None, NOW) == 1.0
    assert remaining_lifetime_share(None, after(hours=1), NOW) == 1.0


def test_backoff_starts_with_the_second_repeated_loss() -> None:
    assert [pause_after(times).total_seconds() for times in range(9)] == [0, 0, 10, 20, 40, 80, 160, 180, 180]
    assert pause_after(10_000) == timedelta(minutes=3)
