"""Who is dealt a slice of the capacity pools in a storm, and who is not."""

from collections import Counter
from typing import Any

import pytest

from tenure.controller.planning.nodeclaim_factory import assign_shards
from tenure.model.facts import Expression
from tenure.model.plan import PlannedNodeClaim

TYPES = tuple(f"t{number}" for number in range(20))
ZONES = ("a", "b", "c")


def planned(*more: Expression, kinds: tuple[str, ...] = ("on-demand", "spot"), **types: Any) -> PlannedNodeClaim:
    requirements = (
        Expression(key="karpenter.sh/capacity-type", operator="In", values=kinds),
        Expression(key="node.kubernetes.io/instance-type", operator="In", values=TYPES, **types),
        *more,
    )
    made = {"pool": "general", "pool_uid": "uid", "node_class": "default", "labels": {}, "annotations": {}}
    return PlannedNodeClaim.model_validate({**made, "requirements": requirements, "requests": {}})


def in_zones(*zones: str) -> Expression:
    return Expression(key="topology.kubernetes.io/zone", operator="In", values=zones)


def share(claims: list[PlannedNodeClaim]) -> list[int]:
    found = assign_shards(claims, lambda node_class: ZONES)
    assert None not in found
    return sorted(Counter(found).values())


def test_claims_that_are_alike_are_dealt_out_evenly() -> None:
    assert share([planned()] * 30) == [10, 10, 10]


def test_claims_that_are_each_another_are_dealt_out_too() -> None:
    assert share([planned(Expression(key=f"k{number}", operator="Exists")) for number in range(9)]) == [3, 3, 3]


def test_those_of_one_zone_are_divided_by_types() -> None:
    found = assign_shards([planned(in_zones("b"))] * 6, lambda node_class: ZONES)
    assert Counter(one.format() for one in found if one) == {"b/0/3": 2, "b/1/3": 2, "b/2/3": 2}


@pytest.mark.parametrize(
    "claim",
    [
        planned(kinds=("on-demand",)),
        planned(kinds=("reserved",)),
        planned(min_values=5),
        planned(Expression(key="topology.k8s.aws/zone-id", operator="In", values=("usw2-az1",))),
        planned(in_zones("elsewhere")),
    ],
    ids=["on demand", "reserved", "varied", "by zone id", "no zone"],
)
def test_those_that_no_slice_suits_ask_for_all(claim: PlannedNodeClaim) -> None:
    assert assign_shards([claim] * 3, lambda node_class: ZONES) == [None] * 3


def test_while_nothing_is_known_of_zones_all_is_asked_for() -> None:
    assert assign_shards([planned()] * 3, lambda node_class: ()) == [None] * 3
