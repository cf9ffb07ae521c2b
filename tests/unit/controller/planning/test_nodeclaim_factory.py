"""Names, objects, launch groups and offering shards: all of them determined by the plan."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.apis.nodeclaim import NodeClaim
from tenure.controller.planning.nodeclaim_factory import (
    MAX_GROUP_MEMBERS,
    assign_shards,
    build_nodeclaim,
    claim_names,
    group_ids,
    launch_drafts,
    launch_hash,
)
from tenure.model.facts import Expression, NodeClaimFact, Taint
from tenure.model.instance_types import OfferingShard
from tenure.model.plan import PlannedNodeClaim

TYPES = Expression(key="node.kubernetes.io/instance-type", operator="In", values=("m5.large",))


def planned(**more: Any) -> PlannedNodeClaim:
    fields: dict[str, Any] = {
        "pool": "general",
        "pool_uid": "uid-general",
        "node_class": "default",
        "labels": {"team": "a"},
        "annotations": {"karpenter.sh/nodepool-hash": "7"},
        "requirements": (TYPES,),
        "requests": {"cpu": 1500, "memory": 2**30},
    }
    return PlannedNodeClaim.model_validate({**fields, **more})


def test_claims_are_alike_only_if_their_launches_would_be() -> None:
    born = datetime(2026, 1, 1, tzinfo=UTC)
    one = NodeClaimFact(name="a", uid="uid-a", created=born, pool="p", node_class="c", labels={"team": "x"})
    assert launch_hash(one) == launch_hash(one.model_copy(update={"name": "b", "uid": "uid-b"})) != ""
    others: list[dict[str, Any]] = [
        {"labels": {"team": "y"}},
        {"node_class": "d"},
        {"requests": {"cpu": 1000}},
        {"taints": (Taint(key="k", value="v", effect="NoSchedule"),)},
        {"startup_taints": (Taint(key="k", value="v", effect="NoSchedule"),)},
        {"requirements": (Expression(key="k", operator="In", values=("v",)),)},
    ]
    hashes = {launch_hash(one.model_copy(update=other)) for other in others}
    assert len(hashes) == len(others) and launch_hash(one) not in hashes


def test_a_claim_that_has_an_instance_or_a_group_joins_nobody() -> None:
    born = datetime(2026, 1, 1, tzinfo=UTC)
    one = NodeClaimFact(name="a", uid="uid-a", created=born, pool="p")
    assert launch_hash(one.model_copy(update={"provider_id": "aws:///a/i-1"})) == ""
    assert launch_hash(one.model_copy(update={"annotations": {"tenure.sh/launch-group": "g"}})) == ""


def test_the_same_plan_gives_the_same_names_and_another_plan_others() -> None:
    claims = [planned(), planned(), planned(pool="gpu")]
    names = claim_names("plan-1", claims)
    assert names == claim_names("plan-1", claims) and len(set(names)) == 3
    assert names[0].startswith("general-") and names[2].startswith("gpu-")
    assert not set(names) & set(claim_names("plan-2", claims))


def test_a_name_is_a_label_value_however_long_the_pools_is() -> None:
    assert len(claim_names("p", [planned(pool="p" * 63)])[0]) <= 63


def test_claims_whose_launch_templates_differ_do_not_launch_together() -> None:
    plain, sandboxed = planned(), planned(requests={"cpu": 1500, "eks.amazonaws.com/nitro-sandbox": 1})
    more = planned(requests={"cpu": 2000, "eks.amazonaws.com/nitro-sandbox": 2})
    assert group_ids("p", [plain, sandboxed, more]) == ["p-0", "p-1", "p-1"]


def test_claims_that_ask_for_the_same_launch_together() -> None:
    claims = [planned(), planned(requests={"cpu": 1}), planned(pods=("x",)), planned(labels={"team": "b"})]
    assert group_ids("p", claims) == ["p-0", "p-0", "p-0", "p-1"]


def test_slices_of_a_storm_launch_apart_and_stand_on_their_claims() -> None:
    """From where a plan that was cut off takes them."""
    a, b = OfferingShard(zone="a"), OfferingShard(zone="b", part=1, parts=2)
    groups = group_ids("p", [planned()] * 5, [a, b, a, b, None])
    assert groups == ["p-0", "p-1", "p-0", "p-1", "p-2"]
    found = []
    for number, one in enumerate((a, b, None)):
        made = build_nodeclaim(
            planned(), name=f"x{number}", plan_id="p", group_id=f"p-{number}", offering_shard=one
        ).to_object()
        made["metadata"]["uid"] = f"uid-{number}"
        found.append(NodeClaim.from_object(made))
    assert [one.offering_shard for one in launch_drafts(found)] == [a, b, None]


def test_without_instance_types_the_amounts_decide_the_launch() -> None:
    assert group_ids("p", [planned(requirements=()), planned(requirements=(), requests={"cpu": 1})]) == ["p-0", "p-1"]


def test_a_group_does_not_grow_without_end() -> None:
    groups = group_ids("p", [planned()] * (MAX_GROUP_MEMBERS + 1) + [planned(labels={})])
    assert groups[MAX_GROUP_MEMBERS - 1 :] == ["p-0", "p-1", "p-2"]


def test_the_object_carries_all_that_its_life_needs() -> None:
    claim = planned(
        taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),),
        startup_taints=(Taint(key="cni", effect="NoExecute"),),
        termination_grace_period="1h",
    )
    made = build_nodeclaim(claim, name="general-x", plan_id="p", group_id="p-0").to_object()
    metadata, spec = made["metadata"], made["spec"]
    assert metadata["finalizers"] == ["karpenter.sh/termination"]
    assert metadata["labels"] == {
        "team": "a",
        "karpenter.sh/nodepool": "general",
        "karpenter.k8s.aws/ec2nodeclass": "default",
    }
    assert metadata["annotations"]["tenure.sh/plan"] == "p"
    assert metadata["annotations"]["tenure.sh/launch-group"] == "p-0"
    assert metadata["ownerReferences"][0] | {"uid": "uid-general", "kind": "NodePool"} == metadata["ownerReferences"][0]
    assert spec["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}
    assert spec["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert spec["startupTaints"] == [{"key": "cni", "effect": "NoExecute"}]
    assert (spec["expireAfter"], spec["terminationGracePeriod"]) == ("720h", "1h")


@pytest.mark.parametrize("field", ["taints", "startupTaints", "terminationGracePeriod"])
def test_what_is_not_asked_for_is_not_written(field: str) -> None:
    made = build_nodeclaim(planned(), name="x", plan_id="p", group_id="p-0").to_object()
    assert field not in made["spec"]


def test_drafts_hand_out_members_in_order_of_uid() -> None:
    claims = []
    for name, uid, group in (("a", "3", "p-0"), ("b", "1", "p-0"), ("c", "2", "p-1")):
        made = build_nodeclaim(planned(), name=name, plan_id="p", group_id=group)
        claims.append(made.model_copy(update={"metadata": made.metadata.model_copy(update={"uid": uid})}))
    first, second = launch_drafts(claims)
    assert (first.group_id, first.pool, first.node_class) == ("p-0", "general", "default")
    assert [member.name for member in first.members] == ["b", "a"]
    assert [member.name for member in second.members] == ["c"]


MANY_TYPES = tuple(f"t{number}" for number in range(20))
ZONES = ("a", "b", "c")


def planned_types(*more: Expression, kinds: tuple[str, ...] = ("on-demand", "spot"), **types: Any) -> PlannedNodeClaim:
    requirements = (
        Expression(key="karpenter.sh/capacity-type", operator="In", values=kinds),
        Expression(key="node.kubernetes.io/instance-type", operator="In", values=MANY_TYPES, **types),
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
    assert share([planned_types()] * 30) == [10, 10, 10]


def test_claims_that_are_each_another_are_dealt_out_too() -> None:
    assert share([planned_types(Expression(key=f"k{number}", operator="Exists")) for number in range(9)]) == [
        3,
        3,
        3,
    ]


def test_those_of_one_zone_are_divided_by_types() -> None:
    found = assign_shards([planned_types(in_zones("b"))] * 6, lambda node_class: ZONES)
    assert Counter(one.format() for one in found if one) == {"b/0/3": 2, "b/1/3": 2, "b/2/3": 2}


@pytest.mark.parametrize(
    "claim",
    [
        planned_types(kinds=("on-demand",)),
        planned_types(kinds=("reserved",)),
        planned_types(min_values=5),
        planned_types(Expression(key="topology.k8s.aws/zone-id", operator="In", values=("usw2-az1",))),
        planned_types(in_zones("elsewhere")),
    ],
    ids=["on demand", "reserved", "varied", "by zone id", "no zone"],
)
def test_those_that_no_slice_suits_ask_for_all(claim: PlannedNodeClaim) -> None:
    assert assign_shards([claim] * 3, lambda node_class: ZONES) == [None] * 3


def test_while_nothing_is_known_of_zones_all_is_asked_for() -> None:
    assert assign_shards([planned_types()] * 3, lambda node_class: ()) == [None] * 3
