"""What upkeep may put away, by tables: each thing that keeps a leftover, by itself."""

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
STAYS: dict[str, tuple[InstanceFacts, Sequence[InventoryNodeClaim]]] = {
    "younger than the grace": (instance(launched_at=ago(29)), ()),
    "launched by a clock that is ahead": (instance(launched_at=ago(-60)), ()),
    "of unknown age": (instance(launched_at=None), ()),
    "of another cluster": (instance({labels.TAG_EKS_CLUSTER_NAME: "other"}), ()),
    "without tags": (InstanceFacts(instance_id="i-1", state="running", launched_at=LONG_AGO), ()),
    "on its way out": (instance(state="shutting-down"), ()),
    "of a NodeClaim": (instance(), [claim(provider_id=I1)]),
    "of a NodeClaim, in other words": (instance(), [claim(provider_id="aws:///elsewhere/i-1")]),
    "of a NodeClaim that goes": (instance(), [claim(provider_id=I1, deleting=True)]),
    "of a group whose answer is due": (instance({labels.LAUNCH_GROUP: "g"}), [claim(group_id="g")]),
    "of a NodeClaim that launches alone": (instance({labels.LAUNCH_GROUP: "a"}), [claim("a")]),
    "named after a NodeClaim without one": (instance({labels.TAG_NODECLAIM: "a"}), [claim("a")]),
}
GOES: dict[str, tuple[InstanceFacts, Sequence[InventoryNodeClaim]]] = {
    "past the grace": (instance(launched_at=ago(31)), ()),
    "stopped": (instance(state="stopped"), ()),
    "the NodeClaim has another": (instance(), [claim(provider_id=I2)]),
    "of a group that is gone": (instance({labels.LAUNCH_GROUP: "g"}), [claim(group_id="other")]),
    "a second one for a NodeClaim that has its own": (
        instance({labels.LAUNCH_GROUP: "g", labels.TAG_NODECLAIM: "a"}),
        [claim("a", group_id="g", provider_id=I2)],
    ),
    "a NodeClaim names no instance at all": (instance(), [claim(provider_id="nonsense")]),
}


@pytest.mark.parametrize("case", [*STAYS, *GOES])
def test_an_instance_goes_only_if_nobody_owns_it(case: str) -> None:
    found, claims = (STAYS | GOES)[case]
    assert decide_orphaned_instances([found], claims, cluster="demo", now=NOW) == ([found] if case in GOES else [])


def test_a_claim_is_bereft_once_it_has_joined_and_its_instance_is_not_listed() -> None:
    there = instance()
    orphaned = {"provider_id": "aws:///a/i-9", "registered": True}
    claims = [
        claim("bereft", **orphaned),
        claim("shutting", provider_id="aws:///a/i-2", registered=True),
        claim("well", provider_id="aws:///a/i-1", registered=True),
        claim("young", **orphaned | {"created": ago(10)}),
        claim("never-joined", **orphaned | {"registered": False}),
        claim("going", **orphaned, deleting=True),
        claim("not-launched", registered=True),
    ]
    listed = [there, instance(instance_id="i-2", state="shutting-down")]
    assert [one.name for one in decide_orphaned_nodeclaims(claims, listed, now=NOW)] == ["bereft", "shutting"]


def node(name: str, **fields: Any) -> InventoryNode:
    return InventoryNode(**{"name": name, "uid": name, "provider_id": "aws:///a/i-9", "created": LONG_AGO, **fields})


@pytest.mark.parametrize(
    ("fields", "speaks"),
    [
        ({"ready": True, "ready_changed": LONG_AGO}, True),
        ({"ready": False, "ready_changed": ago(500)}, True),
        ({"ready": False, "ready_changed": ago(700)}, False),
        ({"ready": False}, False),
        ({"ready": True, "provider_id": "aws:///a/i-8"}, False),
    ],
)
def test_a_node_vouches_for_its_instance_while_it_is_ready_and_for_a_while_after(
    fields: dict[str, Any], speaks: bool
) -> None:
    claimed = claim(provider_id="aws:///a/i-9")
    assert decide_speaks_for(node("n", **fields), claimed, now=NOW) is speaks


def test_a_node_is_stray_if_it_is_ours_and_no_claim_has_it() -> None:
    nodes = [
        node("of-a-pool", pool="pool"),
        node("held", finalizers=(labels.TERMINATION_FINALIZER,)),
        node("somebody-elses"),
        node("young", pool="pool", created=ago(5)),
        node("claimed", pool="pool", provider_id="aws:///a/i-1"),
        node("not-in-ec2", pool="pool", provider_id="kind://docker/x"),
    ]
    orphaned = decide_orphaned_nodes(nodes, [claim(provider_id="aws:///a/i-1")], now=NOW)
    assert [one.name for one in orphaned] == ["of-a-pool", "held"]


def template(**fields: Any) -> InventoryLaunchTemplate:
    values = {"id": "lt-1", "name": "karpenter.k8s.aws/1", "created": LONG_AGO, "pool": "pool", "node_class": "class"}
    return InventoryLaunchTemplate(**{**values, **fields})


def launched_nodeclaim(**fields: Any) -> InventoryNodeClaim:
    return claim(**{"node_class": "class", "provider_id": "aws:///a/i-1", **fields})


@pytest.mark.parametrize(
    ("one", "claims", "running"),
    [
        pytest.param(template(created=ago(1700)), (), (), id="young"),
        pytest.param(template(used_lately=True), (), (), id="this process has just used it"),
        pytest.param(template(), (), ("lt-1",), id="an instance came from it"),
        pytest.param(template(), [launched_nodeclaim(provider_id="")], (), id="its pool is about to buy"),
        pytest.param(template(), [launched_nodeclaim(created=ago(60))], (), id="its pool has just bought"),
    ],
)
def test_a_launch_template_stays(
    one: InventoryLaunchTemplate, claims: list[InventoryNodeClaim], running: tuple[str, ...]
) -> None:
    assert decide_unused_templates([one], claims, running=set(running), now=NOW) == []


def test_a_launch_template_goes_when_its_pool_has_not_bought_for_long_and_nothing_runs_from_it() -> None:
    elsewhere = [
        launched_nodeclaim(),
        launched_nodeclaim(pool="other", provider_id=""),
        launched_nodeclaim(node_class="other", provider_id=""),
    ]
    assert decide_unused_templates([template()], elsewhere, running={"lt-2"}, now=NOW) == [template()]


def profile(**fields: Any) -> InventoryInstanceProfile:
    return InventoryInstanceProfile(**{"name": "demo_1", "node_class_uid": "uid-class", "created": LONG_AGO, **fields})


CLASS = InventoryNodeClass(name="class", uid="uid-class", profiles=("demo_2",))
PROFILE_ANNOTATIONS = {labels.INSTANCE_PROFILE_NAME: "demo_2"}


@pytest.mark.parametrize(
    ("one", "claims", "classes", "running"),
    [
        pytest.param(profile(created=ago(3500)), (), [CLASS], (), id="young"),
        pytest.param(profile(name="demo_2"), (), [CLASS], (), id="its class names it"),
        pytest.param(
            profile(), [claim(annotations={labels.INSTANCE_PROFILE_NAME: "demo_1"})], [CLASS], (), id="a NodeClaim does"
        ),
        pytest.param(profile(), (), [CLASS], ("demo_1",), id="an instance has it"),
        pytest.param(profile(), [claim(node_class="class")], [CLASS], (), id="a NodeClaim of its class does not say"),
        pytest.param(profile(), [claim(node_class="gone")], (), (), id="a NodeClaim of a class that is gone"),
    ],
)
def test_an_instance_profile_stays(
    one: InventoryInstanceProfile,
    claims: list[InventoryNodeClaim],
    classes: list[InventoryNodeClass],
    running: tuple[str, ...],
) -> None:
    assert decide_unused_profiles([one], claims, classes, running=set(running), now=NOW) == []


@pytest.mark.parametrize(
    ("claims", "classes"),
    [
        pytest.param((), (), id="of a class that is gone"),
        pytest.param(
            [claim(node_class="class", annotations=PROFILE_ANNOTATIONS)], [CLASS], id="of a role that was changed"
        ),
        pytest.param(
            [claim(node_class="other")], [CLASS, InventoryNodeClass(name="other", uid="o")], id="others are silent"
        ),
    ],
)
def test_an_instance_profile_that_nobody_names_goes(
    claims: list[InventoryNodeClaim], classes: list[InventoryNodeClass]
) -> None:
    assert decide_unused_profiles([profile()], claims, classes, running={"demo_2"}, now=NOW) == [profile()]


def test_an_instance_is_tagged_once_its_node_has_joined() -> None:
    joined = {"provider_id": "aws:///a/i-1", "node_name": "node"}
    done = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}
    claims = [
        claim("new", **joined),
        claim("half", **joined, annotations={labels.TAGGED: "true"}),
        claim("done", **joined, annotations=done),
        claim("going", **joined, deleting=True),
        claim("not-joined", provider_id="aws:///a/i-1"),
    ]
    assert [one.name for one in decide_untagged(claims)] == ["new", "half"]


@pytest.mark.parametrize(
    ("fields", "is_orphaned"),
    [
        ({}, True),
        ({"owners": ("uid-of-nobody",)}, True),
        ({"name": "node"}, False),
        ({"owners": ("uid-node",)}, False),
        ({"alive_until": NOW + timedelta(seconds=1)}, False),
        ({"deleting": True}, False),
    ],
)
def test_a_lease_goes_when_neither_node_nor_owner_nor_holder_is_left(fields: dict[str, Any], is_orphaned: bool) -> None:
    lease = InventoryLease(**{"name": "left", "uid": "u", "alive_until": LONG_AGO, **fields})
    assert is_orphaned_lease(lease, names={"node"}, uids={"uid-node"}, now=NOW) is is_orphaned


@pytest.mark.parametrize("remembers", [True, False], ids=["by the worker that launches", "by another worker"])
def test_a_pool_that_comes_and_goes_has_its_template_made_anew_every_half_hour_at_most(remembers: bool) -> None:
    """A day of a pool that buys a node every ten minutes and lets it go after four; upkeep looks every fifteen."""
    there, made, used = None, 0, LONG_AGO
    for minute in range(24 * 60):
        now = NOW + timedelta(minutes=minute)
        since = minute % 10
        if since == 0:
            used = now
            there, made = (there, made) if there else (template(created=now), made + 1)
        runs = since < 4
        if minute % 15 == 7 and there:
            claims = [launched_nodeclaim(created=now - timedelta(minutes=since))] if runs else []
            observed = there.model_copy(update={"used_lately": remembers and used + TEMPLATE_GRACE > now})
            if decide_unused_templates([observed], claims, running={"lt-1"} if runs else set(), now=now):
                there = None
    assert made == 1 if remembers else 1 < made <= 48
