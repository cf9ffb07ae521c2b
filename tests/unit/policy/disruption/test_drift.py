"""When a node has drifted, reason by reason: what counts, what does not, and what is not known."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION
from tenure.model.requirements import Requirements
from tenure.policy.disruption.drift import Drift
from tests.unit.policy.builders import NOW
from tests.unit.policy.drift_builders import (
    STAMPS,
    a_type,
    claim,
    drift_of,
    facts,
    instance,
    listed,
    node_class,
    offering,
    pool,
    reason,
    with_hashes,
    with_labels,
)

YOUNG = NOW - timedelta(minutes=59)
OTHERS_CLASS = {labels.NODECLASS_HASH: "33", labels.NODECLASS_HASH_VERSION: "v6"}
IN_BLOCK = instance(capacity_type="reserved", reservation_id="cr-1")
LINUX = ("kubernetes.io/os", "Exists", ())

OLD_IMAGE, OLD_CLASS = claim(image_id="ami-old"), with_hashes(NODECLASS_HASH="21")
NEW_TEMPLATE, OTHER_ZONE = pool(template="12"), pool((labels.ZONE, "In", ("us-west-2b",)))
IN_GROUP, OTHER_SUBNET = with_labels(PLACEMENT_GROUP_ID="pg-1"), node_class(subnets=[{"id": "subnet-b"}])
SOLD_ELSEWHERE = a_type(offerings=(offering("us-west-2b", "spot"),))
ON_DEMAND_ONLY = listed(
    a_type(labels={labels.CAPACITY_TYPE: ("on-demand",)}, offerings=(offering("us-west-2a", "on-demand"),))
)

DRIFTED: dict[str, tuple[str, dict[str, Any]]] = {
    "the pool's template changed": ("NodePoolDrifted", {"pool": NEW_TEMPLATE}),
    "the pool no longer takes its zone": ("RequirementsDrifted", {"pool": OTHER_ZONE}),
    "the pool asks for a label that the node lacks": ("RequirementsDrifted", {"pool": pool(LINUX)}),
    "the pool asks for a well-known label that the node lacks": (
        "RequirementsDrifted",
        {"pool": pool((labels.INSTANCE_GPU_COUNT, "Exists", ()))},
    ),
    "the pool forbids a label that the node has": (
        "RequirementsDrifted",
        {"pool": pool((labels.ARCH, "DoesNotExist", ()))},
    ),
    "a reserved node that became on-demand, in a pool of reserved ones": (
        "RequirementsDrifted",
        {"claim": with_labels(CAPACITY_TYPE="on-demand"), "pool": pool((labels.CAPACITY_TYPE, "In", ("reserved",)))},
    ),
    "EC2 lists other types only": ("InstanceTypeNotFound", {"types": listed(a_type("m7i.large"))}),
    "EC2 sells the type in other zones only": ("InstanceTypeNotFound", {"types": listed(SOLD_ELSEWHERE)}),
    "EC2 sells the type on-demand only": ("InstanceTypeNotFound", {"types": ON_DEMAND_ONLY}),
    "the class changed, and was resolved": (
        "NodeClassDrift",
        {"claim": OLD_CLASS, "node_class": node_class(generation=2, resolved=2)},
    ),
    "the class changed": ("NodeClassDrift", {"claim": OLD_CLASS}),
    "another version of the hash, on both": (
        "NodeClassDrift",
        {
            "claim": with_hashes(NODECLASS_HASH="21", NODECLASS_HASH_VERSION="v6"),
            "node_class": node_class(stamps=OTHERS_CLASS),
        },
    ),
    "a newer image": ("AMIDrift", {"claim": OLD_IMAGE}),
    "no image fits the type any more": ("AMIDrift", {"types": listed(a_type(image_id=""))}),
    "a security group was removed": ("SecurityGroupDrift", {"node_class": node_class(securityGroups=[{"id": "sg-1"}])}),
    "a security group was added": (
        "SecurityGroupDrift",
        {"node_class": node_class(securityGroups=[{"id": "sg-1"}, {"id": "sg-2"}, {"id": "sg-3"}])},
    ),
    "its subnet is not selected": ("SubnetDrift", {"node_class": OTHER_SUBNET}),
    "its reservation is not selected": (
        "CapacityReservationDrift",
        {"instance": IN_BLOCK, "node_class": node_class(capacityReservations=[{"id": "cr-2"}])},
    ),
    "no reservation is selected": ("CapacityReservationDrift", {"instance": IN_BLOCK}),
    "the class selects no placement group": ("PlacementGroupDrift", {"claim": IN_GROUP}),
    "the class selects another placement group": (
        "PlacementGroupDrift",
        {
            "claim": IN_GROUP,
            "node_class": node_class(group="pg-2"),
            "types": listed(a_type(labels={labels.PLACEMENT_GROUP_ID: ("pg-2",)})),
        },
    ),
    "a subnet goes before a placement group": ("SubnetDrift", {"claim": IN_GROUP, "node_class": OTHER_SUBNET}),
}

NOT_DRIFTED: dict[str, dict[str, Any]] = {
    "all is as it was": {},
    "not launched yet": {"claim": claim(launched=False, image_id="ami-old")},
    "being deleted": {"claim": claim(deleting=True, image_id="ami-old")},
    "standalone": {"claim": claim(pool="", image_id="ami-old")},
    "no NodePool": {"claim": OLD_IMAGE, "pool": None},
    "no EC2NodeClass": {"claim": OLD_IMAGE, "node_class": None},
    "the class is being deleted": {"claim": OLD_IMAGE, "node_class": node_class(deleting=True)},
    "no hash of the pool on the node": {"claim": with_hashes(NODEPOOL_HASH=""), "pool": NEW_TEMPLATE},
    "no version of it": {"claim": with_hashes(NODEPOOL_HASH_VERSION=""), "pool": NEW_TEMPLATE},
    "another version of the pool's hash": {"claim": with_hashes(NODEPOOL_HASH_VERSION="v3"), "pool": NEW_TEMPLATE},
    "no hash on the class": {"claim": OLD_CLASS, "node_class": node_class(stamps={})},
    "another version of the class's hash": {"claim": with_hashes(NODECLASS_HASH_VERSION="v6", NODECLASS_HASH="21")},
    "the class has another version": {"node_class": node_class(stamps=OTHERS_CLASS)},
    "the class is not resolved yet as it is now": {
        "claim": OLD_CLASS,
        "node_class": node_class(generation=2, resolved=1),
    },
    "what the pool forbids, the node lacks": {
        "pool": pool((labels.INSTANCE_GPU_COUNT, "DoesNotExist", ()), (labels.ZONE, "NotIn", ("us-west-2b",)))
    },
    "an older name of the zone's label": {
        "pool": pool(("failure-domain.beta.kubernetes.io/zone", "In", ("us-west-2a",)))
    },
    "requirements that mean nothing": {"pool": pool((labels.ZONE, "Near", ("us-west-2b",)))},
    "the type is gone, the node is young": {"claim": claim(created=YOUNG), "types": {"m6i.large": SOLD_ELSEWHERE}},
    "EC2 has no capacity just now": {
        "types": listed(a_type(offerings=(offering("us-west-2a", "spot", available=False),)))
    },
    "no price of spot in its zone": {
        "types": listed(a_type(offerings=(offering("us-west-2a", "on-demand"), offering("us-west-2b", "spot"))))
    },
    "no offering is known at all": {"types": listed(a_type(offerings=()))},
    "a reserved node of a type that is sold on-demand": {
        "claim": with_labels(CAPACITY_TYPE="reserved"),
        "types": ON_DEMAND_ONLY,
    },
    "no instance types are known": {"claim": OLD_IMAGE, "types": None},
    "EC2 listed no instance type at all": {"claim": OLD_IMAGE, "types": {}},
    "the node's type is not known": {
        "claim": claim(created=YOUNG, image_id="ami-old"),
        "types": listed(a_type("m7i.large")),
    },
    "the node does not say its image": {"claim": claim(image_id="")},
    "the class found no image": {"claim": OLD_IMAGE, "node_class": node_class(amis=[])},
    "the class found no security group": {"node_class": node_class(securityGroups=[])},
    "the class found no subnet": {"node_class": node_class(subnets=[])},
    "the instance is not known": {
        "instance": None,
        "node_class": node_class(subnets=[{"id": "subnet-x"}], securityGroups=[{"id": "sg-x"}]),
    },
    "EC2 does not tell its network yet": {"instance": instance(subnet_id="", security_group_ids=())},
    "the instance is ending": {
        "instance": instance(state="shutting-down", subnet_id="subnet-x", security_group_ids=("sg-x",))
    },
    "its groups in another order": {"instance": instance(security_group_ids=("sg-2", "sg-1"))},
    "no reservation": {"node_class": node_class(capacityReservations=[{"id": "cr-1"}])},
    "its reservation is selected": {
        "instance": IN_BLOCK,
        "node_class": node_class(capacityReservations=[{"id": "cr-1"}]),
    },
    "reservations were not asked for yet": {"instance": IN_BLOCK, "node_class": node_class(reservations_ready="")},
    "reservations could not be asked for": {
        "instance": IN_BLOCK,
        "node_class": node_class(reservations_ready="Unknown"),
    },
    "its placement group is selected": {
        "claim": IN_GROUP,
        "node_class": node_class(group="pg-1"),
        "types": listed(a_type(labels={labels.PLACEMENT_GROUP_ID: ("pg-1",)})),
    },
    "the class's placement group is not known": {"claim": IN_GROUP, "node_class": node_class(group="pg-2")},
}


@pytest.mark.parametrize("case", DRIFTED.values(), ids=DRIFTED)
def test_a_node_drifts(case: tuple[str, dict[str, Any]]) -> None:
    expected, changed = case
    assert reason(**changed) == expected


@pytest.mark.parametrize("changed", NOT_DRIFTED.values(), ids=NOT_DRIFTED)
def test_a_node_does_not_drift(changed: dict[str, Any]) -> None:
    assert drift_of(**changed) is None


ALL_AT_ONCE: dict[str, Any] = {
    "claim": claim(image_id="ami-old", labels=IN_GROUP.labels, annotations={**STAMPS, labels.NODECLASS_HASH: "21"}),
    "pool": pool((labels.ZONE, "In", ("us-west-2b",)), template="12"),
    "types": listed(SOLD_ELSEWHERE),
    "node_class": node_class(subnets=[{"id": "subnet-b"}], securityGroups=[{"id": "sg-1"}]),
    "instance": IN_BLOCK,
}
FIXES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("NodePoolDrifted", {}),
    ("RequirementsDrifted", {"pool": OTHER_ZONE}),
    ("InstanceTypeNotFound", {"pool": pool()}),
    ("NodeClassDrift", {"types": listed(a_type())}),
    ("AMIDrift", {"claim": claim(image_id="ami-old", labels=IN_GROUP.labels)}),
    ("SecurityGroupDrift", {"claim": IN_GROUP}),
    ("SubnetDrift", {"node_class": OTHER_SUBNET}),
    ("CapacityReservationDrift", {"node_class": node_class()}),
    ("PlacementGroupDrift", {"instance": instance()}),
    ("", {"claim": claim()}),
)


def test_of_several_reasons_the_first_in_order_is_told() -> None:
    """Mended one after the other, each uncovers the next."""
    changed, reasons = dict(ALL_AT_ONCE), []
    for _, fix in FIXES:
        changed |= fix
        reasons.append(reason(**changed))
    assert reasons == [expected for expected, _ in FIXES]


UNKNOWN: dict[str, dict[str, Any]] = {
    "NodePoolDrifted": {"claim": with_hashes(NODEPOOL_HASH_VERSION="v3")},
    "RequirementsDrifted": {"pool": pool((labels.ZONE, "Near", ()))},
    "InstanceTypeNotFound": {"types": None},
    "NodeClassDrift": {"claim": with_hashes(NODECLASS_HASH_VERSION="v6")},
    "AMIDrift": {"node_class": node_class(amis=[])},
    "SecurityGroupDrift": {"instance": None},
    "SubnetDrift": {"instance": None},
    "CapacityReservationDrift": {"instance": None},
    "PlacementGroupDrift": {"node_class": node_class(group="pg-1"), "types": None},
}


@pytest.mark.parametrize("unknown_reason", UNKNOWN)
def test_drift_reason_is_kept_while_unknown(unknown_reason: str) -> None:
    before = Drift(reason=unknown_reason, message="as it was")
    assert drift_of(previous=before, **UNKNOWN[unknown_reason]) == before
    assert drift_of(previous=before) is None, "and goes once it can be"


@pytest.mark.parametrize("unknown_reason", UNKNOWN)
def test_unknown_reason_does_not_keep_other_drift(unknown_reason: str) -> None:
    """A reason that is known to be mended is not kept by another one that is not known."""
    other = labels.NODEPOOL_DRIFTED if unknown_reason != labels.NODEPOOL_DRIFTED else labels.AMI_DRIFT
    assert drift_of(previous=Drift(reason=other, message="as it was"), **UNKNOWN[unknown_reason]) is None


def test_a_new_reason_goes_before_one_that_stands() -> None:
    previous = Drift(reason=labels.SUBNET_DRIFT, message="as it was")
    assert reason(previous=previous, instance=None, claim=OLD_IMAGE) == "AMIDrift"


def test_a_reservation_that_is_not_selected_is_looked_at_once_more() -> None:
    doubtful = drift_of(instance=IN_BLOCK)
    assert doubtful is not None and doubtful.recheck
    sure = drift_of(instance=IN_BLOCK, fresh=True)
    assert sure is not None and not sure.recheck
    rechecked = drift_of(instance=IN_BLOCK, previous=sure)
    assert rechecked is not None and not rechecked.recheck, "not at every look"
    assert drift_of(instance=instance(), fresh=True, previous=doubtful) is None


def test_no_other_reason_is_looked_at_twice() -> None:
    for expected, changed in DRIFTED.values():
        found = drift_of(**changed)
        assert found is not None and found.recheck == (expected == "CapacityReservationDrift")


def test_words_name_what_differs() -> None:
    def message_for(**changed: Any) -> str:
        found = drift_of(**changed)
        return found.message if found else ""

    assert message_for(claim=OLD_IMAGE) == ("m6i.large runs ami-old, and EC2NodeClass default gives it ami-new now")
    assert message_for(node_class=OTHER_SUBNET) == (
        "the instance is in subnet-a, EC2NodeClass default selects subnet-b"
    )
    many = node_class(securityGroups=[{"id": f"sg-{number}"} for number in range(3, 8)])
    assert message_for(node_class=many) == (
        "the instance has sg-1, sg-2, EC2NodeClass default selects sg-3, sg-4, sg-5 and 2 more"
    )
    assert "topology.kubernetes.io/zone In [us-west-2b]" in message_for(pool=OTHER_ZONE)


KEYS = st.sampled_from([labels.ZONE, labels.INSTANCE_GENERATION, "team", "failure-domain.beta.kubernetes.io/zone"])
VALUES = st.sampled_from(["1", "2", "3"])
EXPRESSIONS = st.one_of(
    st.tuples(KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1, max_size=2).map(tuple)),
    st.tuples(KEYS, st.sampled_from(["Exists", "DoesNotExist"]), st.just(())),
    st.tuples(KEYS, st.sampled_from(["Gt", "Lt", "Gte", "Lte"]), VALUES.map(lambda one: (one,))),
)


@given(st.lists(EXPRESSIONS, max_size=4), st.dictionaries(KEYS.filter(lambda key: "beta" not in key), VALUES))
def test_requirements_are_those_of_planning(
    expressions: list[tuple[str, str, tuple[str, ...]]], node_labels: dict[str, str]
) -> None:
    """A node drifts from just those requirements that no node with its labels would have been made for."""
    fact = pool(*expressions)
    fits = Requirements.from_labels(node_labels).is_strictly_compatible(
        Requirements.from_expressions(fact.requirements)
    )
    found = drift_of(claim=claim(labels=node_labels, created=YOUNG), pool=fact)
    assert (found is not None and found.reason == "RequirementsDrifted") != fits


def test_the_version_is_ours() -> None:
    """The pool's hash is always one of ours, so that one of another version is never compared with it."""
    assert facts().claim.annotations[labels.NODEPOOL_HASH_VERSION] == HASH_VERSION
    assert reason(claim=with_hashes(NODEPOOL_HASH_VERSION=HASH_VERSION + "0"), pool=NEW_TEMPLATE) == ""
