"""Static pools: how many NodeClaims are missing under a limit, which go first, and when to wait."""

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
        pytest.param(3, 0, 0, None, 3, id="none are there"),
        pytest.param(3, 2, 5, None, 1, id="those that go are replaced before they are gone"),
        pytest.param(3, 3, 0, None, 0, id="all are there"),
        pytest.param(0, 0, 0, None, 0, id="none are wanted"),
        pytest.param(2, 3, 0, None, 0, id="too many"),
        pytest.param(10, 0, 0, 5, 5, id="up to the limit"),
        pytest.param(10, 5, 0, 5, 0, id="at the limit"),
        pytest.param(5, 4, 1, 5, 0, id="one that goes holds the limit"),
        pytest.param(10, 7, 0, 5, 0, id="above a limit that was lowered"),
        pytest.param(3, 0, 0, 0, 0, id="a limit of none"),
    ],
)
def test_what_is_missing(desired: int, existing: int, terminating: int, limit: int | None, create: int) -> None:
    missing = decide_missing("default", desired=desired, existing=existing, terminating=terminating, limit=limit)
    assert missing.create == create
    assert bool(missing.waits_for) is (desired - existing > create)


def test_a_limit_is_named_with_what_holds_it() -> None:
    why = decide_missing("default", desired=10, existing=3, terminating=1, limit=5).waits_for
    assert why == "limits.nodes=5 of NodePool default: 5 NodeClaims, 1 of them terminating, 10 wanted"


def test_first_go_those_that_are_not_launched_then_empty_ones_then_the_cheapest_and_last_what_is_protected() -> None:
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


def test_an_empty_node_with_a_protected_pod_goes_with_the_last() -> None:
    """As one with a DaemonSet's pod that must not be disturbed."""
    order = sort_for_deletion([candidate("a", load=NodeLoad(protected=True)), candidate("b", load=TWO)])
    assert [one.name for one in order] == ["b", "a"]


def test_moving_two_pods_off_a_node_that_soon_expires_is_cheaper_than_one_off_a_new_one() -> None:
    order = sort_for_deletion([candidate("new", load=ONE), candidate("old", load=TWO, remaining_lifetime_share=0.4)])
    assert [one.name for one in order] == ["old", "new"]


def test_of_equals_the_one_with_less_life_left_goes_and_then_by_name() -> None:
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
def test_what_an_eviction_costs(pod: MovedPod, cost: float) -> None:
    assert eviction_cost(pod) == cost


def test_a_pod_that_is_cheaper_than_nothing_makes_no_node_empty() -> None:
    cheap = NodeLoad(moved=(MovedPod(deletion_cost=-(2**31)),))
    assert [one.name for one in sort_for_deletion([candidate("busy", load=cheap), candidate("z")])] == ["z", "busy"]


def test_the_share_of_life_that_is_left() -> None:
    assert remaining_lifetime_share(before(hours=1), after(hours=3), NOW) == 0.75
    assert remaining_lifetime_share(before(hours=5), before(hours=1), NOW) == 0.0
    assert remaining_lifetime_share(before(hours=1), None, NOW) == 1.0
    assert remaining_lifetime_share(None, after(hours=1), NOW) == 1.0


def test_a_single_loss_is_replaced_at_once_and_repeated_ones_ever_more_slowly() -> None:
    assert [pause_after(times).total_seconds() for times in range(9)] == [0, 0, 10, 20, 40, 80, 160, 180, 180]
    assert pause_after(10_000) == timedelta(minutes=3)
