"""NodeClaims of one plan count in the next before any cache shows them; limits apply across plans."""

from typing import Any

import pytest

from tenure.apis.labels import HOSTNAME, ZONE
from tenure.model.facts import AffinityTerm, SpreadConstraint
from tenure.model.instance_types import Catalogue
from tenure.model.plan import Plan
from tenure.scheduling.cluster_state import Change
from tenure.scheduling.packing.packer import Packing
from tenure.scheduling.packing.pod_classes import PodClass
from tests.unit.scheduling.builders import (
    COMMON,
    Cluster,
    daemonset,
    expressions,
    instance_type,
    launched_nodeclaim,
    node,
    nodeclaim,
    pod,
    pods,
    pool,
    reasons,
    types_of,
)


def test_pods_of_committed_nodeclaims_are_not_planned_again() -> None:
    cluster = Cluster(pool(), *pods(10))
    first = cluster.plan()
    names = cluster.commit(first)
    replanned = cluster.plan(after=1)
    assert not replanned.claims
    assert {uid: replanned.nominations[uid] for one in first.claims for uid in one.pods} == {
        uid: name for name, one in names.items() for uid in one.pods
    }


def test_later_pods_join_an_unlaunched_nodeclaim_if_they_fit_every_type_that_it_may_get() -> None:
    """Such as the second of two evicted pods, which its controller creates a second later."""
    cluster = Cluster(pool("default", "karpenter.k8s.aws/instance-cpu Gt 1"), pod("first", cpu=0.4))
    (name,) = cluster.commit(cluster.plan())
    cluster.add(pod("second", cpu=0.4))
    assert cluster.plan(after=1).nominations == {"first": name, "second": name}
    cluster.add(pod("third", cpu=1.8))
    later = cluster.plan(after=1)
    assert [one.pods for one in later.claims] == [("third",)], "the smallest type has no room for it"
    assert later.nominations.keys() == {"first", "second"}


def test_promised_pods_are_placed_without_a_scan_of_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, scanned, assign = Cluster(pool(), *pods(10)), list[int](), Packing._pack_pods
    cluster.commit(cluster.plan())

    def assign_counted(packing: Packing, one: PodClass, *more: Any) -> None:
        scanned.append(len(one.pods))
        assign(packing, one, *more)

    monkeypatch.setattr(Packing, "_pack_pods", assign_counted)
    assert len(cluster.plan(after=1).nominations) == 10
    assert scanned == [1] * 10


def test_pods_that_a_node_was_launched_for_do_not_exclude_each_other() -> None:
    """The plan placed the small pod first, as kube-scheduler may do."""
    spread = SpreadConstraint(key=HOSTNAME, max_skew=1, selector=expressions("app In web"))
    web = [pod(f"web-{number}", cpu=0.5, labels={"app": "web"}) for number in range(3)]
    cluster = Cluster(pool(), pod("small", cpu=0.1, spreads=(spread,)), *web)
    first = cluster.plan()
    assert [sorted(one.pods) for one in first.claims] == [["small", "web-0", "web-1", "web-2"]]
    cluster.commit(first)
    second = cluster.plan(after=1)
    assert not second.claims
    assert len(second.nominations) == 4


def test_pods_stay_on_the_node_that_was_launched_for_them_and_the_pods_of_their_affinity() -> None:
    follows = AffinityTerm(key=HOSTNAME, selector=expressions("app In web"))
    others = [pod(f"other-{number}", cpu=3) for number in range(3)]
    cluster = Cluster(pool(), pod("web", cpu=0.5, labels={"app": "web"}), pod("follower", affinity=(follows,)), *others)
    names = cluster.commit(cluster.plan())
    second = cluster.plan(after=1)
    assert {uid: name for name, one in names.items() for uid in one.pods} == second.nominations


def test_committed_nodeclaim_that_never_appears_counts_for_a_minute() -> None:
    cluster = Cluster(pool(), pod("p"))
    cluster.commit(cluster.plan())
    assert not cluster.plan(after=59).claims
    assert cluster.plan(after=60).claims


def test_deleted_nodeclaim_releases_its_pods_at_once() -> None:
    cluster = Cluster(pool(), pod("p"))
    [name] = cluster.commit(cluster.plan())
    cluster.add(nodeclaim(name))
    cluster.state.apply([Change(kind="claim", key=name, fact=None)])
    assert [one.pods for one in cluster.plan(after=2).claims] == [("p",)]


def test_nominations_are_kept_when_larger_pods_arrive() -> None:
    cluster = Cluster(pool(), *[pod(f"old-{n}") for n in range(3)])
    [name] = cluster.commit(cluster.plan())
    cluster.add(pod("new", cpu=3))
    plan = cluster.plan(after=1)
    assert set(plan.nominations) == {"old-0", "old-1", "old-2"}
    assert set(plan.nominations.values()) == {name}
    assert [one.pods for one in plan.claims] == [("new",)]


def test_nominations_are_kept_through_launch_and_registration() -> None:
    cluster = Cluster(pool(), pod("p", preferred={f"{ZONE} In c": 1}))
    [(name, planned)] = cluster.commit(cluster.plan()).items()
    running = launched_nodeclaim(name, planned, COMMON[0], zone="c")
    cluster.add(running, node("idle"))
    assert cluster.plan(after=5).nominations == {"p": name}
    joined = node("joined", provider_id=running.provider_id, labels=running.labels)
    cluster.add(joined, running.model_copy(update={"registered": True, "node_name": "joined"}))
    assert cluster.plan(after=30).nominations == {"p": "joined"}


def test_nomination_ends_when_its_nodeclaim_is_being_deleted() -> None:
    cluster = Cluster(pool(), pod("p"))
    [(name, planned)] = cluster.commit(cluster.plan()).items()
    cluster.add(launched_nodeclaim(name, planned, COMMON[0], deleting=True))
    assert [one.pods for one in cluster.plan(after=5).claims] == [("p",)]


def test_pod_bound_elsewhere_releases_its_nomination() -> None:
    cluster = Cluster(pool(), pod("p", cpu=2))
    [name] = cluster.commit(cluster.plan())
    cluster.add(pod("p", cpu=2, node="elsewhere"), pod("q", cpu=2))
    assert cluster.plan(after=1).nominations == {"q": name}


# --- limits ----------------------------------------------------------------------------------------------------------
def total_capacity_bound(plan: Plan, resource: str) -> int:
    return sum(one.capacity_bound[resource] for one in plan.claims)


def test_cpu_limit_holds_for_the_largest_possible_type() -> None:
    plan = Cluster(pool(limits={"cpu": 20_000}), *pods(100)).plan()
    assert total_capacity_bound(plan, "cpu") == 20_000
    assert len(plan.unschedulable) == 100 - 7 - 7 - 3
    assert reasons(plan)[0] == ("pool default: limit cpu 20: 0 left, the smallest instance type that fits has 2")


def test_node_limit_counts_nodes() -> None:
    plan = Cluster(pool(limits={"nodes": 2}), *pods(30)).plan()
    assert len(plan.claims) == 2
    assert "limit nodes 2 is reached" in reasons(plan)[0]


def test_existing_nodes_count_against_the_limit_unless_deleting() -> None:
    old = node("n", cpu=8)
    existing = nodeclaim("c", on=old)
    busy = pod(cpu=8, node="n")
    assert not Cluster(pool(limits={"cpu": 8_000}), old, existing, busy, pod()).plan().claims
    terminating = existing.model_copy(update={"deleting": True})
    assert Cluster(pool(limits={"cpu": 16_000}), old, terminating, pod()).plan().claims


def test_in_flight_nodeclaims_count_with_their_largest_type() -> None:
    cluster = Cluster(pool(limits={"cpu": 11_000}), pod("p"))
    first = cluster.plan()
    cluster.commit(first)
    cluster.add(pod("q", cpu=7), pod("r", cpu=1))
    second = cluster.plan(after=1)
    assert total_capacity_bound(first, "cpu") + total_capacity_bound(second, "cpu") <= 11_000
    assert [one.name for one in second.unschedulable] == ["q"], (
        "without the in-flight NodeClaim the limit would allow q"
    )


def test_next_nodepool_is_used_when_one_reaches_its_limit() -> None:
    plan = Cluster(pool("a", limits={"nodes": 1}, weight=5), pool("b"), *pods(14)).plan()
    assert sorted((one.pool, len(one.pods)) for one in plan.claims) == [("a", 7), ("b", 7)]


def test_limit_on_a_resource_without_type_is_ignored() -> None:
    assert Cluster(pool(limits={"example.com/fpga": 0}), pod()).plan().claims


@pytest.mark.parametrize("limit", [0, 1_000])
def test_limit_below_the_smallest_type_allows_nothing(limit: int) -> None:
    assert not Cluster(pool(limits={"cpu": limit}), pod()).plan().claims


def test_changed_daemonset_applies_to_the_next_plan() -> None:
    cluster = Cluster(pool(), *pods(7))
    assert len(cluster.plan().claims) == 1
    cluster.add(daemonset("agent", pod("template", cpu=4, daemonset=True)))
    assert len(cluster.plan().claims) == 3
    cluster.state.apply([Change(kind="daemonset", key="ds-agent", fact=None)])
    assert len(cluster.plan().claims) == 1


def test_changed_price_changes_the_order_of_types() -> None:
    cluster = Cluster(pool(), pod(), instance_types=(instance_type("a", price=1), instance_type("b", price=2)))
    assert types_of(cluster.plan().claims[0]) == ("a", "b")
    cheaper = Catalogue(by_node_class={"default": (instance_type("a", price=3), instance_type("b", price=2))})
    cluster.state.set_catalogue(cheaper)
    assert types_of(cluster.plan().claims[0]) == ("b", "a")
