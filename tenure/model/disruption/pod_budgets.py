"""The PodDisruptionBudgets that select a pod. Tenants write both, and a pass looks up every pod of its nodes."""

from collections.abc import Iterable, Iterator, Mapping

from tenure.model.facts import PodDisruptionBudgetFact, PodFact, Selector
from tenure.model.provider_results import DrainPod


class PodBudgetIndex:
    """PodDisruptionBudgets by a label that they require: a namespace may have thousands."""

    def __init__(self, budgets: Iterable[PodDisruptionBudgetFact] = ()) -> None:
        self._by_label: dict[tuple[str, str, str], list[tuple[_CompiledSelector, PodDisruptionBudgetFact]]] = {}
        """By namespace, key and value; those that require no value have an empty key."""
        for one in budgets:
            if one.selector is not None:
                compiled = _CompiledSelector(one.selector)
                for label in compiled.required_labels():
                    self._by_label.setdefault((one.namespace, *label), []).append((compiled, one))

    def selecting_budgets(self, pod: PodFact | DrainPod) -> tuple[PodDisruptionBudgetFact, ...]:
        """Sorted by name."""
        labels = (("", ""), *pod.labels.items())
        known = (one for label in labels for one in self._by_label.get((pod.namespace, *label), ()))
        return tuple(sorted((one for selector, one in known if selector.matches(pod.labels)), key=lambda one: one.name))


class _CompiledSelector:
    """A lookup takes time for the labels of the pod, and not for the expressions, of which there may be thousands."""

    def __init__(self, selector: Selector) -> None:
        self._allowed: dict[str, frozenset[str] | None] = {}
        """By label that must exist, its values; None for any."""
        self._rejected: dict[str, set[str]] = {}
        self._absent: set[str] = set()
        for one in selector:
            match one.operator:
                case "In":
                    values, known = frozenset(one.values), self._allowed.get(one.key)
                    self._allowed[one.key] = values if known is None else known & values
                case "Exists":
                    self._allowed.setdefault(one.key, None)
                case "NotIn":
                    self._rejected.setdefault(one.key, set()).update(one.values)
                case _:
                    self._absent.add(one.key)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return (
            self._allowed.keys() <= labels.keys()
            and self._absent.isdisjoint(labels)
            and all(values is None or labels[key] in values for key, values in self._allowed.items())
            and not any(value in self._rejected.get(key, ()) for key, value in labels.items())
        )

    def required_labels(self) -> Iterator[tuple[str, str]]:
        """One of these labels is on each pod that the selector matches. An empty key stands for any pod."""
        key, values = next(((key, found) for key, found in self._allowed.items() if found is not None), ("", {""}))
        return ((key, value) for value in values)
