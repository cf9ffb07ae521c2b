"""Invariants of plans over random clusters, checked by `tests/oracle/plan.py`."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, ZONE
from tenure.model.facts import (
    AffinityTerm,
    CSINodeFact,
    DaemonSetFact,
    HostPort,
    NodeFact,
    NodePoolFact,
    PodFact,
    SpreadConstraint,
    StorageClassFact,
    StorageFact,
    Term,
    VolumeClaimFact,
    VolumeFact,
)
from tenure.model.instance_types import InstanceType
from tenure.model.plan import Plan
from tests.oracle.plan import PlanInputs, find_violations
from tests.oracle.volumes import StorageInputs
from tests.support.properties import max_examples
from tests.unit.scheduling.builders import Cluster, csi_node, expressions, pod, pvc, storage_class, volume
from tests.unit.scheduling.random_clusters import INSTANCE_TYPES, More, some_daemons, some_nodes, some_pods, some_pools

keys = st.sampled_from([ZONE, ZONE, HOSTNAME, "team", "rack"])
apps = st.sampled_from(["app In web", "app In db", "app Exists", "app NotIn web"]).map(expressions)
spreads = st.lists(
    st.builds(
        SpreadConstraint,
        key=st.sampled_from([ZONE, ZONE, HOSTNAME, CAPACITY_TYPE, "team"]),
        max_skew=st.integers(1, 3),
        hard=st.booleans(),
        selector=apps,
        min_domains=st.integers(1, 3),
        honor_affinity=st.booleans(),
        honor_taints=st.booleans(),
    ),
    max_size=2,
).map(tuple)
affinity_terms = st.lists(
    st.builds(AffinityTerm, key=keys, selector=apps, weight=st.sampled_from([0, 0, 5])), max_size=2
).map(tuple)
ports = st.sampled_from([(), (), (HostPort(port=80),), (HostPort(port=80, address="10.0.0.1"),)])


@st.composite
def some_topology_terms(draw: st.DrawFn) -> dict[str, Any]:
    """Topology terms of a pod; most pods have none."""
    labels = draw(st.sampled_from([{}, {"app": "web"}, {"app": "db"}]))
    rule = draw(st.sampled_from(["", "", "spread", "affinity", "anti-affinity", "all"]))
    return {
        "labels": labels,
        "spreads": draw(spreads) if rule in ("spread", "all") else (),
        "affinity": draw(affinity_terms) if rule in ("affinity", "all") else (),
        "anti_affinity": draw(affinity_terms) if rule in ("anti-affinity", "all") else (),
        "host_ports": draw(ports),
    }


def storage() -> list[StorageFact]:
    """Volume claims of every kind per pod, claims shared by all pods, and broken claims."""
    shapes = ["bound-a", "bound-c", "waits", "picky", "local", "either"]
    terms_by_shape: dict[str, tuple[str | Term, ...]] = {
        "bound-a": (f"{ZONE} In a",),
        "bound-c": ("topology.ebs.csi.aws.com/zone In c",),
        "local": (expressions(f"{HOSTNAME} In n9", f"{ZONE} NotIn a"),),
        "either": (expressions(f"{ZONE} In a", "team In red"), expressions(f"{ZONE} In b")),
    }
    found: list[StorageFact] = [storage_class("waits"), storage_class("picky", f"{ZONE} In b", f"{ZONE} In c")]
    for shape in shapes:
        for owner in [*(f"p-{number}-{copy}" for number in range(6) for copy in range(15)), *RUNNING, "all"]:
            name = f"{owner}-{shape}"
            if shape in terms_by_shape:
                found += [pvc(name, volume=name), volume(name, *terms_by_shape[shape], local=shape == "local")]
            else:
                found.append(pvc(name, of=shape))
    return [*found, pvc("lost", volume="x", lost=True), pvc("unbound", volume="p-0-1-local", bound=False)]


RUNNING = tuple(f"r-n{node}-{number}" for node in range(4) for number in range(2))
STORAGE = storage()
CLAIMS = st.sampled_from(["", "", "", "bound-a", "bound-c", "waits", "picky", "local", "either"])


@st.composite
def some_volumes(draw: st.DrawFn) -> tuple[list[str], bool]:
    """Up to two kinds of volume claims of a pod shape, mostly none, and whether all pods share the claims."""
    found = draw(st.lists(CLAIMS, max_size=2, unique=True))
    broken = draw(st.sampled_from([[], [], [], [], ["lost"], ["unbound"], ["missing"]]))
    return [one for one in found if one] + broken, draw(st.booleans())


def claims_of(pod_name: str, drawn: tuple[list[str], bool]) -> tuple[str, ...]:
    shapes, shared = drawn
    unprefixed = {"lost", "unbound", "missing"}
    return tuple(one if one in unprefixed else f"{'all' if shared else pod_name}-{one}" for one in shapes)


@st.composite
def some_limits(draw: st.DrawFn, nodes: list[NodeFact]) -> list[CSINodeFact]:
    limits = [draw(st.sampled_from([None, 0, 1, 2, 5])) for _ in nodes]
    return [csi_node(one.name, limit) for one, limit in zip(nodes, limits, strict=True) if limit is not None]


@st.composite
def some_topology_terms_and_volumes(draw: st.DrawFn) -> More:
    others, disks = draw(some_topology_terms()), draw(some_volumes())
    return lambda name: {"volumes": claims_of(name, disks), **others}


@st.composite
def some_running(draw: st.DrawFn, nodes: list[NodeFact]) -> list[PodFact]:
    """Small pods on the existing nodes."""
    found = []
    for one in nodes:
        for number in range(draw(st.integers(0, 2))):
            name = f"r-{one.name}-{number}"
            disks = claims_of(name, draw(some_volumes()))
            found.append(pod(name, cpu=0.1, memory=0.1, node=one.name, volumes=disks, **draw(some_topology_terms())))
    return found


Drawn = tuple[list[PodFact], list[NodePoolFact], list[NodeFact], list[DaemonSetFact], list[PodFact], list[CSINodeFact]]


@st.composite
def some_nodes_without_labels(draw: st.DrawFn) -> list[NodeFact]:
    """Nodes that may lack a topology key, as nodes of other provisioners do."""
    missing = st.sampled_from(["", "", ZONE, CAPACITY_TYPE, "team"])
    lacking = [(one, draw(missing)) for one in draw(some_nodes())]
    return [
        one.model_copy(update={"labels": {label: value for label, value in one.labels.items() if label != key}})
        for one, key in lacking
    ]


@st.composite
def random_clusters(draw: st.DrawFn) -> Drawn:
    nodes = draw(some_nodes_without_labels())
    pods, pools, daemons = draw(some_pods(some_topology_terms_and_volumes())), draw(some_pools()), draw(some_daemons())
    return pods, pools, nodes, daemons, draw(some_running(nodes)), draw(some_limits(nodes))


def plan_with_inputs(drawn: Drawn) -> tuple[Cluster, Plan, PlanInputs]:
    pods, pools, nodes, daemons, running, csi_nodes = drawn
    cluster = Cluster(*pods, *pools, *nodes, *daemons, *running, *STORAGE, *csi_nodes, instance_types=INSTANCE_TYPES)
    types: dict[str, InstanceType] = {one.name: one for one in INSTANCE_TYPES}
    inputs = PlanInputs(
        pods={one.uid: one for one in pods},
        pools={one.name: one for one in pools},
        types=types,
        nodes={one.name: one for one in nodes},
        bound={one.name: [pod for pod in running if pod.node_name == one.name] for one in nodes},
        daemons=daemons,
        disks=StorageInputs(
            claims={one.key: one for one in STORAGE if isinstance(one, VolumeClaimFact)},
            volumes={one.name: one for one in STORAGE if isinstance(one, VolumeFact)},
            classes={one.name: one for one in STORAGE if isinstance(one, StorageClassFact)},
            csi_nodes={one.name: one for one in csi_nodes},
        ),
    )
    return cluster, cluster.plan(), inputs


@settings(max_examples(150), derandomize=True)
@given(random_clusters())
def test_every_plan_is_valid(drawn: Drawn) -> None:
    _, plan, known = plan_with_inputs(drawn)
    assert find_violations(plan, known) == []


@settings(max_examples(50), derandomize=True)
@given(random_clusters(), st.randoms(use_true_random=False))
def test_plan_is_independent_of_the_order_of_facts(drawn: Drawn, order: st.DataObject) -> None:
    _, plan, _ = plan_with_inputs(drawn)
    shuffled: Drawn = tuple(list(facts) for facts in drawn)  # type: ignore[assignment]
    for facts in shuffled:
        order.shuffle(facts)  # type: ignore[attr-defined]
    _, replanned, _ = plan_with_inputs(shuffled)
    assert replanned == plan


@settings(max_examples(50), derandomize=True)
@given(random_clusters(), st.data())
def test_unplannable_pod_changes_no_plan(drawn: Drawn, data: st.DataObject) -> None:
    """The plan is the one without the pod, so an unknown field can remove a purchase and never add one."""
    pods, *others = drawn
    index = data.draw(st.integers(0, len(pods) - 1))
    unplannable = pods[index].model_copy(update={"unplannable": "spec.newField: unknown"})
    without: Drawn = ([*pods[:index], *pods[index + 1 :]], *others)  # type: ignore[assignment]
    with_field: Drawn = ([*pods[:index], unplannable, *pods[index + 1 :]], *others)  # type: ignore[assignment]
    _, plan, _ = plan_with_inputs(with_field)
    _, expected, _ = plan_with_inputs(without)
    assert (plan.claims, plan.nominations) == (expected.claims, expected.nominations)
    assert unplannable.uid in {one.pod_uid for one in plan.unschedulable}


@settings(max_examples(50), derandomize=True)
@given(random_clusters())
def test_second_plan_after_commit_launches_nothing(drawn: Drawn) -> None:
    cluster, plan, _ = plan_with_inputs(drawn)
    cluster.commit(plan)
    replanned = cluster.plan(after=1)
    placed_on_new_nodes = {uid for one in plan.claims for uid in one.pods}
    assert placed_on_new_nodes <= replanned.nominations.keys()
    assert not replanned.claims


@settings(max_examples(50), derandomize=True)
@given(random_clusters())
def test_unschedulable_pod_has_a_reason(drawn: Drawn) -> None:
    _, plan, _ = plan_with_inputs(drawn)
    assert all(one.reason for one in plan.unschedulable)
