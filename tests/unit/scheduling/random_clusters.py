"""Hypothesis strategies for pods, NodePools, nodes and DaemonSets."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tenure.apis.labels import CAPACITY_TYPE, ZONE
from tenure.model.facts import DaemonSetFact, NodeFact, NodePoolFact, PodFact, Taint, Toleration
from tests.unit.scheduling.builders import daemonset, expressions, instance_type, node, pod, pool, taint, toleration

FAMILY = "karpenter.k8s.aws/instance-family"
CPU = "karpenter.k8s.aws/instance-cpu"
INSTANCE_TYPES = tuple(
    instance_type(
        f"{family}.{size}",
        cpu=cpu,
        memory=cpu * ratio,
        price=cpu * cost,
        zones=zones,
        capacity_types=("spot", "on-demand"),
        extra={"nvidia.com/gpu": cpu // 4} if family == "g" else None,
        labels={"karpenter.k8s.aws/instance-gpu-count": str(cpu // 4)} if family == "g" else None,
    )
    for family, ratio, cost, zones in (
        ("c", 2, 0.04, ("a", "b", "c")),
        ("m", 4, 0.05, ("a", "b")),
        ("r", 8, 0.07, ("b", "c")),
        ("g", 4, 0.3, ("a",)),
    )
    for size, cpu in (("large", 2), ("xlarge", 4), ("2xlarge", 8))
)

some_taints = st.lists(
    st.builds(
        taint,
        st.sampled_from(["gpu", "team"]),
        st.sampled_from(["", "red"]),
        st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    ),
    max_size=2,
    unique_by=lambda one: one.key,
).map(tuple)
some_tolerations = st.lists(
    st.builds(
        toleration,
        st.sampled_from(["gpu", "team"]),
        st.sampled_from(["", "red"]),
        st.sampled_from(["", "NoSchedule", "NoExecute"]),
    ),
    max_size=2,
).map(tuple)
phrases = st.sampled_from(
    [
        f"{ZONE} In a b",
        f"{ZONE} NotIn a",
        f"{ZONE} In c",
        f"{CAPACITY_TYPE} In spot",
        f"{CAPACITY_TYPE} NotIn spot",
        f"{FAMILY} In c m",
        f"{FAMILY} NotIn g",
        f"{CPU} Gt 2",
        f"{CPU} Lt 8",
        f"{CPU} Gte 4",
        "karpenter.k8s.aws/instance-gpu-count Exists",
        "karpenter.k8s.aws/instance-gpu-count DoesNotExist",
        "team In red",
        "team NotIn red",
        "team Exists",
        "team DoesNotExist",
    ]
)
terms = st.lists(st.lists(phrases, min_size=1, max_size=2).map(lambda written: expressions(*written)), max_size=2).map(
    tuple
)


More = Callable[[str], dict[str, Any]]
"""Further fields of the pod with this name."""
NO_MORE: st.SearchStrategy[More] = st.just(lambda name: {})


@st.composite
def some_pods(draw: st.DrawFn, more: st.SearchStrategy[More] = NO_MORE) -> list[PodFact]:
    """Pods of up to six shapes with several copies each; each shape draws its own `more`."""
    found: list[PodFact] = []
    for shape in range(draw(st.integers(1, 6))):
        cpu, memory = draw(st.sampled_from([0.1, 0.5, 1, 2, 3.5, 7])), draw(st.sampled_from([0.1, 1, 4, 12, 30]))
        node_terms = draw(terms)
        selector = draw(st.sampled_from([{}, {}, {ZONE: "b"}, {"team": "red"}]))
        preferred = draw(st.sampled_from([{}, {}, {f"{ZONE} In a": 5, f"{FAMILY} In r": 9}]))
        tolerations: tuple[Toleration, ...] = draw(some_tolerations)
        gpus = draw(st.sampled_from([0, 0, 0, 1]))
        extra_fields = draw(more)
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
                    terms=node_terms,
                    preferred=preferred,
                    tolerations=tolerations,
                    **extra_fields(name),
                )
            )
    return found


@st.composite
def some_pools(draw: st.DrawFn) -> list[NodePoolFact]:
    result = []
    for name in draw(st.sets(st.sampled_from(["a", "b", "c"]), max_size=3)):
        requirements = draw(st.lists(phrases, max_size=2))
        limits = draw(st.sampled_from([{}, {}, {"cpu": 20_000}, {"nodes": 2}, {"memory": 64 << 30, "cpu": 40_000}]))
        taints: tuple[Taint, ...] = draw(some_taints)
        weight, labels = draw(st.integers(0, 2)), draw(st.sampled_from([{}, {"site": "x"}]))
        result.append(pool(name, *requirements, limits=limits, taints=taints, weight=weight, template_labels=labels))
    return result


@st.composite
def some_nodes(draw: st.DrawFn) -> list[NodeFact]:
    labels = {ZONE: draw(st.sampled_from("abc")), CAPACITY_TYPE: "on-demand", FAMILY: "m", CPU: "8"}
    team = draw(st.sampled_from([{}, {"team": "red"}, {"team": "blue"}]))
    taints: tuple[Taint, ...] = draw(some_taints)
    number = draw(st.integers(0, 4))
    return [node(f"n{index}", cpu=8, memory=32, labels={**labels, **team}, taints=taints) for index in range(number)]


@st.composite
def some_daemons(draw: st.DrawFn) -> list[DaemonSetFact]:
    result = []
    for number in range(draw(st.integers(0, 2))):
        tolerations: tuple[Toleration, ...] = draw(st.sampled_from([(), (toleration(),)]))
        one = pod(
            f"d{number}",
            cpu=0.3,
            memory=0.2,
            daemonset=True,
            terms=draw(terms),
            tolerations=tolerations,
            labels=draw(st.sampled_from([{}, {"app": "web"}])),
        )
        result.append(daemonset(f"d{number}", one))
    return result
