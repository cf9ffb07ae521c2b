"""PodDisruptionBudgets: whether they let a pod be evicted now."""

from collections.abc import Iterable
from typing import Final

from model.facts import PodBudgetFact, PodFact, Taint
from model.labels import DISRUPTED_TAINT_KEY, NO_SCHEDULE
from scheduling.priced.topology import Census
from scheduling.tolerance import untolerated

_DISRUPTED: Final = Taint(key=DISRUPTED_TAINT_KEY, effect=NO_SCHEDULE)


class PodBudgets:
    """All of them, by namespace."""

    def __init__(self, budgets: Iterable[PodBudgetFact]) -> None:
        self._by_namespace: dict[str, list[tuple[Census, PodBudgetFact]]] = {}
        for one in sorted(budgets, key=lambda one: one.key):
            census = Census("", frozenset({one.namespace}), one.selector)
            self._by_namespace.setdefault(one.namespace, []).append((census, one))

    def of(self, pod: PodFact) -> tuple[PodBudgetFact, ...]:
        known = self._by_namespace.get(pod.namespace, ())
        return tuple(one for census, one in known if census.selects(pod.namespace, pod.labels))

    def never_lets(self, pod: PodFact) -> bool:
        """Some budget will not allow it, however long one waits (reference 2.2)."""
        return pod.namespace in self._by_namespace and any(one.never for one in self.of(pod))

    def refusal(self, pod: PodFact) -> str:
        """Why this pod cannot be evicted now, in words; empty when it can, or does not have to be (reference 4.2)."""
        if pod.namespace not in self._by_namespace or not _is_evicted(pod):
            return ""
        found = self.of(pod)
        said = f"pod {pod.namespace}/{pod.name}"
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            return f"{said} is selected by {len(found)} PodDisruptionBudgets ({names}), and then nothing may evict it"
        for one in found:
            if one.disruptions_allowed <= 0 and not (one.always_allow_unhealthy and pod.ready is False):
                return f"{said}: PodDisruptionBudget {one.key} allows no disruption now"
        return ""


def _is_evicted(pod: PodFact) -> bool:
    """Neither static pods nor those that tolerate the taint are, nor those that end by themselves."""
    if pod.mirror or pod.finished or pod.deleting:
        return False
    return untolerated(pod.tolerations, (_DISRUPTED,)) is not None
