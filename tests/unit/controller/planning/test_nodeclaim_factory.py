"""Names, objects, launch groups and offering shards of NodeClaims are determined by the plan."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.apis.nodeclaim import NodeClaim
from tenure.controller.planning.nodeclaim_factory import (
    MAX_GROUP_MEMBERS,
    assign_shards,
    claim_names,
    group_ids,
    launch_drafts,
    launch_hash,
)
from tenure.model.facts import Expression, NodeClaimFact, Taint
from tenure.model.instance_types import OfferingShard
from tenure.model.plan import PlannedNodeClaim
from tenure.scheduling.nodeclaim_template import build_nodeclaim

TYPES = Expression(key="node.kubernetes.io/instance-type", operator="In", values=("m5.large",))


def planned_nodeclaim(**more: Any) -> PlannedNodeClaim:
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


def test_launch_hash_differs_for_different_launches() -> None:
    created_at = datetime(2026, 1, 1, tzinfo=UTC)
    one = NodeClaimFact(name="a", uid="uid-a", created=created_at, pool="p", node_class="c", labels={"team": "x"})
    assert launch_hash(one) == launch_hash(one.model_copy(update={"name": "b", "uid": "uid-b"})) != ""
    others: list[dict[str, Any]] = [
        {"labels": {"team": "y"}},
        {"node_class": "d"},
        {"requests": {"cpu": 1000}},
        {"taints": (Taint(key="k", value="v", effect="NoSchedule"),)},
        {"startup_taints": (Taint(key="k", value="v", effect="NoSchedule"),)},
        {"requirements": (Expression(key="k", operator="In", values=("v",)),)},
        {"annotations": {"karpenter.sh/requested-dra-drivers": "dra.net"}},
    ]
    hashes = {launch_hash(one.model_copy(update=other)) for other in others}
    assert len(hashes) == len(others) and launch_hash(one) not in hashes


def test_nodeclaim_with_instance_has_no_launch_hash() -> None:
    created_at = datetime(2026, 1, 1, tzinfo=UTC)
    one = NodeClaimFact(name="a", uid="uid-a", created=created_at, pool="p")
    assert launch_hash(one.model_copy(update={"provider_id": "aws:///a/i-1"})) == ""


def test_nodeclaim_of_a_plan_has_the_launch_hash_of_an_equal_one() -> None:
    """The plan may have left it out of its launch group, since the response to its creation was lost."""
    one = NodeClaimFact(name="a", uid="uid-a", created=datetime(2026, 1, 1, tzinfo=UTC), pool="p")
    planned = one.model_copy(update={"annotations": {"tenure.sh/launch-group": "g"}})
    assert launch_hash(planned) == launch_hash(one) != ""


def test_names_are_unique_and_determined_by_the_plan() -> None:
    claims = [planned_nodeclaim(), planned_nodeclaim(), planned_nodeclaim(pool="gpu")]
    names = claim_names("plan-1", claims)
    assert names == claim_names("plan-1", claims) and len(set(names)) == 3
    assert names[0].startswith("general-") and names[2].startswith("gpu-")
    assert not set(names) & set(claim_names("plan-2", claims))


def test_name_is_a_valid_label_value_for_long_pool_names() -> None:
    assert len(claim_names("p", [planned_nodeclaim(pool="p" * 63)])[0]) <= 63


def test_nodeclaims_with_different_launch_templates_have_different_groups() -> None:
    plain, with_efa = planned_nodeclaim(), planned_nodeclaim(requests={"cpu": 1500, "vpc.amazonaws.com/efa": 1})
    more = planned_nodeclaim(requests={"cpu": 2000, "vpc.amazonaws.com/efa": 2})
    assert group_ids("p", [plain, with_efa, more]) == ["p-0", "p-1", "p-1"]


def test_nodeclaims_with_devices_of_the_same_drivers_share_a_group() -> None:
    drivers = {"karpenter.sh/requested-dra-drivers": "dra.net"}
    claims = [planned_nodeclaim(annotations=drivers, devices={"devices of nic": count}) for count in (1, 2)]
    assert group_ids("p", [planned_nodeclaim(), *claims]) == ["p-0", "p-1", "p-1"]


def test_nodeclaims_with_equal_launches_share_a_group() -> None:
    claims = [
        planned_nodeclaim(),
        planned_nodeclaim(requests={"cpu": 1}),
        planned_nodeclaim(pods=("x",)),
        planned_nodeclaim(labels={"team": "b"}),
    ]
    assert group_ids("p", claims) == ["p-0", "p-0", "p-0", "p-1"]


def test_shards_have_separate_groups_and_are_read_back_from_nodeclaims() -> None:
    """An interrupted plan reads the shards of existing NodeClaims."""
    a, b = OfferingShard(zone="a"), OfferingShard(zone="b", part=1, parts=2)
    groups = group_ids("p", [planned_nodeclaim()] * 5, [a, b, a, b, None])
    assert groups == ["p-0", "p-1", "p-0", "p-1", "p-2"]
    found = []
    for number, one in enumerate((a, b, None)):
        built = build_nodeclaim(
            planned_nodeclaim(), name=f"x{number}", plan_id="p", group_id=f"p-{number}", offering_shard=one
        ).to_object()
        built["metadata"]["uid"] = f"uid-{number}"
        found.append(NodeClaim.from_object(built))
    assert [one.offering_shard for one in launch_drafts(found)] == [a, b, None]


def test_requests_decide_the_group_without_instance_types() -> None:
    assert group_ids(
        "p", [planned_nodeclaim(requirements=()), planned_nodeclaim(requirements=(), requests={"cpu": 1})]
    ) == ["p-0", "p-1"]


def test_group_size_is_limited() -> None:
    groups = group_ids("p", [planned_nodeclaim()] * (MAX_GROUP_MEMBERS + 1) + [planned_nodeclaim(labels={})])
    assert groups[MAX_GROUP_MEMBERS - 1 :] == ["p-0", "p-1", "p-2"]


def test_nodeclaim_object_has_all_fields_of_the_plan() -> None:
    claim = planned_nodeclaim(
        taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),),
        startup_taints=(Taint(key="cni", effect="NoExecute"),),
        termination_grace_period="1h",
    )
    built = build_nodeclaim(claim, name="general-x", plan_id="p", group_id="p-0").to_object()
    metadata, spec = built["metadata"], built["spec"]
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
def test_unset_field_is_not_written(field: str) -> None:
    built = build_nodeclaim(planned_nodeclaim(), name="x", plan_id="p", group_id="p-0").to_object()
    assert field not in built["spec"]


def test_launch_drafts_order_members_by_uid() -> None:
    claims = []
    for name, uid, group in (("a", "3", "p-0"), ("b", "1", "p-0"), ("c", "2", "p-1")):
        built = build_nodeclaim(planned_nodeclaim(), name=name, plan_id="p", group_id=group)
        claims.append(built.model_copy(update={"metadata": built.metadata.model_copy(update={"uid": uid})}))
    first, second = launch_drafts(claims)
    assert (first.group_id, first.pool, first.node_class) == ("p-0", "general", "default")
    assert [member.name for member in first.members] == ["b", "a"]
    assert [member.name for member in second.members] == ["c"]


MANY_TYPES = tuple(f"t{number}" for number in range(20))
ZONES = ("a", "b", "c")


def planned_with_types(
    *more: Expression, kinds: tuple[str, ...] = ("on-demand", "spot"), **types: Any
) -> PlannedNodeClaim:
    requirements = (
        Expression(key="karpenter.sh/capacity-type", operator="In", values=kinds),
        Expression(key="node.kubernetes.io/instance-type", operator="In", values=MANY_TYPES, **types),
        *more,
    )
    fields = {"pool": "general", "pool_uid": "uid", "node_class": "default", "labels": {}, "annotations": {}}
    return PlannedNodeClaim.model_validate({**fields, "requirements": requirements, "requests": {}})


def in_zones(*zones: str) -> Expression:
    return Expression(key="topology.kubernetes.io/zone", operator="In", values=zones)


def count_per_shard(claims: list[PlannedNodeClaim]) -> list[int]:
    found = assign_shards(claims, lambda node_class: ZONES)
    assert None not in found
    return sorted(Counter(found).values())


def test_equal_nodeclaims_are_assigned_evenly_to_shards() -> None:
    assert count_per_shard([planned_with_types()] * 30) == [10, 10, 10]


def test_different_nodeclaims_are_assigned_evenly_to_shards() -> None:
    assert count_per_shard(
        [planned_with_types(Expression(key=f"k{number}", operator="Exists")) for number in range(9)]
    ) == [
        3,
        3,
        3,
    ]


def test_nodeclaims_of_one_zone_are_sharded_by_instance_type() -> None:
    found = assign_shards([planned_with_types(in_zones("b"))] * 6, lambda node_class: ZONES)
    assert Counter(one.format() for one in found if one) == {"b/0/3": 2, "b/1/3": 2, "b/2/3": 2}


@pytest.mark.parametrize(
    "claim",
    [
        planned_with_types(kinds=("on-demand",)),
        planned_with_types(kinds=("reserved",)),
        planned_with_types(min_values=5),
        planned_with_types(Expression(key="topology.k8s.aws/zone-id", operator="In", values=("usw2-az1",))),
        planned_with_types(in_zones("elsewhere")),
    ],
    ids=["on-demand only", "reserved only", "minValues", "zone ID", "unknown zone"],
)
def test_nodeclaim_that_fits_no_shard_has_none(claim: PlannedNodeClaim) -> None:
    assert assign_shards([claim] * 3, lambda node_class: ZONES) == [None] * 3


def test_no_shard_is_assigned_while_zones_are_unknown() -> None:
    assert assign_shards([planned_with_types()] * 3, lambda node_class: ()) == [None] * 3
