"""Which PodDisruptionBudgets select a pod, also in a namespace with thousands of them."""

import time
from itertools import product

from tenure.model.facts import PodDisruptionBudgetFact, Selector, matches_selector
from tenure.scheduling.pod_disruption_budgets import PodDisruptionBudgets
from tests.unit.scheduling.builders import expressions, pod

SELECTORS: tuple[Selector | None, ...] = (
    None,
    (),
    expressions("app In a"),
    expressions("app In a a b"),
    expressions("app In a", "tier NotIn x"),
    expressions("tier Exists"),
    expressions("tier DoesNotExist"),
)


def budget(name: str, selector: Selector | None, namespace: str = "default") -> PodDisruptionBudgetFact:
    return PodDisruptionBudgetFact(namespace=namespace, name=name, selector=selector)


def test_each_selecting_budget_is_found_once_and_in_order() -> None:
    known = [budget(f"b{number}", one) for number, one in enumerate(SELECTORS)]
    budgets = PodDisruptionBudgets([*reversed(known), budget("other", (), "elsewhere")])
    for app, tier in product(("", "a", "b", "c"), ("", "x", "y")):
        labels = {key: value for key, value in (("app", app), ("tier", tier)) if value}
        expected = tuple(one for one in known if matches_selector(one.selector, labels))
        assert budgets.selecting_budgets(pod("p", labels=labels)) == expected


def test_thousands_of_budgets_and_pods_take_little_time() -> None:
    budgets = PodDisruptionBudgets(budget(f"b{number}", expressions(f"app In {number}")) for number in range(3000))
    pods = [pod(f"p{number}", labels={"app": str(number)}) for number in range(3000)]
    began = time.process_time()
    assert all(len(budgets.selecting_budgets(one)) == 1 for one in pods)
    assert time.process_time() - began < 2
