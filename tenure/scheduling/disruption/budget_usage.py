"""Budget headroom as a pass consumes it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tenure.model.disruption.decision import BudgetHeadroom, DisruptionBudgets, Method
from tenure.scheduling.disruption.candidates import Candidate


class BudgetTracker:
    """Every disrupted node counts in its pool, its zone and the cluster, for any reason. One that was never initialized
    neither needs nor uses a budget (reference 1.15, section 3.5)."""

    def __init__(self, allowed_disruptions: DisruptionBudgets) -> None:
        self._allowed_disruptions = allowed_disruptions
        self._pools: Counter[str] = Counter()
        self._zones: Counter[tuple[str, str]] = Counter()
        self._nodes = 0

    def rejection_reason(self, one: Candidate, method: Method, with_others: Sequence[Candidate] = ()) -> str:
        """Why budgets block this node in addition to those others; empty if they allow it."""
        if not one.nodeclaim.initialized:
            return ""
        pool, zone = one.nodeclaim.pool, one.verdict.zone
        same_pool = sum(other.nodeclaim.pool == pool for other in with_others)
        same_zone = sum((other.nodeclaim.pool, other.verdict.zone) == (pool, zone) for other in with_others)
        checks = (
            (
                self._allowed_disruptions.pools.get(pool, {}).get(method),
                self._pools[pool] + same_pool,
                f"NodePool {pool}",
            ),
            (
                self._allowed_disruptions.zones.get(pool, {}).get(zone),
                self._zones[pool, zone] + same_zone,
                f"zone {zone} of {pool}",
            ),
            (self._allowed_disruptions.cluster.get(pool), self._nodes + len(with_others), "the cluster"),
        )
        message = next(
            (
                message
                for budget, spent, scope in checks
                if (message := _exhausted_message(budget, spent, scope, unavailable=not (one.node and one.node.ready)))
            ),
            "",
        )
        return message or self._zone_rejection_reason(pool, zone, with_others)

    def _zone_rejection_reason(self, pool: str, zone: str, with_others: Sequence[Candidate]) -> str:
        rule = self._allowed_disruptions.zones_at_once.get(pool)
        if rule is None:
            return ""
        in_use = {*rule.active_zones, *(used_zone for owner, used_zone in self._zones if owner == pool)}
        in_use |= {one.verdict.zone for one in with_others if one.nodeclaim.pool == pool}
        if zone in in_use or len(in_use) < rule.max_zones:
            return ""
        return (
            f"NodePool {pool} allows disruption in {rule.max_zones} zones at once, in use: {', '.join(sorted(in_use))}"
        )

    def select_allowed(
        self, ordered: Iterable[Candidate], method: Method, most: int
    ) -> tuple[list[Candidate], dict[str, str]]:
        """The first `most` candidates that budgets allow together, and the rejection reasons of those skipped, by
        claim."""
        selected, rejected = list[Candidate](), dict[str, str]()
        for one in ordered:
            if len(selected) == most:
                break
            reason = self.rejection_reason(one, method, selected)
            if reason:
                rejected[one.nodeclaim.name] = reason
            else:
                selected.append(one)
        return selected, rejected

    def count_disrupted(self, disrupted: Iterable[Candidate]) -> None:
        for one in disrupted:
            if not one.nodeclaim.initialized:
                continue
            self._pools[one.nodeclaim.pool] += 1
            self._zones[one.nodeclaim.pool, one.verdict.zone] += 1
            self._nodes += 1


def _exhausted_message(budget: BudgetHeadroom | None, spent: int, scope: str, *, unavailable: bool) -> str:
    allowed = budget.allowed_for(unavailable=unavailable) if budget else 0
    if budget is None or spent < allowed:
        return ""
    taken = f", and this pass takes {spent}" if spent and allowed else ""
    return f"the budgets of {scope} allow {allowed} disruptions{f' ({budget.why})' if budget.why else ''}{taken}"
