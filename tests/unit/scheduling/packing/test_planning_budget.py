"""The constraints of one pod do not use up the time or memory of a plan."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest

from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from tenure.model.blockers import LIMITS_EXCEEDED, NO_INSTANCE_TYPE_FITS, POD_UNPLANNABLE, TOPOLOGY
from tenure.model.disruption.decision import DisruptionRequest
from tenure.model.facts import AffinityTerm, HostPort, PodFact, PreferredTerm, SpreadConstraint
from tenure.model.instance_types import InstanceType
from tenure.scheduling.existing_nodes import ExistingNodes
from tenure.scheduling.nodepool_template import Offer
from tenure.scheduling.packing import planning_budget, planning_pass, topology_rules
from tenure.scheduling.packing.nodes import NodeArrays
from tenure.scheduling.packing.packer import Packing
from tenure.scheduling.packing.planning_budget import PlanningBudget
from tenure.scheduling.packing.topology import TopologyIndex
from tenure.scheduling.planner_guard import RETRY_AFTER
from tenure.scheduling.pods import find_excessive_terms, validation_error
from tests.unit.scheduling.builders import (
    NOW,
    Cluster,
    daemonset,
    expressions,
    instance_type,
    node,
    nodeclaim,
    pod,
    pool,
    pvc,
    reasons,
    storage_class,
)
from tests.unit.scheduling.disruption.cluster_builder import pdb

TYPE_COUNT = 30


def many_types() -> tuple[InstanceType, ...]:
    return tuple(instance_type(f"m{number}.large", cpu=4, memory=16) for number in range(TYPE_COUNT))


def spread_pod(name: str, *keys: str, hard: bool = True, **more: Any) -> PodFact:
    spreads = tuple(
        SpreadConstraint(key=key, max_skew=1, selector=expressions("app In spread"), hard=hard) for key in keys
    )
    return pod(name, labels={"app": "spread"}, spreads=spreads, **more)


def terms(count: int, *, weight: int = 0) -> tuple[AffinityTerm, ...]:
    return tuple(
        AffinityTerm(key=HOSTNAME, selector=expressions(f"app In a{number}"), weight=weight) for number in range(count)
    )


def anti_affinity(count: int, selector: str, key: str = ZONE) -> tuple[AffinityTerm, ...]:
    """Required terms with different selectors."""
    return tuple(AffinityTerm(key=key, selector=expressions(selector.format(number=number))) for number in range(count))


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    calls, original = list[Any](), getattr(owner, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


@contextmanager
def at_most_calls(most: int) -> Iterator[None]:
    """Raises an error in the call of a Python function that exceeds the number."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > most:
            raise TimeoutError(f"more than {most} calls, the last in {frame.f_code.co_qualname}")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, steps in (("PASS_STEPS", 400), ("FREE_STEPS", 250), ("FREE_STEPS_PER_POD", 0)):
        monkeypatch.setattr(planning_budget, name, steps)
    return monkeypatch


def test_room_in_domains_is_measured_once_while_no_pod_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = count_calls(monkeypatch, Packing, "_domain_headroom")
    cluster = Cluster(pool(limits={"cpu": 1}), spread_pod("p", INSTANCE_TYPE), instance_types=many_types())
    assert "limit cpu" in reasons(cluster.plan())[0]
    assert len(measured) < TYPE_COUNT


def test_pods_of_unused_requirements_are_not_combined_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    restricted = count_calls(monkeypatch, Offer, "_compute_restricted")
    cluster = Cluster(pool(), spread_pod("p", INSTANCE_TYPE, cpu=100), pod("small"), instance_types=many_types())
    assert len(cluster.plan().unschedulable) == 1
    assert len(restricted) < 5 * TYPE_COUNT


def test_unmatched_pod_affinity_is_found_before_other_domains_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = count_calls(monkeypatch, Packing, "_schedule_by_domain")
    needs_other = AffinityTerm(key=ZONE, selector=expressions("app In absent"))
    cluster = Cluster(pool(), spread_pod("p", INSTANCE_TYPE, affinity=(needs_other,)), instance_types=many_types())
    assert reasons(cluster.plan())[0].startswith(f"pod affinity on {ZONE}: none of the selected pods is in")
    assert len(tried) < TYPE_COUNT


def test_pods_are_compared_only_with_terms_that_name_one_of_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = count_calls(monkeypatch, TopologyIndex, "selects")
    apps = [pod(f"a{number}", labels={"app": f"a{number}"}, anti_affinity=terms(10)) for number in range(30)]
    assert not Cluster(pool(), *apps).plan().unschedulable
    assert 0 < len(compared) < len(apps) * 10


def mutual_pods(count: int, terms_per_pod: int) -> list[PodFact]:
    """Each pod excludes all of them from its zone, by different terms."""
    return [
        pod(f"m{one}", labels={"app": "m"}, anti_affinity=anti_affinity(terms_per_pod, f"app In m m{one}-{{number}}"))
        for one in range(count)
    ]


def test_terms_that_select_the_same_pods_are_combined_by_topology_key(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = count_calls(monkeypatch, planning_pass, "_run_attempt")
    created = count_calls(monkeypatch, topology_rules, "AntiAffinityRule")
    pods, terms_per_pod = 20, 20
    plan = Cluster(pool(), *mutual_pods(pods, terms_per_pod), pod("other")).plan()
    assert 0 < len(created) <= len(attempts) * pods * (terms_per_pod + 1)
    assert {one.code for one in plan.unschedulable} == {TOPOLOGY}
    assert len(plan.unschedulable) == pods - 3 and "other" not in {one.name for one in plan.unschedulable}


@pytest.mark.parametrize(("pods", "terms_per_pod"), [(1, 1), (1, 20), (20, 1)])
def test_many_anti_affinity_terms_of_running_pods_count(pods: int, terms_per_pod: int) -> None:
    nodes = [node(name, labels={ZONE: zone}) for name, zone in (("n", "a"), ("m", "a"), ("o", "b"))]
    running = [
        pod(
            node="n",
            cpu=0.01,
            memory=0.01,
            anti_affinity=(
                *anti_affinity(terms_per_pod, f"app In web a{one}-{{number}}", HOSTNAME),
                *anti_affinity(terms_per_pod, f"app In db a{one}-{{number}}"),
            ),
        )
        for one in range(pods)
    ]
    pending = [pod(app, labels={"app": app}, cpu=5) for app in ("web", "db", "free")]
    plan = Cluster(*nodes, *running, *pending).plan()
    assert plan.nominations == {"web": "m", "db": "o", "free": "n"}


@pytest.mark.parametrize("count", [1, 20])
def test_anti_affinity_of_many_daemonset_pods_excludes_their_nodes(count: int) -> None:
    agents = [
        daemonset(f"agent{number}", pod(cpu=0.01, anti_affinity=anti_affinity(1, f"app In web a{number}", HOSTNAME)))
        for number in range(count)
    ]
    plan = Cluster(pool(), *agents, pod("web", labels={"app": "web"}), pod("other")).plan()
    assert [one.pods for one in plan.claims] == [("other",)]
    assert [one.name for one in plan.unschedulable] == ["web"]


def test_class_that_exceeds_the_budget_is_rejected_and_others_are_planned(small_budget: pytest.MonkeyPatch) -> None:
    costly = spread_pod("costly", INSTANCE_TYPE, ZONE, CAPACITY_TYPE, cpu=2)
    cluster = Cluster(pool(), costly, pod("first", cpu=3), pod("last"), instance_types=many_types())
    plan = cluster.plan()
    assert {uid for claim in plan.claims for uid in claim.pods} == {"first", "last"}
    assert [(one.name, one.code) for one in plan.unschedulable] == [("costly", POD_UNPLANNABLE)]
    assert f"planning takes too long for {INSTANCE_TYPE} with {TYPE_COUNT} values" in plan.unschedulable[0].reason


@pytest.mark.parametrize(
    ("costly", "problem"),
    [
        (
            {
                "terms": tuple(expressions(f"{ZONE} NotIn x{number}") for number in range(4)),
                "preferred": {f"{ZONE} NotIn y{number}": 1 for number in range(10)},
            },
            "its combinations of required terms and preferences",
        ),
        (
            {
                "anti_affinity": tuple(
                    AffinityTerm(key=HOSTNAME, selector=expressions(f"app NotIn x{number}")) for number in range(50)
                )
            },
            "terms that are compared with many pods",
        ),
        (
            {"anti_affinity": anti_affinity(50, "app In web a{number}", HOSTNAME)},
            "terms that are compared with many pods",
        ),
        (
            {
                "affinity": tuple(
                    AffinityTerm(key=f"key-{number}", selector=expressions("app In web")) for number in range(12)
                )
            },
            "terms that are compared with many pods",
        ),
    ],
)
def test_terms_of_many_classes_share_the_budget(small_budget: pytest.MonkeyPatch, costly: Any, problem: str) -> None:
    others = [pod(name, labels={"app": "web"}) for name in ("first", "second")]
    plan = Cluster(pool(), pod("costly", namespace="other", **costly), *others).plan()
    assert [claim.pods for claim in plan.claims] == [("first", "second")]
    assert [(one.name, one.code) for one in plan.unschedulable] == [("costly", POD_UNPLANNABLE)]
    assert problem in plan.unschedulable[0].reason


def test_costly_pass_makes_no_further_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = count_calls(monkeypatch, planning_pass, "_run_attempt")
    cluster = Cluster(pool(), spread_pod("p", INSTANCE_TYPE), instance_types=many_types())
    assert cluster.plan().claims
    assert len(attempts) > 1
    attempts.clear()
    monkeypatch.setattr(planning_pass, "MULTIPLE_ATTEMPTS_STEPS", 0)
    assert cluster.plan().claims
    assert len(attempts) == 1


@pytest.mark.parametrize("keys", [(ZONE,), (INSTANCE_TYPE, ZONE, CAPACITY_TYPE)])
@pytest.mark.parametrize(
    ("cpu", "code", "problem"),
    [(1, LIMITS_EXCEEDED, "limit nodes 1 is reached"), (100, NO_INSTANCE_TYPE_FITS, "needs 100 cpu")],
)
def test_topology_does_not_hide_that_no_node_can_be_launched(
    small_budget: pytest.MonkeyPatch, keys: tuple[str, ...], cpu: int, code: str, problem: str
) -> None:
    costly = spread_pod("costly", *keys, cpu=cpu)
    used = (node("n", cpu=0), nodeclaim("n", on=node("n")))
    plan = Cluster(pool(limits={"nodes": 1}), *used, costly, instance_types=many_types()).plan()
    assert [one.code for one in plan.unschedulable] == [code]
    assert problem in reasons(plan)[0]


def test_class_that_exceeds_the_budget_names_the_limit_that_its_first_nodes_reach(
    small_budget: pytest.MonkeyPatch,
) -> None:
    pods = [spread_pod(f"p{number}", INSTANCE_TYPE, cpu=3) for number in range(9)]
    small_budget.setattr(planning_budget, "FREE_STEPS", 1_500)
    plan = Cluster(pool(limits={"nodes": 2}), *pods, instance_types=many_types()).plan()
    assert len(plan.claims) == 2
    assert {one.code for one in plan.unschedulable} == {LIMITS_EXCEEDED}


def test_pod_that_exceeded_the_budget_is_planned_again_later(small_budget: pytest.MonkeyPatch) -> None:
    cluster = Cluster(pool(), spread_pod("costly", INSTANCE_TYPE), instance_types=many_types())
    rejected = cluster.plan().unschedulable
    small_budget.undo()
    assert cluster.plan(RETRY_AFTER.total_seconds() - 1).unschedulable == rejected
    assert [one.pods for one in cluster.plan(RETRY_AFTER.total_seconds()).claims] == [("costly",)]


@pytest.mark.parametrize("changed", (pool(weight=1), spread_pod("costly", INSTANCE_TYPE)))
def test_change_ends_the_wait_for_the_next_attempt(small_budget: pytest.MonkeyPatch, changed: Any) -> None:
    cluster = Cluster(pool(), spread_pod("costly", INSTANCE_TYPE), instance_types=many_types())
    assert cluster.plan().unschedulable
    small_budget.undo()
    cluster.add(changed)
    assert not cluster.plan().unschedulable


def test_disruption_pass_is_not_stopped_by_pods_that_exceed_the_budget(small_budget: pytest.MonkeyPatch) -> None:
    nodes = [node(name, labels={ZONE: "us-west-2a"}) for name in ("idle", "used")]
    running = spread_pod("running", INSTANCE_TYPE, ZONE, node="used")
    pending = spread_pod("pending", INSTANCE_TYPE, ZONE, CAPACITY_TYPE)
    claims = [nodeclaim(one.name, on=one) for one in nodes]
    cluster = Cluster(pool(consolidate_after="0s"), *nodes, *claims, running, pending, instance_types=many_types())
    decision = cluster.state.disrupt(DisruptionRequest(now=NOW + timedelta(hours=1)))
    assert {one.claim for one in decision.nodes} == {"idle", "used"}


def test_many_expensive_classes_share_the_budget() -> None:
    budget, spent = PlanningBudget(), 0
    for _ in range(100):
        with pytest.raises(planning_budget.BudgetExceededError), budget.share(1):
            while True:
                spent += 100
                budget.spend(100)
    free = planning_budget.FREE_STEPS + planning_budget.FREE_STEPS_PER_POD + 100
    assert spent <= planning_budget.PASS_STEPS + 100 * free


def test_free_steps_are_not_taken_from_the_budget() -> None:
    budget = PlanningBudget()
    for _ in range(1_000):
        with budget.share(1):
            budget.spend(planning_budget.FREE_STEPS)
    with budget.share(1):
        budget.spend(planning_budget.PASS_STEPS // 4)


@pytest.mark.parametrize(
    ("one", "problem"),
    [
        (
            pod(
                terms=tuple(expressions(f"{ZONE} NotIn x{number}") for number in range(40)),
                preferred={f"{ZONE} NotIn y{number}": 1 for number in range(40)},
            ),
            "spec.affinity: 1640 combinations of required terms and preferences, expected at most 1000",
        ),
        (
            pod(
                terms=tuple(expressions(" ".join([ZONE, "NotIn", *map(str, range(2_000))])) for _ in range(30)),
                preferred={f"{ZONE} NotIn y{number}": 1 for number in range(20)},
            ),
            "spec.affinity.nodeAffinity: 1261830 values in all combinations of terms, expected at most 1000000",
        ),
        (pod(anti_affinity=terms(101)), "podAffinity and podAntiAffinity: 101 terms, expected at most 100"),
        (
            pod(affinity=(AffinityTerm(key=ZONE, selector=expressions("a In " + " ".join(map(str, range(1_000))))),)),
            "1001 expressions and values of label selectors, expected at most 1000",
        ),
    ],
)
def test_pod_with_too_many_terms_is_not_planned(one: PodFact, problem: str) -> None:
    plan = Cluster(pool(), one, pod("other")).plan()
    assert [claim.pods for claim in plan.claims] == [("other",)]
    assert problem in reasons(plan)[0] and reasons(plan)[0] == validation_error(one)
    assert plan.unschedulable[0].code == POD_UNPLANNABLE


def test_usual_numbers_of_terms_are_planned() -> None:
    values = " ".join(f"t{number}" for number in range(900))
    one = pod(
        terms=tuple(expressions(f"{INSTANCE_TYPE} NotIn {values}") for _ in range(5)),
        preferred={f"{ZONE} In us-west-2{letter}": 1 for letter in "abcdefghij"},
        anti_affinity=terms(50, weight=1),
    )
    assert not find_excessive_terms(one)


def test_topologies_of_volumes_count_as_combinations() -> None:
    topologies = [expressions(f"{ZONE} In us-west-2{letter}", f"rack In {letter}") for letter in "abc"]
    preferred = tuple(PreferredTerm(weight=1, expressions=expressions("disk In ssd")) for _ in range(400))
    one = pod("p", preferred_terms=preferred, volumes=("data",))
    cluster = Cluster(pool(), storage_class("ebs", *topologies), pvc("data", of="ebs"), one, pod("other"))
    assert (
        "spec.affinity: 1203 combinations of required terms, preferences and topologies" in reasons(cluster.plan())[0]
    )


def test_node_of_a_pod_with_too_many_terms_is_not_disrupted() -> None:
    nodes = [node("n"), node("m")]
    claims = [nodeclaim(one.name, on=one) for one in nodes]
    running = pod("running", node="n", anti_affinity=terms(101))
    cluster = Cluster(pool(consolidate_after="0s"), *nodes, *claims, running)
    decision = cluster.state.disrupt(DisruptionRequest(now=NOW + timedelta(hours=1)))
    verdicts = {one.node: one for one in decision.nodes}
    problem = next(one.message for one in verdicts["n"].excluded if one.cause == POD_UNPLANNABLE)
    assert "101 terms, expected at most 100" in problem
    assert POD_UNPLANNABLE not in [one.cause for one in verdicts["m"].excluded]


@pytest.mark.parametrize(
    ("more", "on_node"),
    [
        pytest.param({"anti_affinity": terms(101)}, {"other namespace"}, id="terms"),
        pytest.param(
            {
                "anti_affinity": terms(2),
                "terms": tuple(expressions(f"{ZONE} NotIn x{number}") for number in range(40)),
                "preferred": {f"{ZONE} NotIn y{number}": 1 for number in range(40)},
            },
            {"not selected", "other namespace"},
            id="node affinity",
        ),
    ],
)
def test_required_anti_affinity_of_a_running_pod_with_too_many_terms_counts(more: Any, on_node: set[str]) -> None:
    pending = [
        pod("selected", labels={"app": "a1"}),
        pod("not selected", labels={"app": "b"}),
        pod("other namespace", labels={"app": "a1"}, namespace="other"),
    ]
    plan = Cluster(pool(), node("n"), pod("running", node="n", **more), *pending).plan()
    assert not plan.unschedulable
    assert plan.nominations.keys() == on_node


def test_daemonset_with_too_many_terms_is_reported() -> None:
    cluster = Cluster(pool(), daemonset("bad", pod(anti_affinity=terms(101))), pod("p"))
    assert [one.pods for one in cluster.plan().claims] == [("p",)]
    assert [key.name for key in cluster.state.guard.invalid_objects.items()] == ["kube-system/bad"]


def test_time_grows_linearly_with_host_ports() -> None:
    """Otherwise, a few pods with thousands of ports stop the planner."""
    ports = tuple(HostPort(port=number) for number in range(1, 2_001))
    elsewhere = tuple(one.model_copy(update={"port": 10_000 + one.port}) for one in ports)
    running = pod("running", node="n", host_ports=ports)
    cluster = Cluster(pool(), node("n"), running, pod("p", host_ports=elsewhere), pod("q", host_ports=ports))
    cluster.add(daemonset("agent", pod(selector={"a": "b"}, host_ports=ports)))
    with at_most_calls(500_000):
        plan = cluster.plan()
    assert plan.nominations == {"p": "n"} and [one.pods for one in plan.claims] == [("q",)]


def test_resources_that_no_node_has_take_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server accepts thousands of extended resources in one pod, and each column has an amount of every node.
    A kubelet ignores those that its node lacks, so that such pods run, too."""
    created = count_calls(monkeypatch, NodeArrays, "__init__")
    unknown = {f"example.com/r{number:03}": 1 for number in range(200)}
    nodes = [node(name) for name in ("n", "m")]
    claims = [nodeclaim(one.name, on=one) for one in nodes]
    running = pod("running", node="n", extra=unknown)
    consolidated = pool(consolidate_after="0s", consolidation_policy="WhenEmptyOrUnderutilized")
    cluster = Cluster(consolidated, *nodes, *claims, running, pod("p", extra=unknown), pod("q"))
    plan, decision = cluster.plan(), cluster.state.disrupt(DisruptionRequest(now=NOW + timedelta(hours=1)))
    assert reasons(plan) == ["pool default: no instance type has example.com/r000"]
    assert plan.nominations == {"q": "m"} and not decision.commands
    rejected = next(one.rejected for one in decision.nodes if one.node == "n")
    assert "pod default/running fits nowhere" in rejected[0] and len(rejected[0]) < 300
    assert max(len(args[2]) for args in created) <= 5


def test_labels_that_no_node_has_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pod may exclude values of thousands of labels."""
    compared = count_calls(monkeypatch, ExistingNodes, "_label_values")
    excluding = pod(
        terms=(expressions(*(f"example.com/k{number} NotIn x" for number in range(200)), "team NotIn red"),)
    )
    cluster = Cluster(pool(), node("n", labels={"team": "red"}), node("m"), excluding)
    assert set(cluster.plan().nominations.values()) == {"m"}
    assert {args[1] for args in compared} <= {"team"}


def test_pods_are_not_compared_with_every_expression_of_a_budget() -> None:
    excluding = [f"example.com/k{number} NotIn x" for number in range(2_000)]
    running = [pod(node="n", cpu=0.1, memory=0.1) for _ in range(20)]
    one = node("n")
    cluster = Cluster(pool(consolidate_after="0s"), one, nodeclaim("n", on=one), *running, pdb("pdb", *excluding))
    with at_most_calls(50_000):
        decision = cluster.state.disrupt(DisruptionRequest(now=NOW + timedelta(hours=1)))
    assert "PodDisruptionBudget default/pdb allows no disruption now" in str(decision.nodes[0].excluded)
