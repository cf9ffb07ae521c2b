"""Drift by reason: changes that count, changes that do not, and unknown inputs."""

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

CREATED_RECENTLY = NOW - timedelta(minutes=59)
FOREIGN_CLASS_HASH = {labels.NODECLASS_HASH: "33", labels.NODECLASS_HASH_VERSION: "v6"}
RESERVED = instance(capacity_type="reserved", reservation_id="cr-1")
LINUX = ("kubernetes.io/os", "Exists", ())

OLD_IMAGE, OLD_CLASS = claim(image_id="ami-old"), with_hashes(NODECLASS_HASH="21")
NEW_TEMPLATE, OTHER_ZONE = pool(template="12"), pool((labels.ZONE, "In", ("us-west-2b",)))
IN_GROUP, OTHER_SUBNET = with_labels(PLACEMENT_GROUP_ID="pg-1"), node_class(subnets=[{"id": "subnet-b"}])
OTHER_ZONE_OFFERED = a_type(offerings=(offering("us-west-2b", "spot"),))
ON_DEMAND_ONLY = listed(
    a_type(labels={labels.CAPACITY_TYPE: ("on-demand",)}, offerings=(offering("us-west-2a", "on-demand"),))
)

DRIFTED: dict[str, tuple[str, dict[str, Any]]] = {
    "NodePool template changed": ("NodePoolDrifted", {"pool": NEW_TEMPLATE}),
    "NodePool excludes the zone": ("RequirementsDrifted", {"pool": OTHER_ZONE}),
    "NodePool requires a missing label": ("RequirementsDrifted", {"pool": pool(LINUX)}),
    "NodePool requires a missing well-known label": (
        "RequirementsDrifted",
        {"pool": pool((labels.INSTANCE_GPU_COUNT, "Exists", ()))},
    ),
    "NodePool forbids a label of the node": (
        "RequirementsDrifted",
        {"pool": pool((labels.ARCH, "DoesNotExist", ()))},
    ),
    "reserved node became on-demand in a reserved NodePool": (
        "RequirementsDrifted",
        {"claim": with_labels(CAPACITY_TYPE="on-demand"), "pool": pool((labels.CAPACITY_TYPE, "In", ("reserved",)))},
    ),
    "EC2 does not offer the type": ("InstanceTypeNotFound", {"types": listed(a_type("m7i.large"))}),
    "EC2 offers the type only in other zones": ("InstanceTypeNotFound", {"types": listed(OTHER_ZONE_OFFERED)}),
    "EC2 offers the type only on-demand": ("InstanceTypeNotFound", {"types": ON_DEMAND_ONLY}),
    "EC2NodeClass changed and is resolved": (
        "NodeClassDrift",
        {"claim": OLD_CLASS, "node_class": node_class(generation=2, resolved=2)},
    ),
    "EC2NodeClass changed": ("NodeClassDrift", {"claim": OLD_CLASS}),
    "foreign hash version on NodeClaim and EC2NodeClass": (
        "NodeClassDrift",
        {
            "claim": with_hashes(NODECLASS_HASH="21", NODECLASS_HASH_VERSION="v6"),
            "node_class": node_class(stamps=FOREIGN_CLASS_HASH),
        },
    ),
    "newer image": ("AMIDrift", {"claim": OLD_IMAGE}),
    "no image for the type": ("AMIDrift", {"types": listed(a_type(image_id=""))}),
    "security group removed": ("SecurityGroupDrift", {"node_class": node_class(securityGroups=[{"id": "sg-1"}])}),
    "security group added": (
        "SecurityGroupDrift",
        {"node_class": node_class(securityGroups=[{"id": "sg-1"}, {"id": "sg-2"}, {"id": "sg-3"}])},
    ),
    "subnet not selected": ("SubnetDrift", {"node_class": OTHER_SUBNET}),
    "reservation not selected": (
        "CapacityReservationDrift",
        {"instance": RESERVED, "node_class": node_class(capacityReservations=[{"id": "cr-2"}])},
    ),
    "no reservation is selected": ("CapacityReservationDrift", {"instance": RESERVED}),
    "no placement group selected": ("PlacementGroupDrift", {"claim": IN_GROUP}),
    "another placement group selected": (
        "PlacementGroupDrift",
        {
            "claim": IN_GROUP,
            "node_class": node_class(group="pg-2"),
            "types": listed(a_type(labels={labels.PLACEMENT_GROUP_ID: ("pg-2",)})),
        },
    ),
    "subnet precedes placement group": ("SubnetDrift", {"claim": IN_GROUP, "node_class": OTHER_SUBNET}),
}

NOT_DRIFTED: dict[str, dict[str, Any]] = {
    "unchanged": {},
    "not launched yet": {"claim": claim(launched=False, image_id="ami-old")},
    "being deleted": {"claim": claim(deleting=True, image_id="ami-old")},
    "standalone": {"claim": claim(pool="", image_id="ami-old")},
    "no NodePool": {"claim": OLD_IMAGE, "pool": None},
    "no EC2NodeClass": {"claim": OLD_IMAGE, "node_class": None},
    "EC2NodeClass is being deleted": {"claim": OLD_IMAGE, "node_class": node_class(deleting=True)},
    "no NodePool hash on the NodeClaim": {"claim": with_hashes(NODEPOOL_HASH=""), "pool": NEW_TEMPLATE},
    "no version of the NodePool hash": {"claim": with_hashes(NODEPOOL_HASH_VERSION=""), "pool": NEW_TEMPLATE},
    "foreign version of the NodePool hash": {"claim": with_hashes(NODEPOOL_HASH_VERSION="v3"), "pool": NEW_TEMPLATE},
    "no hash on the EC2NodeClass": {"claim": OLD_CLASS, "node_class": node_class(stamps={})},
    "foreign version of the EC2NodeClass hash": {
        "claim": with_hashes(NODECLASS_HASH_VERSION="v6", NODECLASS_HASH="21")
    },
    "foreign hash version only on the EC2NodeClass": {"node_class": node_class(stamps=FOREIGN_CLASS_HASH)},
    "EC2NodeClass not resolved since its change": {
        "claim": OLD_CLASS,
        "node_class": node_class(generation=2, resolved=1),
    },
    "forbidden labels are absent": {
        "pool": pool((labels.INSTANCE_GPU_COUNT, "DoesNotExist", ()), (labels.ZONE, "NotIn", ("us-west-2b",)))
    },
    "deprecated zone label": {"pool": pool(("failure-domain.beta.kubernetes.io/zone", "In", ("us-west-2a",)))},
    "invalid requirement": {"pool": pool((labels.ZONE, "Near", ("us-west-2b",)))},
    "type not offered for a new node": {
        "claim": claim(created=CREATED_RECENTLY),
        "types": {"m6i.large": OTHER_ZONE_OFFERED},
    },
    "offering temporarily unavailable": {
        "types": listed(a_type(offerings=(offering("us-west-2a", "spot", available=False),)))
    },
    "no spot price in the zone": {
        "types": listed(a_type(offerings=(offering("us-west-2a", "on-demand"), offering("us-west-2b", "spot"))))
    },
    "no offerings known": {"types": listed(a_type(offerings=()))},
    "reserved node of a type offered on-demand": {
        "claim": with_labels(CAPACITY_TYPE="reserved"),
        "types": ON_DEMAND_ONLY,
    },
    "instance types unknown": {"claim": OLD_IMAGE, "types": None},
    "instance types empty": {"claim": OLD_IMAGE, "types": {}},
    "type of a new node unknown": {
        "claim": claim(created=CREATED_RECENTLY, image_id="ami-old"),
        "types": listed(a_type("m7i.large")),
    },
    "image of the node unknown": {"claim": claim(image_id="")},
    "no image resolved": {"claim": OLD_IMAGE, "node_class": node_class(amis=[])},
    "no security group resolved": {"node_class": node_class(securityGroups=[])},
    "no subnet resolved": {"node_class": node_class(subnets=[])},
    "instance unknown": {
        "instance": None,
        "node_class": node_class(subnets=[{"id": "subnet-x"}], securityGroups=[{"id": "sg-x"}]),
    },
    "network of the instance not reported yet": {"instance": instance(subnet_id="", security_group_ids=())},
    "instance shutting down": {
        "instance": instance(state="shutting-down", subnet_id="subnet-x", security_group_ids=("sg-x",))
    },
    "security groups in another order": {"instance": instance(security_group_ids=("sg-2", "sg-1"))},
    "no reservation": {"node_class": node_class(capacityReservations=[{"id": "cr-1"}])},
    "reservation selected": {
        "instance": RESERVED,
        "node_class": node_class(capacityReservations=[{"id": "cr-1"}]),
    },
    "reservations not resolved yet": {"instance": RESERVED, "node_class": node_class(reservations_ready="")},
    "reservations could not be resolved": {
        "instance": RESERVED,
        "node_class": node_class(reservations_ready="Unknown"),
    },
    "placement group selected": {
        "claim": IN_GROUP,
        "node_class": node_class(group="pg-1"),
        "types": listed(a_type(labels={labels.PLACEMENT_GROUP_ID: ("pg-1",)})),
    },
    "placement group of the EC2NodeClass unknown": {"claim": IN_GROUP, "node_class": node_class(group="pg-2")},
    "flex instances are excluded and it is none": {
        "claim": with_labels(INSTANCE_CAPABILITY_FLEX="false"),
        "pool": pool((labels.INSTANCE_CAPABILITY_FLEX, "In", ("false",))),
    },
}


@pytest.mark.parametrize("case", DRIFTED.values(), ids=DRIFTED)
def test_node_drifts(case: tuple[str, dict[str, Any]]) -> None:
    expected, changed = case
    assert reason(**changed) == expected


@pytest.mark.parametrize("changed", NOT_DRIFTED.values(), ids=NOT_DRIFTED)
def test_node_does_not_drift(changed: dict[str, Any]) -> None:
    assert drift_of(**changed) is None


ALL_AT_ONCE: dict[str, Any] = {
    "claim": claim(image_id="ami-old", labels=IN_GROUP.labels, annotations={**STAMPS, labels.NODECLASS_HASH: "21"}),
    "pool": pool((labels.ZONE, "In", ("us-west-2b",)), template="12"),
    "types": listed(OTHER_ZONE_OFFERED),
    "node_class": node_class(subnets=[{"id": "subnet-b"}], securityGroups=[{"id": "sg-1"}]),
    "instance": RESERVED,
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


def test_first_of_several_drift_reasons_is_reported() -> None:
    """After each fix, the next reason is reported."""
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
    before = Drift(reason=unknown_reason, message="previous message")
    assert drift_of(previous=before, **UNKNOWN[unknown_reason]) == before
    assert drift_of(previous=before) is None, "drift ends once the input is known"


@pytest.mark.parametrize("unknown_reason", UNKNOWN)
def test_unknown_reason_does_not_keep_other_drift(unknown_reason: str) -> None:
    """An unknown reason does not keep a known and fixed one."""
    other = labels.NODEPOOL_DRIFTED if unknown_reason != labels.NODEPOOL_DRIFTED else labels.AMI_DRIFT
    assert drift_of(previous=Drift(reason=other, message="previous message"), **UNKNOWN[unknown_reason]) is None


def test_new_reason_precedes_an_unknown_previous_reason() -> None:
    previous = Drift(reason=labels.SUBNET_DRIFT, message="previous message")
    assert reason(previous=previous, instance=None, claim=OLD_IMAGE) == "AMIDrift"


def test_reservation_drift_is_rechecked_once() -> None:
    unconfirmed = drift_of(instance=RESERVED)
    assert unconfirmed is not None and unconfirmed.recheck
    confirmed = drift_of(instance=RESERVED, fresh=True)
    assert confirmed is not None and not confirmed.recheck
    rechecked = drift_of(instance=RESERVED, previous=confirmed)
    assert rechecked is not None and not rechecked.recheck, "confirmed drift is not rechecked"
    assert drift_of(instance=instance(), fresh=True, previous=unconfirmed) is None


def test_only_reservation_drift_is_rechecked() -> None:
    for expected, changed in DRIFTED.values():
        found = drift_of(**changed)
        assert found is not None and found.recheck == (expected == "CapacityReservationDrift")


def test_drift_message_names_the_difference() -> None:
    def message_for(**changed: Any) -> str:
        found = drift_of(**changed)
        return found.message if found else ""

    assert message_for(claim=OLD_IMAGE) == ("m6i.large runs ami-old, but EC2NodeClass default selects ami-new for it")
    assert message_for(node_class=OTHER_SUBNET) == (
        "the instance is in subnet-a, but EC2NodeClass default selects subnet-b"
    )
    many = node_class(securityGroups=[{"id": f"sg-{number}"} for number in range(3, 8)])
    assert message_for(node_class=many) == (
        "the instance has sg-1, sg-2, but EC2NodeClass default selects sg-3, sg-4, sg-5 and 2 more"
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
def test_requirement_drift_matches_planning(
    expressions: list[tuple[str, str, tuple[str, ...]]], node_labels: dict[str, str]
) -> None:
    """A node drifts if and only if its labels do not satisfy the requirements."""
    fact = pool(*expressions)
    fits = Requirements.from_labels(node_labels).is_strictly_compatible(
        Requirements.from_expressions(fact.requirements)
    )
    found = drift_of(claim=claim(labels=node_labels, created=CREATED_RECENTLY), pool=fact)
    assert (found is not None and found.reason == "RequirementsDrifted") != fits


def test_nodepool_hash_is_compared_only_with_its_own_version() -> None:
    """The hash of the NodePool has the current version and is never compared with one of another version."""
    assert facts().claim.annotations[labels.NODEPOOL_HASH_VERSION] == HASH_VERSION
    assert reason(claim=with_hashes(NODEPOOL_HASH_VERSION=HASH_VERSION + "0"), pool=NEW_TEMPLATE) == ""
