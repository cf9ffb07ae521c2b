"""A pod is read once per change, and an incompatibility is explained once, however many nodes and plans there are."""

import gc
from collections import Counter
from collections.abc import Iterable

import pytest

from tenure.apis.labels import ZONE
from tenure.model.facts import Expression, PodFact
from tenure.model.requirements import Requirement, Requirements
from tenure.scheduling import pods
from tenure.scheduling.packing import pod_requirements
from tenure.scheduling.packing.pod_requirements import PodShape, build_pod_shape
from tenure.scheduling.pods import Constraints, validation_error
from tests.unit.scheduling.builders import Cluster, change, expressions, node, pod, pool, reasons


def test_pod_is_read_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[str] = Counter()

    def count_shape(one: PodFact) -> PodShape:
        reads[f"shape {one.name}"] += 1
        return build_pod_shape(one)

    def count_validation(one: PodFact, constraints: Constraints | None) -> str:
        reads[f"validation {one.name}"] += 1
        return validation_error(one, constraints)

    monkeypatch.setattr(pod_requirements, "build_pod_shape", count_shape)
    monkeypatch.setattr(pod_requirements, "validation_error", count_validation)
    invalid = pod("b", terms=((Expression(key="team", operator="Near", values=("red",)),),))
    cluster = Cluster(pool(), pod("a"), invalid)
    for _ in range(3):
        assert len(cluster.plan().claims) == 1
    assert reads == {"shape a": 1, "shape b": 1, "validation a": 1, "validation b": 1}
    cluster.add(pod("b"))
    assert not cluster.plan().unschedulable
    assert reads == {"shape a": 1, "shape b": 2, "validation a": 1, "validation b": 2}
    cluster.state.apply([change(one).model_copy(update={"fact": None}) for one in (pod("a"), pod("b"))])
    assert not cluster.state._pod_shapes._shapes and not cluster.state._pod_shapes._errors


def test_incompatibility_is_explained_once_per_nodepool(monkeypatch: pytest.MonkeyPatch) -> None:
    explained: list[str] = []
    explain = Requirements.explain_incompatibility

    def count_explanation(self: Requirements, required: Requirements, *rest: Iterable[str]) -> str:
        explained.append(str(required))
        return explain(self, required, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Requirements, "explain_incompatibility", count_explanation)
    zones = [pod(selector={ZONE: zone}) for zone in ("a", "b")]
    cluster = Cluster(pool("a"), pool("b"), *zones, pod(selector={"team": "red"}, cpu=0.1))
    (reason,) = reasons(cluster.plan())
    assert "team In [red] is required and not defined" in reason
    assert explained == ["team In [red]"] * 2


def test_caches_do_not_keep_the_values_of_all_deleted_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a tenant that creates and deletes pods with thousands of values uses up the memory."""
    monkeypatch.setattr(pods, "MAX_CACHED_VALUES", 3_000)
    cluster = Cluster(pool(), node("n"))
    for number in range(20):
        values = " ".join(f"deleted{number}-{value}" for value in range(1_001))
        one = pod(terms=(expressions(f"{ZONE} NotIn {values}"),))
        cluster.add(one)
        assert cluster.plan().nominations == {one.uid: "n"}
        cluster.state.apply([change(one).model_copy(update={"fact": None})])
    requirements = [one for one in gc.get_objects() if isinstance(one, Requirement)]
    assert len({one.values for one in requirements if any("deleted" in value for value in one.values)}) <= 4
