"""Tables of resources that garbage collection keeps or deletes, with one keeping cause per row."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.model.garbage_collection import (
    InventoryInstanceProfile,
    InventoryLaunchTemplate,
    InventoryLease,
    InventoryNode,
    InventoryNodeClaim,
    InventoryNodeClass,
)
from tenure.model.provider_results import InstanceFacts
from tenure.policy.garbage_collection import (
    TEMPLATE_GRACE,
    decide_orphaned_instances,
    decide_orphaned_nodeclaims,
    decide_orphaned_nodes,
    decide_speaks_for,
    decide_untagged,
    decide_unused_profiles,
    decide_unused_templates,
    is_orphaned_lease,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
TAGS = {labels.TAG_NODEPOOL: "pool", labels.TAG_NODECLASS: "class", labels.TAG_EKS_CLUSTER_NAME: "demo"}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def instance(tags: dict[str, str] | None = None, **fields: Any) -> InstanceFacts:
    values = {"instance_id": "i-1", "state": "running", "launched_at": LONG_AGO, **fields}
    return InstanceFacts(tags=TAGS if tags is None else {**TAGS, **tags}, **values)


def claim(name: str = "a", **fields: Any) -> InventoryNodeClaim:
    return InventoryNodeClaim(**{"name": name, "uid": f"uid-{name}", "created": LONG_AGO, "pool": "pool", **fields})


I1, I2 = "aws:///us-west-2a/i-1", "aws:///us-west-2a/i-2"
KEPT: dict[str, tuple[InstanceFacts, Sequence[InventoryNodeClaim]]] = {
    "younger than the grace period": (instance(launched_at=ago(29)), ()),
    "launched in the future by a fast clock": (instance(launched_at=ago(-60)), ()),
    "of unknown age": (instance(launched_at=None), ()),
    "of another cluster": (instance({labels.TAG_EKS_CLUSTER_NAME: "other"}), ()),
    "without tags": (InstanceFacts(instance_id="i-1", state="running", launched_at=LONG_AGO), ()),
    "shutting down": (instance(state="shutting-down"), ()),
    "of a NodeClaim": (instance(), [claim(provider_id=I1)]),
    "of a NodeClaim with another provider ID format": (instance(), [claim(provider_id="aws:///elsewhere/i-1")]),
    "of a deleting NodeClaim": (instance(), [claim(provider_id=I1, deleting=True)]),
    "of a launch group in progress": (instance({labels.LAUNCH_GROUP: "g"}), [claim(group_id="g")]),
    "of a NodeClaim that launches without a group": (instance({labels.LAUNCH_GROUP: "a"}), [claim("a")]),
    "tagged with a NodeClaim without instance": (instance({labels.TAG_NODECLAIM: "a"}), [claim("a")]),
}
COLLECTED: dict[str, tuple[InstanceFacts, Sequence[InventoryNodeClaim]]] = {
    "past the grace period": (instance(launched_at=ago(31)), ()),
    "stopped": (instance(state="stopped"), ()),
    "NodeClaim has another instance": (instance(), [claim(provider_id=I2)]),
    "of a missing launch group": (instance({labels.LAUNCH_GROUP: "g"}), [claim(group_id="other")]),
    "second instance of a NodeClaim": (
        instance({labels.LAUNCH_GROUP: "g", labels.TAG_NODECLAIM: "a"}),
        [claim("a", group_id="g", provider_id=I2)],
    ),
    "NodeClaim with an invalid provider ID": (instance(), [claim(provider_id="nonsense")]),
}


@pytest.mark.parametrize("case", [*KEPT, *COLLECTED])
def test_only_unowned_instances_are_orphaned(case: str) -> None:
    found, claims = (KEPT | COLLECTED)[case]
    assert decide_orphaned_instances([found], claims, cluster="demo", now=NOW) == ([found] if case in COLLECTED else [])


def test_registered_nodeclaim_without_listed_instance_is_orphaned() -> None:
    running = instance()
    orphaned = {"provider_id": "aws:///a/i-9", "registered": True}
    claims = [
        claim("orphaned", **orphaned),
        claim("shutting-down-instance", provider_id="aws:///a/i-2", registered=True),
        claim("running", provider_id="aws:///a/i-1", registered=True),
        claim("young", **orphaned | {"created": ago(10)}),
        claim("not-registered", **orphaned | {"registered": False}),
        claim("deleting", **orphaned, deleting=True),
        claim("not-launched", registered=True),
    ]
    listed = [running, instance(instance_id="i-2", state="shutting-down")]
    assert [one.name for one in decide_orphaned_nodeclaims(claims, listed, now=NOW)] == [
        "orphaned",
        "shutting-down-instance",
    ]


def node(name: str, **fields: Any) -> InventoryNode:
    return InventoryNode(**{"name": name, "uid": name, "provider_id": "aws:///a/i-9", "created": LONG_AGO, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ready": True, "ready_changed": LONG_AGO}, True),
        ({"ready": False, "ready_changed": ago(500)}, True),
        ({"ready": False, "ready_changed": ago(700)}, False),
        ({"ready": False}, False),
        ({"ready": True, "provider_id": "aws:///a/i-8"}, False),
    ],
)
def test_node_proves_its_instance_while_ready_and_shortly_after(fields: dict[str, Any], expected: bool) -> None:
    claimed = claim(provider_id="aws:///a/i-9")
    assert decide_speaks_for(node("n", **fields), claimed, now=NOW) is expected


def test_managed_node_without_nodeclaim_is_orphaned() -> None:
    nodes = [
        node("of-a-pool", pool="pool"),
        node("with-finalizer", finalizers=(labels.TERMINATION_FINALIZER,)),
        node("unmanaged"),
        node("young", pool="pool", created=ago(5)),
        node("claimed", pool="pool", provider_id="aws:///a/i-1"),
        node("not-in-ec2", pool="pool", provider_id="kind://docker/x"),
    ]
    orphaned = decide_orphaned_nodes(nodes, [claim(provider_id="aws:///a/i-1")], now=NOW)
    assert [one.name for one in orphaned] == ["of-a-pool", "with-finalizer"]


def template(**fields: Any) -> InventoryLaunchTemplate:
    values = {"id": "lt-1", "name": "karpenter.k8s.aws/1", "created": LONG_AGO, "pool": "pool", "node_class": "class"}
    return InventoryLaunchTemplate(**{**values, **fields})


def launched_nodeclaim(**fields: Any) -> InventoryNodeClaim:
    return claim(**{"node_class": "class", "provider_id": "aws:///a/i-1", **fields})


UNRELATED = [
    launched_nodeclaim(),
    launched_nodeclaim(pool="other", provider_id=""),
    launched_nodeclaim(node_class="other", provider_id=""),
]


@pytest.mark.parametrize(
    ("one", "claims", "running", "is_collected"),
    [
        pytest.param(template(created=ago(1700)), (), "", False, id="young"),
        pytest.param(template(used_lately=True), (), "", False, id="used recently by this process"),
        pytest.param(template(), (), "lt-1", False, id="used by a running instance"),
        pytest.param(template(), [launched_nodeclaim(provider_id="")], "", False, id="launch pending"),
        pytest.param(template(), [launched_nodeclaim(created=ago(60))], "", False, id="recent launch"),
        pytest.param(template(), UNRELATED, "lt-2", True, id="only unrelated NodeClaims and instances"),
    ],
)
def test_only_unused_launch_templates_are_collected(
    one: InventoryLaunchTemplate, claims: list[InventoryNodeClaim], running: str, is_collected: bool
) -> None:
    assert decide_unused_templates([one], claims, running={running}, now=NOW) == [one] * is_collected


def profile(**fields: Any) -> InventoryInstanceProfile:
    return InventoryInstanceProfile(**{"name": "demo_1", "node_class_uid": "uid-class", "created": LONG_AGO, **fields})


CLASS = InventoryNodeClass(name="class", uid="uid-class", profiles=("demo_2",))
PROFILE_ANNOTATIONS = {labels.INSTANCE_PROFILE_NAME: "demo_2"}


OTHER = InventoryNodeClass(name="other", uid="o")
KEPT_PROFILES: dict[str, tuple[InventoryInstanceProfile, list[InventoryNodeClaim], list[InventoryNodeClass], str]] = {
    "young": (profile(created=ago(3500)), [], [CLASS], ""),
    "named by its EC2NodeClass": (profile(name="demo_2"), [], [CLASS], ""),
    "named by a NodeClaim": (profile(), [claim(annotations={labels.INSTANCE_PROFILE_NAME: "demo_1"})], [CLASS], ""),
    "used by an instance": (profile(), [], [CLASS], "demo_1"),
    "NodeClaim of its class without annotation": (profile(), [claim(node_class="class")], [CLASS], ""),
    "NodeClaim of a missing class": (profile(), [claim(node_class="gone")], [], ""),
}
COLLECTED_PROFILES: dict[str, tuple[list[InventoryNodeClaim], list[InventoryNodeClass]]] = {
    "missing class": ([], []),
    "changed role": ([claim(node_class="class", annotations=PROFILE_ANNOTATIONS)], [CLASS]),
    "other class without profiles": ([claim(node_class="other")], [CLASS, OTHER]),
}


@pytest.mark.parametrize("case", KEPT_PROFILES)
def test_used_or_young_instance_profile_is_kept(case: str) -> None:
    one, claims, classes, running = KEPT_PROFILES[case]
    assert decide_unused_profiles([one], claims, classes, running={running}, now=NOW) == []


@pytest.mark.parametrize("case", COLLECTED_PROFILES)
def test_unused_instance_profile_is_collected(case: str) -> None:
    claims, classes = COLLECTED_PROFILES[case]
    assert decide_unused_profiles([profile()], claims, classes, running={"demo_2"}, now=NOW) == [profile()]


def test_instances_of_joined_nodes_without_tags_are_tagged() -> None:
    joined = {"provider_id": "aws:///a/i-1", "node_name": "node"}
    done = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
    claims = [
        claim("new", **joined),
        claim("partly-tagged", **joined, annotations={labels.TAGGED: "true"}),
        claim("done", **joined, annotations=done),
        claim("deleting", **joined, deleting=True),
        claim("not-joined", provider_id="aws:///a/i-1"),
    ]
    assert [one.name for one in decide_untagged(claims)] == ["new", "partly-tagged"]


@pytest.mark.parametrize(
    ("fields", "is_orphaned"),
    [
        ({}, True),
        ({"owners": ("uid-unknown",)}, True),
        ({"name": "node"}, False),
        ({"owners": ("uid-node",)}, False),
        ({"alive_until": NOW + timedelta(seconds=1)}, False),
        ({"deleting": True}, False),
    ],
)
def test_lease_without_node_owner_and_holder_is_orphaned(fields: dict[str, Any], is_orphaned: bool) -> None:
    lease = InventoryLease(**{"name": "left", "uid": "u", "alive_until": LONG_AGO, **fields})
    assert is_orphaned_lease(lease, names={"node"}, uids={"uid-node"}, now=NOW) is is_orphaned


@pytest.mark.parametrize("by_launching_worker", [True, False], ids=["by the launching worker", "by another worker"])
def test_template_of_a_fluctuating_nodepool_is_recreated_at_most_every_half_hour(by_launching_worker: bool) -> None:
    """One day: the NodePool launches a node every ten minutes for four minutes; collection runs every fifteen."""
    existing, created_count, used = None, 0, LONG_AGO
    for minute in range(24 * 60):
        now = NOW + timedelta(minutes=minute)
        since = minute % 10
        if since == 0:
            used = now
            existing, created_count = (
                (existing, created_count) if existing else (template(created=now), created_count + 1)
            )
        runs = since < 4
        if minute % 15 == 7 and existing:
            claims = [launched_nodeclaim(created=now - timedelta(minutes=since))] if runs else []
            observed = existing.model_copy(update={"used_lately": by_launching_worker and used + TEMPLATE_GRACE > now})
            if decide_unused_templates([observed], claims, running={"lt-1"} if runs else set(), now=now):
                existing = None
    assert created_count == 1 if by_launching_worker else 1 < created_count <= 48
