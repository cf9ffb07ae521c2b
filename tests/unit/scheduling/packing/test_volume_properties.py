"""Invariants of plans in small clusters with many volumes, checked by `tests/oracle/plan.py`."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.apis.labels import ZONE
from tenure.model.facts import NodeFact, PodFact
from tests.oracle.plan import find_violations
from tests.support.properties import max_examples
from tests.unit.scheduling.builders import node, pod, pool
from tests.unit.scheduling.packing.test_packing_properties import (
    RUNNING,
    Drawn,
    claims_of,
    plan_with_inputs,
    some_limits,
)
from tests.unit.scheduling.packing.test_topology import APP, spread

shapes = st.sets(st.sampled_from(["bound-a", "bound-c", "waits", "picky", "either", "local"]), min_size=1, max_size=3)


@st.composite
def some_pods(draw: st.DrawFn) -> list[PodFact]:
    """Small pods of up to five shapes, most with volume claims, some of which are shared."""
    found: list[PodFact] = []
    skew = draw(st.integers(1, 2))
    for shape in range(draw(st.integers(1, 5))):
        disks = sorted(draw(shapes))
        shared = draw(st.booleans())
        many = draw(st.booleans())
        topology_terms = {"labels": APP, "spreads": spread(max_skew=skew)} if draw(st.booleans()) else {}
        for copy in range(draw(st.integers(1, 6))):
            name = f"p-{shape}-{copy}"
            claims = claims_of(name, (disks, shared))
            if many:
                claims += claims_of(name, (["waits"], not shared))
            found.append(pod(name, cpu=0.1, memory=0.1, volumes=claims, **topology_terms))  # type: ignore[arg-type]
    return found


@st.composite
def random_clusters(draw: st.DrawFn) -> Drawn:
    nodes: list[NodeFact] = [
        node(f"n{number}", labels={ZONE: zone, "team": "red"})
        for number, zone in enumerate(draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3)))
    ]
    running = [
        pod(name, cpu=0.1, memory=0.1, node=name[2:4], labels=APP, volumes=claims_of(name, draw(some_claims())))
        for name in RUNNING
        if name[2:4] in {one.name for one in nodes}
    ]
    pools = [pool()] if draw(st.booleans()) else []
    return draw(some_pods()), pools, nodes, [], running, draw(some_limits(nodes))


@st.composite
def some_claims(draw: st.DrawFn) -> tuple[list[str], bool]:
    return sorted(draw(shapes)), draw(st.booleans())


@settings(max_examples(300), derandomize=True)
@given(random_clusters())
def test_every_plan_is_valid(drawn: Drawn) -> None:
    _, plan, known = plan_with_inputs(drawn)
    assert find_violations(plan, known) == []


@settings(max_examples(150), derandomize=True)
@given(random_clusters())
def test_unschedulable_pod_fits_no_existing_node(drawn: Drawn) -> None:
    """No unschedulable pod fits an existing node. Pods with topology spread are skipped."""
    _, plan, known = plan_with_inputs(drawn)
    for one in plan.unschedulable:
        if known.pods[one.pod_uid].spreads:
            continue
        for name in known.nodes:
            moved = plan.model_copy(
                update={
                    "nominations": {**plan.nominations, one.pod_uid: name},
                    "unschedulable": tuple(other for other in plan.unschedulable if other is not one),
                }
            )
            assert find_violations(moved, known), f"{one.name} fits {name}, but is unschedulable: {one.reason}"
