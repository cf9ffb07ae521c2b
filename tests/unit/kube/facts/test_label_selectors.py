"""Label selectors of pods and PodDisruptionBudgets: a malformed one is an error of its object only."""

from typing import Any

import pytest

from tenure.kube.facts.objects import pod_budget_fact
from tenure.kube.facts.pods import read_pod
from tenure.model.facts import matches_selector
from tests.support.controller.builders import CacheHarness, pod

INVALID = {
    "operator of node affinity": ({"key": "app", "operator": "Gt", "values": ["1"]}, "expected one of: In, NotIn"),
    "lower case": ({"key": "app", "operator": "exists"}, "expected one of: In, NotIn"),
    "In without values": ({"key": "app", "operator": "In"}, "In expects at least one value"),
    "Exists with values": ({"key": "app", "operator": "Exists", "values": ["web"]}, "Exists expects no values"),
}


def budget(name: str, *expressions: dict[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"selector": {"matchExpressions": expressions}}, "status": {}}


@pytest.mark.parametrize(("expression", "message"), INVALID.values(), ids=INVALID)
def test_invalid_selector_of_a_pod_is_reported_and_the_pod_is_not_planned(
    expression: dict[str, Any], message: str
) -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression]}}
    raw = pod("p")
    raw["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = list[str]()

    def report(error: Exception) -> str:
        found.append(str(error))
        return str(error)

    read_pod(raw, report)
    assert [message in one for one in found] == [True]


@pytest.mark.parametrize(("expression", "message"), INVALID.values(), ids=INVALID)
def test_invalid_selector_of_a_budget_leaves_other_budgets(expression: dict[str, Any], message: str) -> None:
    harness = CacheHarness()
    valid = {"key": "app", "operator": "Exists"}
    harness.apply_objects("poddisruptionbudgets", budget("bad", expression), budget("good", valid))
    assert [one.name for one in harness.cache.pod_budgets.values()] == ["good"]
    ((key, found),) = harness.cache.invalid_objects.items().items()
    assert key.name == "default/bad" and message in found.message


def test_valid_operators_select_pods() -> None:
    some = {"key": "app", "operator": "NotIn", "values": ["db"]}
    selector = pod_budget_fact(budget("b", some, {"key": "old", "operator": "DoesNotExist"})).selector
    assert matches_selector(selector, {"app": "web"}) and not matches_selector(selector, {"app": "db"})
