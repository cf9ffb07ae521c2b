"""What holds of every plan by worth, over random worlds, as judged by `scheduling/validation.py`."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from model.catalogue import InstanceType
from model.facts import (
    AffinityTerm,
    DaemonSetFact,
    HostPort,
    NodeFact,
    PodFact,
    PoolFact,
    SpreadConstraint,
    Toleration,
)
from model.labels import CAPACITY_TYPE, HOSTNAME, ZONE
from model.plans import Plan
from scheduling.validation import Given, violations
from tests.scheduling.builders import World, expressions, pod
from tests.scheduling.test_properties import (
    FAMILY,
    KINDS,
    some_daemons,
    some_nodes,
    some_pools,
    some_tolerations,
    terms,
)

keys = st.sampled_from([ZONE, ZONE, HOSTNAME])
apps = st.sampled_from(["app In web", "app In db", "app Exists", "app NotIn web"]).map(expressions)
spreads = st.lists(
    st.builds(
        SpreadConstraint,
        key=st.sampled_from([ZONE, HOSTNAME, CAPACITY_TYPE]),
        max_skew=st.integers(1, 3),
        hard=st.booleans(),
        selector=apps,
        min_domains=st.integers(1, 3),
        honor_affinity=st.booleans(),
        honor_taints=st.booleans(),
    ),
    max_size=2,
).map(tuple)
company = st.lists(st.builds(AffinityTerm, key=keys, selector=apps, weight=st.sampled_from([0, 0, 5])), max_size=1).map(
    tuple
)
ports = st.sampled_from([(), (), (HostPort(port=80),), (HostPort(port=80, address="10.0.0.1"),)])


@st.composite
def some_company(draw: st.DrawFn) -> dict[str, Any]:
    """What a pod says of others; most say nothing."""
    labels = draw(st.sampled_from([{}, {"app": "web"}, {"app": "db"}]))
    said = draw(st.sampled_from(["", "", "spread", "together", "apart", "all"]))
    return {
        "labels": labels,
        "spreads": draw(spreads) if said in ("spread", "all") else (),
        "affinity": draw(company) if said in ("together", "all") else (),
        "anti_affinity": draw(company) if said in ("apart", "all") else (),
        "host_ports": draw(ports),
    }


@st.composite
def some_pods(draw: st.DrawFn) -> list[PodFact]:
    """Up to a dozen shapes in several copies each."""
    found: list[PodFact] = []
    for shape in range(draw(st.integers(1, 6))):
        cpu, memory = draw(st.sampled_from([0.1, 0.5, 1, 2, 3.5, 7])), draw(st.sampled_from([0.1, 1, 4, 12, 30]))
        wanted = draw(terms)
        selector = draw(st.sampled_from([{}, {}, {ZONE: "b"}, {"team": "red"}]))
        preferred = draw(st.sampled_from([{}, {}, {f"{ZONE} In a": 5, f"{FAMILY} In r": 9}]))
        tolerations: tuple[Toleration, ...] = draw(some_tolerations)
        gpus = draw(st.sampled_from([0, 0, 0, 1]))
        others = draw(some_company())
        for copy in range(draw(st.integers(1, 15))):
            name = f"p-{shape}-{copy}"
            extra = {"nvidia.com/gpu": gpus} if gpus else {}
            found.append(
                pod(
                    name,
                    cpu=cpu,
                    memory=memory,
                    extra=extra,
                    selector=selector,
                    terms=wanted,
                    preferred=preferred,
                    tolerations=tolerations,
                    **others,
                )
            )
    return found


@st.composite
def some_running(draw: st.DrawFn, nodes: list[NodeFact]) -> list[PodFact]:
    """Small pods on the nodes that there are."""
    return [
        pod(f"r-{one.name}-{number}", cpu=0.1, memory=0.1, node=one.name, **draw(some_company()))
        for one in nodes
        for number in range(draw(st.integers(0, 2)))
    ]


Drawn = tuple[list[PodFact], list[PoolFact], list[NodeFact], list[DaemonSetFact], list[PodFact]]


@st.composite
def worlds(draw: st.DrawFn) -> Drawn:
    nodes = draw(some_nodes())
    return draw(some_pods()), draw(some_pools()), nodes, draw(some_daemons()), draw(some_running(nodes))


def planned(drawn: Drawn) -> tuple[World, Plan, Given]:
    pods, pools, nodes, daemons, running = drawn
    world = World(*pods, *pools, *nodes, *daemons, *running, kinds=KINDS)
    types: dict[str, InstanceType] = {one.name: one for one in KINDS}
    known = Given(
        pods={one.uid: one for one in pods},
        pools={one.name: one for one in pools},
        types=types,
        nodes={one.name: one for one in nodes},
        bound={one.name: [pod for pod in running if pod.node_name == one.name] for one in nodes},
        daemons=daemons,
    )
    return world, world.plan(), known


@settings(max_examples=150, deadline=None, derandomize=True)
@given(worlds())
def test_every_plan_is_valid(drawn: Drawn) -> None:
    _, plan, known = planned(drawn)
    assert violations(plan, known) == []


@settings(max_examples=50, deadline=None, derandomize=True)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_same_world_gives_the_same_plan_in_whatever_order_it_is_told(drawn: Drawn, order: st.DataObject) -> None:
    _, plan, _ = planned(drawn)
    shuffled: Drawn = tuple(list(facts) for facts in drawn)  # type: ignore[assignment]
    for facts in shuffled:
        order.shuffle(facts)  # type: ignore[attr-defined]
    _, again, _ = planned(shuffled)
    assert again == plan


@settings(max_examples=50, deadline=None, derandomize=True)
@given(worlds())
def test_a_second_pass_over_its_own_result_buys_nothing(drawn: Drawn) -> None:
    world, plan, _ = planned(drawn)
    world.commit(plan)
    again = world.plan(after=1)
    bought = {uid for one in plan.claims for uid in one.pods}
    assert bought <= again.nominations.keys()
    assert not again.claims


@settings(max_examples=50, deadline=None, derandomize=True)
@given(worlds())
def test_what_is_not_placed_has_a_reason(drawn: Drawn) -> None:
    _, plan, _ = planned(drawn)
    assert all(one.reason for one in plan.unplaced)
