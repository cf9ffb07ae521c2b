"""The cluster cache: stored facts, change sets, and changes for the planner."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.controller.cache.changes import PodBound, PodDeleted
from tenure.model.facts import NodeClaimFact
from tenure.model.invalid_objects import ObjectKey
from tests.support.controller import builders
from tests.support.controller.builders import CacheHarness, at, claim, node, node_class, pod, pool, with_binding


@pytest.fixture
def harness() -> CacheHarness:
    harness = CacheHarness()
    harness.apply_objects("nodepools", pool())
    harness.apply_objects("ec2nodeclasses", node_class())
    harness.add_running_node()
    harness.cache.drain_changes()
    harness.cache.drain_planner_changes()
    return harness


def changed_nodeclaims(harness: CacheHarness) -> set[str]:
    return harness.cache.drain_changes().nodeclaims


def test_node_is_found_by_the_provider_id_of_its_nodeclaim(harness: CacheHarness) -> None:
    one = harness.cache.nodeclaims["c1"]
    assert [found.name for found in harness.cache.nodes_of(one)] == ["n1"]
    assert harness.cache.nodeclaim_name_of("n1") == "c1"
    harness.delete_objects("nodes", node("n1", of="c1"))
    assert harness.cache.nodes_of(one) == () and changed_nodeclaims(harness) == {"c1"}


def registered(name: str, node_name: str) -> builders.Json:
    raw = claim(name, phase="Initialized")
    raw["status"]["nodeName"] = node_name
    return raw


def test_second_node_with_the_provider_id_is_reported_and_ignored(harness: CacheHarness) -> None:
    harness.apply_objects("nodeclaims", registered("c1", "n1"))
    harness.apply_objects("nodes", node("n0", of="c1"), node("n2", of="c1"))
    one = harness.cache.nodeclaims["c1"]
    assert [found.name for found in harness.cache.nodes_of(one)] == ["n1"]
    assert [harness.cache.nodeclaim_name_of(name) for name in ("n0", "n1", "n2")] == ["", "c1", ""]
    reported = {found.name: found for found in harness.cache.invalid_objects.report().objects}
    assert set(reported) == {"n0", "n2"} and reported["n0"].kind == "Node"
    assert "is that of NodeClaim c1, whose Node is n1" in reported["n0"].message
    harness.delete_objects("nodes", node("n0", of="c1"))
    assert [found.name for found in harness.cache.invalid_objects.report().objects] == ["n2"]
    harness.apply_objects("nodes", node("n2", of="other"))
    assert harness.cache.invalid_objects.report().objects == ()


def test_missing_node_is_known_to_the_planner_until_it_is_back(harness: CacheHarness) -> None:
    harness.apply_objects("nodeclaims", registered("c1", "n1"))
    harness.cache.drain_changes(), harness.cache.drain_planner_changes()
    harness.now = at(7)
    harness.delete_objects("nodes", node("n1", of="c1"))
    facts = {one.key: one.fact for one in harness.cache.drain_planner_changes() if one.kind == "claim"}
    assert isinstance(facts["c1"], NodeClaimFact) and facts["c1"].node_missing_since == at(7)
    assert harness.cache.drain_changes().pods, "its pods may need another node"
    harness.now = at(9)
    harness.apply_objects("nodes", node("n1", of="c1"))
    facts = {one.key: one.fact for one in harness.cache.drain_planner_changes() if one.kind == "claim"}
    assert isinstance(facts["c1"], NodeClaimFact) and facts["c1"].node_missing_since is None


def test_only_first_and_last_pod_of_a_node_change_its_nodeclaim(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("a", on="n1"))
    assert changed_nodeclaims(harness) == {"c1"}
    harness.apply_objects("pods", pod("b", on="n1"))
    assert changed_nodeclaims(harness) == set()
    harness.delete_objects("pods", pod("a", on="n1"))
    assert changed_nodeclaims(harness) == set() and harness.cache.occupancy.is_occupied("n1")
    harness.now = at(5)
    harness.delete_objects("pods", pod("b", on="n1"))
    assert changed_nodeclaims(harness) == {"c1"}
    assert not harness.cache.occupancy.is_occupied("n1") and harness.cache.occupancy.vacated_at("n1") == at(5)


@pytest.mark.parametrize(
    "raw",
    [
        pod("x", on="n1", owner="DaemonSet"),
        pod("x", on="n1", owner="Node"),
        pod("x", on="n1", phase="Succeeded"),
        pod("x", on="n1", metadata={"deletionTimestamp": builders.stamp(30)}),
    ],
    ids=["daemonset", "static", "finished", "terminating"],
)
def test_pods_without_rescheduling_do_not_occupy_their_node(harness: CacheHarness, raw: builders.Json) -> None:
    harness.apply_objects("pods", raw)
    assert not harness.cache.occupancy.is_occupied("n1") and changed_nodeclaims(harness) == set()


def test_terminating_statefulset_pod_occupies_its_node(harness: CacheHarness) -> None:
    terminating_metadata = {"deletionTimestamp": builders.stamp(30)}
    harness.apply_objects("pods", pod("x", on="n1", owner="StatefulSet", metadata=terminating_metadata))
    assert harness.cache.occupancy.is_occupied("n1")


def test_bound_and_deleted_pods_are_published_and_no_longer_pending(harness: CacheHarness) -> None:
    bound: list[str] = []
    deleted: list[str] = []
    harness.cache.subscribe(PodBound, lambda event: bound.append(event.uid))
    harness.cache.subscribe(PodDeleted, lambda event: deleted.append(event.pod.uid))
    harness.apply_objects("pods", pod("a"))
    assert set(harness.cache.pending) == {"uid-a"} and harness.cache.drain_changes().pods
    harness.apply_objects("pods", pod("a", on="n1"))
    assert not harness.cache.pending and (bound, deleted) == (["uid-a"], [])
    harness.apply_objects("pods", pod("b"))
    harness.delete_objects("pods", pod("b"), pod("a", on="n1"))
    assert (bound, deleted) == (["uid-a"], ["uid-b", "uid-a"])


@pytest.mark.parametrize(("owner", "is_published"), [("ReplicaSet", True), ("StatefulSet", False)])
def test_terminating_pod_counts_as_deleted_unless_of_a_statefulset(
    harness: CacheHarness, owner: str, is_published: bool
) -> None:
    deleted: list[str] = []
    harness.cache.subscribe(PodDeleted, lambda event: deleted.append(event.pod.uid))
    harness.apply_objects("pods", pod("a", on="n1", owner=owner))
    harness.apply_objects("pods", pod("a", on="n1", owner=owner, metadata={"deletionTimestamp": builders.stamp(30)}))
    assert bool(deleted) is is_published
    assert harness.cache.owner_of("uid-a") == harness.cache.pods["uid-a"].owner_uid and not harness.cache.owner_of("no")


def test_update_without_changed_facts_is_no_change(harness: CacheHarness) -> None:
    same = claim("c1", phase="Initialized", resourceVersion="99")
    same["status"]["unheardOf"] = builders.stamp()
    harness.apply_objects("nodeclaims", same)
    harness.apply_objects("nodes", node("n1", of="c1", managedFields=[]))
    changes = harness.cache.drain_changes()
    assert not changes.nodeclaims and not harness.cache.drain_planner_changes()


def test_nodeclaim_of_another_provider_is_ignored(harness: CacheHarness) -> None:
    other = claim("kwok")
    other["spec"]["nodeClassRef"] = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "x"}
    harness.apply_objects("nodeclaims", other)
    assert "kwok" not in harness.cache.nodeclaims


def test_recreated_nodeclaim_replaces_the_deleted_one(harness: CacheHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c1", uid="uid-again"))
    changes = harness.cache.drain_changes()
    assert set(changes.deleted_nodeclaims) == {"uid-c1"} and changes.nodeclaims == {"c1"}
    assert harness.cache.nodeclaims["c1"].uid == "uid-again"
    harness.delete_objects("nodeclaims", claim("c1"))
    assert "c1" in harness.cache.nodeclaims, "deletion of the first does not delete the second"


def test_assumed_nodeclaim_is_cached_until_the_watch_shows_its_deletion(harness: CacheHarness) -> None:
    expected = builders.claim_fact(name="new", uid="uid-new")
    harness.cache.assume_nodeclaim(expected)
    assert "new" in harness.cache.nodeclaims
    harness.delete_objects("nodeclaims", claim("new"))
    assert "new" not in harness.cache.nodeclaims
    harness.cache.assume_nodeclaim(expected)
    assert "new" not in harness.cache.nodeclaims, "the watch was ahead of the response to the creation"


def test_changed_consolidation_of_a_nodepool_changes_its_nodeclaims(harness: CacheHarness) -> None:
    policy = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}
    harness.apply_objects("nodepools", pool(disruption=policy))
    assert changed_nodeclaims(harness) == {"c1"} and harness.cache.nodepools["general"].consolidation == "WhenEmpty/30s"
    harness.apply_objects("nodepools", pool(disruption=policy, weight=3))
    assert changed_nodeclaims(harness) == set()


def test_changed_nodeclass_changes_its_nodepools(harness: CacheHarness) -> None:
    harness.apply_objects("ec2nodeclasses", node_class(generation=2))
    changes = harness.cache.drain_changes()
    assert changes.nodeclasses == {"default"} and changes.nodepools == {"general"}


def hostile_pod(**changes: Any) -> dict[str, Any]:
    """A pod with fields at paths such as `spec__nodeName` replaced."""
    found = pod("hostile")
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = found
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return found


@pytest.mark.parametrize(
    ("raw", "reason"),
    (
        (hostile_pod(spec__containers=[{"name": "a", "resources": {"requests": {"cpu": "lots"}}}]), "InvalidQuantity"),
        (hostile_pod(spec__containers="none"), "UnexpectedType"),
        (hostile_pod(spec__affinity="none"), "UnexpectedType"),
        (hostile_pod(spec__nodeSelector=["a"]), "InvalidField"),
        (hostile_pod(spec__tolerations=[{"tolerationSeconds": "soon"}]), "InvalidField"),
        (hostile_pod(status__startTime="yesterday"), "InvalidField"),
        (hostile_pod(spec__containers=[{}]), "MissingField"),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unreadable_pod_protects_its_node_and_affects_no_other_pod(
    harness: CacheHarness, raw: dict[str, Any], reason: str
) -> None:
    raw["spec"]["nodeName"] = "n1"
    harness.apply_objects("pods", raw, pod("fine"))
    unreadable = harness.cache.pods["uid-hostile"]
    assert (unreadable.node_name, unreadable.do_not_disrupt) == ("n1", "true")
    assert unreadable.unplannable.startswith("the pod cannot be read: ")
    [found] = harness.cache.invalid_objects.report().objects
    assert (found.kind, found.name, found.reason) == ("Pod", "default/hostile", reason)
    assert "uid-fine" in harness.cache.pods
    harness.apply_objects("pods", pod("hostile", on="n1"))
    assert harness.cache.invalid_objects.report().objects == ()
    assert harness.cache.pods["uid-hostile"].unplannable == ""


@pytest.mark.parametrize(
    ("value", "kept", "problem"),
    (
        ("true", "true", ""),
        ("false", "false", ""),
        ("1h30m", "1h30m", ""),
        ("yes", "", "'yes': invalid duration"),
        ("True", "", "expected e.g. '1h30m', or 'true'; it has no effect"),
        ("Never", "", "'Never': invalid duration"),
        ("\u0663h", "", "invalid duration"),
        ("9" * 4301 + "h", "true", "has 4302 characters"),
        ("9" * 20_000 + "x", "true", "has 20001 characters"),
    ),
    ids=("true", "false", "duration", "word", "capital", "endless", "non-ascii digits", "many digits", "very long"),
)
def test_unreadable_do_not_disrupt_of_a_pod_is_reported(
    harness: CacheHarness, value: str, kept: str, problem: str
) -> None:
    harness.apply_objects("pods", hostile_pod(metadata__annotations={labels.DO_NOT_DISRUPT: value}))
    assert harness.cache.pods["uid-hostile"].do_not_disrupt == kept
    assert harness.cache.pods["uid-hostile"].unplannable == ""
    found = harness.cache.invalid_objects.report().objects
    assert [problem in one.message for one in found] == [True] * bool(problem)
    assert {one.reason for one in found} <= {"InvalidAnnotation"}


@pytest.mark.parametrize(
    ("kind", "value", "effect"),
    (
        ("nodes", "soon", "metadata.annotations[karpenter.sh/do-not-disrupt]: .* it has no effect"),
        ("nodes", "4h", ".*: '4h': a Node accepts only 'true'; it has no effect"),
        ("nodes", "9" * 5000 + "h", "metadata.annotations[karpenter.sh/do-not-disrupt]: .* it has no effect"),
        ("daemonsets", "soon", "spec.template.metadata.annotations[karpenter.sh/do-not-disrupt]: .* it has no effect"),
        ("daemonsets", "9" * 5000 + "h", ".* it protects its pods until it is fixed"),
    ),
    ids=("node", "node-duration", "node-long", "daemonset", "daemonset-long"),
)
def test_unreadable_do_not_disrupt_of_a_node_or_daemonset_is_reported(
    harness: CacheHarness, kind: str, value: str, effect: str
) -> None:
    annotations = {labels.DO_NOT_DISRUPT: value}
    raw = node("n9", annotations=annotations) if kind == "nodes" else _daemonset(annotations)
    harness.apply_objects(kind, raw)
    [found] = harness.cache.invalid_objects.report().objects
    assert (found.kind, found.reason) == ("Node" if kind == "nodes" else "DaemonSet", "InvalidAnnotation")
    assert re.fullmatch(effect.replace("[", r"\[").replace("]", r"\]"), found.message)
    assert "n9" in harness.cache.nodes or "uid-ds" in harness.cache.daemonsets
    harness.delete_objects(kind, raw)
    assert harness.cache.invalid_objects.report().objects == ()


def _daemonset(annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": "ds", "namespace": "default", "uid": "uid-ds", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "metadata": metadata,
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": []}}},
    }


def test_deleted_object_is_not_reported_as_invalid(harness: CacheHarness) -> None:
    with harness.cache.invalid_objects.guard(ObjectKey("Node", "n1", step="signal")):
        raise ValueError("bad")
    harness.delete_objects("nodes", node("n1"))
    assert harness.cache.invalid_objects.report().objects == ()


def test_unreadable_node_keeps_its_last_readable_fact(harness: CacheHarness) -> None:
    before = dict(harness.cache.nodes)
    broken = node("n1") | {"status": {"allocatable": {"cpu": "lots"}}}
    harness.apply_objects("nodes", broken, {"metadata": None}, node("n2"))
    assert harness.cache.nodes["n1"] == before["n1"] and "n2" in harness.cache.nodes
    assert harness.cache.invalid_objects.count() == {("Node", "InvalidQuantity"): 1, ("Node", "UnexpectedType"): 1}
    harness.delete_objects("nodes", node("n1"))
    assert harness.cache.invalid_objects.count() == {("Node", "UnexpectedType"): 1}


@pytest.mark.parametrize("field", ["expireAfter", "terminationGracePeriod"])
def test_nodeclaim_with_an_unreadable_duration_is_cached_and_reported(harness: CacheHarness, field: str) -> None:
    """If the cache left it out, it would never be drained, and its finalizer would stay."""
    raw = claim("c9")
    raw["spec"][field] = "9" * 4301 + "h"
    harness.apply_objects("nodeclaims", raw)
    assert harness.cache.nodeclaims["c9"].expire_after_seconds in (None, 720 * 3600)
    [found] = harness.cache.invalid_objects.report().objects
    assert (found.kind, found.name) == ("NodeClaim", "c9")
    assert f"spec.{field}: '9999" in found.message and "it counts as unset" in found.message


def test_planner_receives_the_latest_state_of_each_object_once(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("a"), pod("a", on="n1"), pod("b"))
    harness.delete_objects("pods", pod("b"))
    changes = harness.cache.drain_planner_changes()
    delivered = [(one.key, one.fact is None) for one in changes]
    assert delivered == [("c1", False), ("uid-a", False), ("uid-b", True)], (
        "the NodeClaim changed because a pod was bound to its node"
    )
    assert harness.cache.drain_planner_changes() == ()
    harness.apply_objects("pods", pod("c"))
    assert {one.key for one in harness.cache.snapshot_changes()} == {"general", "n1", "c1", "uid-a", "uid-c"}
    assert harness.cache.drain_planner_changes() == (), "a snapshot includes the pending changes"


def test_initialization_of_a_nodeclaim_changes_pods(harness: CacheHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c2", phase="Registered"))
    assert harness.cache.drain_changes().pods
    harness.apply_objects("nodeclaims", claim("c2", phase="Registered", annotations={"a": "b"}))
    assert not harness.cache.drain_changes().pods
    harness.apply_objects("nodeclaims", claim("c2", phase="Initialized"))
    assert harness.cache.drain_changes().pods


def last_pod_event(harness: CacheHarness) -> datetime | None:
    return next(
        one.fact.last_pod_event for one in harness.cache.snapshot_changes() if isinstance(one.fact, NodeClaimFact)
    )


def test_planner_receives_the_last_pod_event_of_a_node(harness: CacheHarness) -> None:
    assert last_pod_event(harness) is None
    harness.apply_objects("pods", pod("a", on="n1"))
    assert last_pod_event(harness) == at(0)
    harness.now = at(30)
    harness.apply_objects(
        "pods", pod("a", on="n1", metadata={"labels": {"changed": "yes"}}), pod("d", on="n1", owner="DaemonSet")
    )
    assert last_pod_event(harness) == at(0), "an update of a bound pod and a DaemonSet pod are no pod events"
    harness.delete_objects("pods", pod("a", on="n1"))
    (nodeclaim,) = [one.fact for one in harness.cache.drain_planner_changes() if isinstance(one.fact, NodeClaimFact)]
    assert nodeclaim.last_pod_event == at(30) == last_pod_event(harness)


CREATED_ON_NODE = {**pod("a", on="n2"), "status": {"phase": "Running", "startTime": builders.stamp(-3600)}}


@pytest.mark.parametrize(
    "raw", [with_binding(pod("a", on="n2"), -3600), CREATED_ON_NODE], ids=["bound", "created with its node"]
)
def test_pod_event_of_a_pod_first_seen_as_bound_is_its_binding(harness: CacheHarness, raw: builders.Json) -> None:
    """Otherwise each restart would start `consolidateAfter` of all nodes again."""
    harness.apply_objects("pods", raw)
    harness.apply_objects("nodes", node("n2", of="c2"))
    harness.apply_objects("nodeclaims", claim("c2", phase="Initialized"))
    facts = {one.key: one.fact for one in harness.cache.drain_planner_changes()}
    nodeclaim = facts["c2"]
    assert isinstance(nodeclaim, NodeClaimFact) and nodeclaim.last_pod_event == at(-3600)


def test_pod_event_of_a_newly_bound_pod_is_now(harness: CacheHarness) -> None:
    harness.apply_objects("pods", pod("a"))
    harness.now = at(5)
    harness.apply_objects("pods", pod("a", on="n1"))
    assert last_pod_event(harness) == at(5)


def test_planner_receives_pod_disruption_budgets_and_their_deletion(harness: CacheHarness) -> None:
    budget = {"metadata": {"name": "web", "namespace": "a"}, "spec": {"maxUnavailable": 1}}
    harness.apply_objects("poddisruptionbudgets", budget)
    (change,) = harness.cache.drain_planner_changes()
    assert (change.kind, change.key) == ("pod_budget", "a/web") and change in harness.cache.snapshot_changes()
    harness.delete_objects("poddisruptionbudgets", budget)
    assert [(one.key, one.fact) for one in harness.cache.drain_planner_changes()] == [("a/web", None)]


def test_assumed_nodeclaim_missing_in_the_list_is_forgotten(harness: CacheHarness) -> None:
    for name in ("seen", "unseen"):
        harness.cache.assume_nodeclaim(builders.claim_fact(name=name, uid=f"uid-{name}"))
    harness.apply_objects("nodeclaims", claim("seen"))
    harness.cache.forget_unobserved_nodeclaims(harness.now)
    assert "unseen" in harness.cache.nodeclaims
    harness.cache.forget_unobserved_nodeclaims(harness.now + timedelta(seconds=1))
    assert "unseen" not in harness.cache.nodeclaims and "seen" in harness.cache.nodeclaims
