"""Changes that the planner process has not received yet."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from tenure.apis.labels import CLUSTER_NAME_TAGGED, TAGGED
from tenure.model.facts import NodeClaimFact, PodDisruptionBudgetFact, PodFact
from tenure.scheduling.snapshot import Change, Fact, FactKind

TAGS: Final = (TAGGED, CLUSTER_NAME_TAGGED)


class PlannerChanges:
    def __init__(self) -> None:
        self._pending: dict[tuple[FactKind, str], Change] = {}
        self.disruption_changes = 0
        """Incremented by every change that may affect voluntary disruption."""
        self._pod_events: set[str] = set()

    def record(self, kind: FactKind, key: str, fact: Fact | None, *, affects_disruption: bool = True) -> None:
        self.disruption_changes += affects_disruption
        # A later change of an object replaces an earlier one and goes last, so order holds between kinds.
        self._pending.pop((kind, key), None)
        self._pending[kind, key] = make_change(kind, key, fact)

    def record_pod_event(self, claim: NodeClaimFact) -> None:
        """Record that a pod was bound to the claim's node, left it or changed."""
        self._pod_events.add(claim.name)
        self.record("claim", claim.name, claim, affects_disruption=False)

    def drain_pod_events(self) -> set[str]:
        names, self._pod_events = self._pod_events, set()
        return names

    def drain(self, claim_of: Callable[[str], NodeClaimFact]) -> tuple[Change, ...]:
        """`claim_of`: the current fact of a NodeClaim, by name."""
        changes, self._pending = tuple(self._pending.values()), {}
        return tuple(
            make_change("claim", one.key, claim_of(one.key)) if one.kind == "claim" and one.fact else one
            for one in changes
        )


def make_change(kind: FactKind, key: str, fact: Fact | None) -> Change:
    return Change.model_construct(kind=kind, key=key, fact=fact)


def all_changes(tables: Mapping[FactKind, Mapping[str, Fact]]) -> tuple[Change, ...]:
    return tuple(make_change(kind, key, fact) for kind, table in tables.items() for key, fact in table.items())


def with_last_pod_event(claim: NodeClaimFact, last_event: datetime | None) -> NodeClaimFact:
    """The claim with the time of its last pod event, if this process observed a later one than the claim has."""
    if last_event is None or (claim.last_pod_event is not None and last_event <= claim.last_pod_event):
        return claim
    return claim.model_copy(update={"last_pod_event": last_event})


def has_foreign_changes(old: NodeClaimFact | None, new: NodeClaimFact) -> bool:
    """Whether fields changed that Tenure does not write itself. It writes the last pod event and tag annotations."""
    if old is None:
        return True
    annotations = {key: value for key, value in new.annotations.items() if key not in TAGS}
    annotations |= {key: value for key, value in old.annotations.items() if key in TAGS}
    return new.model_copy(update={"last_pod_event": old.last_pod_event, "annotations": annotations}) != old


def changes_disruption(old: PodFact | None, new: PodFact | None) -> bool:
    """Whether this change of a pod may affect voluntary disruption. Readiness does so only through its budgets."""
    return _disruption_state(old) != _disruption_state(new)


def _disruption_state(pod: PodFact | None) -> object:
    if pod is None or ((pod.daemonset or pod.mirror) and not pod.do_not_disrupt):
        return None
    status = (pod.node_name, pod.is_finished, pod.deleting, pod.do_not_disrupt, pod.priority, pod.deletion_cost)
    return status, pod.requests, pod.devices, pod.labels, pod.unplannable


def budget_state(budget: PodDisruptionBudgetFact | None) -> object:
    """The part of a budget that plans depend on."""
    if budget is None:
        return None
    return budget.selector, budget.disruptions_allowed, budget.never, budget.needs_all, budget.always_allow_unhealthy
