"""Consolidation of several nodes at once, then of single ones (reference 4.6); consolidationPolicy Balanced (4.7).

Karpenter tries prefixes of one order by binary search. Tenure tries the same prefixes, then all nodes whose pods fit on
other nodes, and these together with prefixes of the rest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Final

from tenure.apis.labels import INSTANCE_TYPE
from tenure.model.disruption.decision import Command, DisruptionSettings, Rejection
from tenure.model.facts import PodFact
from tenure.scheduling.disruption.budget_usage import BudgetTracker
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import ClusterSnapshot
from tenure.scheduling.disruption.commands import build_command
from tenure.scheduling.disruption.cost import price_per_disruption
from tenure.scheduling.disruption.replacement import Replacement, choose_replacement
from tenure.scheduling.disruption.simulation import simulate_removal
from tenure.scheduling.nodepool_template import RejectionReason

BALANCED: Final = "Balanced"
MAX_COST_TO_SAVING_RATIO: Final = 2.0
"""Saving a share of the pool's price may cost at most this many times that share of its disruption cost."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all nodes of a pool, eligible or not."""

    price: float = 0.0
    cost: float = 0.0


def compute_pool_totals(candidates: Iterable[Candidate]) -> dict[str, Totals]:
    found: dict[str, Totals] = {}
    for one in candidates:
        before = found.get(one.nodeclaim.pool, Totals())
        found[one.nodeclaim.pool] = Totals(before.price + one.price, before.cost + one.cost)
    return found


def balance_rejection_reason(removals: Sequence[Candidate], saving: float, pools: Mapping[str, Totals]) -> str:
    """Why a Balanced pool of these nodes rejects the command; empty if all such pools accept it."""
    total_price = sum(one.price for one in removals)
    for pool in sorted({one.nodeclaim.pool for one in removals if _is_balanced(one)}):
        same_pool = [one for one in removals if one.nodeclaim.pool == pool]
        share = saving * sum(one.price for one in same_pool) / total_price if total_price else 0.0
        score = balance_score(share, sum(one.cost for one in same_pool), pools.get(pool, Totals()))
        if score < 1 / MAX_COST_TO_SAVING_RATIO:
            return (
                f"NodePool {pool} is Balanced, and the move scores {score:.2f}, less than "
                f"{1 / MAX_COST_TO_SAVING_RATIO:.2f}"
            )
    return ""


def balance_score(saving: float, cost: float, pool: Totals) -> float:
    """The saved share of the pool's price, divided by the share of its disruption cost; 0 without a gain."""
    if saving <= 0 or pool.price <= 0 or pool.cost <= 0 or cost <= 0:
        return 0.0
    return (saving / pool.price) / (cost / pool.cost)


def _is_balanced(one: Candidate) -> bool:
    return one.pool is not None and one.pool.consolidation_policy == BALANCED


_SAVING_TOLERANCE: Final = 0.01
"""Savings that differ by less than this fraction count as equal; then the smaller disruption cost is better."""
_MAX_DROP_ATTEMPTS: Final = 10
"""Each attempt is a simulation."""


@dataclass(slots=True)
class Consolidation:
    """One pass over the candidates for Underutilized."""

    snapshot: ClusterSnapshot
    budget_tracker: BudgetTracker
    settings: DisruptionSettings
    totals: Mapping[str, Totals]
    simulations: int = 0
    rejected: dict[str, list[str]] = field(default_factory=dict)
    """Rejections by NodeClaim."""
    unreached: list[str] = field(default_factory=list)

    @property
    def has_exhausted_simulations(self) -> bool:
        return self.simulations >= self.settings.most_simulations

    @property
    def has_used_multi_node_share(self) -> bool:
        """Half of the simulations are left for single nodes, so that each pass reaches new ones."""
        return self.simulations >= self.settings.most_simulations // 2

    def find_multi_node(self, candidates: Iterable[Candidate]) -> Command | None:
        """The command that saves most by removing several nodes together; None if no such command saves anything."""
        ordered = sorted(candidates, key=price_per_disruption_order)
        among, rejected = self.budget_tracker.select_allowed(ordered, "Underutilized", self.settings.most_candidates)
        for nodeclaim_name, reason in rejected.items():
            add_rejection(self.rejected, nodeclaim_name, reason)
        if len(among) < 2:
            return None
        rejected_attempts: list[Rejection] = []
        options = list(self._search_multi_node(among, rejected_attempts))
        if not options:
            return None
        removals, replacement = self._retain_equivalent_nodes(*_best_option(options))
        return build_command(
            "Underutilized", "multi" if len(removals) > 1 else "single", removals, replacement, rejected_attempts
        )

    def find_single_node(self, candidates: Iterable[Candidate], first: Sequence[str] = ()) -> Iterator[Command]:
        """Commands for one node each, alternating between pools. `first`: candidates that earlier passes did not reach.
        The caller applies each command before it requests the next."""
        for one in _round_robin_by_pool(candidates, first):
            if one.node_name in self.snapshot.receivers:
                add_rejection(self.rejected, one.nodeclaim.name, "pods of disrupted nodes are expected there")
                continue
            reason = self.budget_tracker.rejection_reason(one, "Underutilized") or balance_rejection_reason(
                (one,), one.price, self.totals
            )
            if reason:
                add_rejection(self.rejected, one.nodeclaim.name, reason)
            elif self.has_exhausted_simulations:
                self.unreached.append(one.nodeclaim.name)
            else:
                result = self.evaluate((one,))
                if isinstance(result, RejectionReason):
                    add_rejection(self.rejected, one.nodeclaim.name, result)
                else:
                    yield build_command("Underutilized", "single", (one,), result)

    def _retain_equivalent_nodes(
        self, removals: Sequence[Candidate], replacement: Replacement
    ) -> tuple[Sequence[Candidate], Replacement]:
        """Keep nodes whose type a replacement may have, if about as much is saved without disrupting them."""
        enough = _hourly_saving(removals, replacement) * (1 - _SAVING_TOLERANCE)
        for one in [
            one
            for one in removals
            if one.instance_type is not None and one.instance_type.name in _replacement_types(replacement)
        ][:_MAX_DROP_ATTEMPTS]:
            rest = [other for other in removals if other is not one]
            result = self.evaluate(rest) if rest else RejectionReason("no candidates remain")
            if not isinstance(result, RejectionReason) and _hourly_saving(rest, result) >= enough:
                removals, replacement = rest, result
        return removals, replacement

    def _search_multi_node(
        self, among: Sequence[Candidate], rejected_attempts: list[Rejection]
    ) -> Iterator[tuple[Sequence[Candidate], Replacement]]:
        result = self.evaluate(among)
        if isinstance(result, RejectionReason):
            rejected_attempts.append(_build_rejection(among, result))
        else:
            yield among, result
        yield from self._search_prefixes((), among, rejected_attempts)
        removable = self._find_removable(among)
        while len(removable) > 1:
            result = self.evaluate(removable)
            if not isinstance(result, RejectionReason):
                yield removable, result
                break
            rejected_attempts.append(_build_rejection(removable, result))
            removable = removable[: len(removable) // 2]
        removable_names = {one.node_name for one in removable}
        if len(removable) > 1:
            yield from self._search_prefixes(
                removable, [one for one in among if one.node_name not in removable_names], rejected_attempts
            )

    def _search_prefixes(
        self, always: Sequence[Candidate], among: Sequence[Candidate], rejected_attempts: list[Rejection]
    ) -> Iterator[tuple[Sequence[Candidate], Replacement]]:
        """Karpenter's search for the longest worthwhile prefix, each combined with the candidates in `always`."""
        low, high = (0 if always else 1), len(among) - 1
        while low <= high and not self.has_used_multi_node_share:
            middle = (low + high) // 2
            removals = [*always, *among[: middle + 1]]
            result = self.evaluate(removals)
            if isinstance(result, RejectionReason):
                rejected_attempts.append(_build_rejection(removals, result))
                high = middle - 1
            else:
                yield removals, result
                low = middle + 1

    def _find_removable(self, among: Sequence[Candidate]) -> list[Candidate]:
        """Candidates whose pods fit on the remaining nodes, each tried after the earlier ones are removed."""
        scratch, removable = self.snapshot.fork(), list[Candidate]()
        received: dict[str, list[PodFact]] = {}
        for one in among:
            if self.has_used_multi_node_share:
                break
            self.simulations += 1
            with_received = replace(one, pods=(*one.pods, *received.get(one.node_name, ())))
            found = simulate_removal(scratch, (with_received,), "Underutilized")
            if not found.attempts:
                continue
            moves = found.attempts[0].packing.nominations
            scratch.apply_removal((with_received,), moves, ())
            for uid, node_name in moves.items():
                received.setdefault(node_name, []).append(found.pods[uid])
            removable.append(one)
        return removable

    def evaluate(self, removals: Sequence[Candidate]) -> Replacement | RejectionReason:
        """Whether removing these nodes together is worthwhile, and their replacements."""
        self.simulations += 1
        before = sum(one.price for one in removals)
        is_one = len(removals) == 1
        found = simulate_removal(self.snapshot, removals, "Underutilized", ceiling=before, one_node=is_one)
        result = choose_replacement(found, self.snapshot, self.settings)
        if isinstance(result, RejectionReason):
            return result
        reason = balance_rejection_reason(removals, before - result.price, self.totals)
        return RejectionReason(reason) if reason else result


def add_rejection(rejected: dict[str, list[str]], nodeclaim_name: str, reason: str) -> None:
    reasons = rejected.setdefault(nodeclaim_name, [])
    if reason not in reasons:
        reasons.append(reason)


def price_per_disruption_order(one: Candidate) -> tuple[float, str]:
    """Price per unit of disruption, highest first."""
    return -price_per_disruption(one.price, one.cost), one.node_name


def _round_robin_by_pool(candidates: Iterable[Candidate], first: Sequence[str]) -> Iterator[Candidate]:
    """One candidate of each pool in turn. Within a pool, the `first` ones come first."""
    early = frozenset(first)
    pools: dict[str, list[Candidate]] = {}
    for one in sorted(candidates, key=lambda one: (one.nodeclaim.name not in early, *price_per_disruption_order(one))):
        pools.setdefault(one.nodeclaim.pool, []).append(one)
    return (one for one in chain.from_iterable(zip_longest(*pools.values())) if one is not None)


def _best_option(options: Iterable[tuple[Sequence[Candidate], Replacement]]) -> tuple[Sequence[Candidate], Replacement]:
    """The option with the highest saving; among similar savings, the one with the least disruption."""
    every = [(_hourly_saving(removals, replacement), removals, replacement) for removals, replacement in options]
    most = max(saving for saving, _, _ in every)
    near = [one for one in every if one[0] >= most * (1 - _SAVING_TOLERANCE)]
    _, removals, replacement = min(near, key=lambda one: (sum(node.cost for node in one[1]), -one[0]))
    return removals, replacement


def _hourly_saving(removals: Iterable[Candidate], replacement: Replacement) -> float:
    """US dollars per hour."""
    return sum(one.price for one in removals) - replacement.price


def _replacement_types(replacement: Replacement) -> set[str]:
    """The instance types that its NodeClaims may have."""
    requirements = [
        one for nodeclaim in replacement.nodeclaims for one in nodeclaim.requirements if one.key == INSTANCE_TYPE
    ]
    return {name for one in requirements for name in one.values}


def _build_rejection(removals: Sequence[Candidate], reason: str) -> Rejection:
    return Rejection(nodes=tuple(one.node_name for one in removals), message=reason)
