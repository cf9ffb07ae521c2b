"""Nodes that are not worth what they cost: several at once, then one by one (reference 4.6).

Karpenter tries prefixes of one order by binary search. Here the same prefixes are tried, and then what they miss: every
node whose pods have room elsewhere, whatever stands before it in the order, and others replaced together with those.

consolidationPolicy Balanced: what a move saves has to be in proportion to what it disturbs (reference 4.7).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Final

from tenure.apis.labels import INSTANCE_TYPE
from tenure.model.disruption.planning import Command, DisruptionSettings, Rejection
from tenure.model.facts import PodFact
from tenure.scheduling.disruption.budgets import Purse
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import Stage
from tenure.scheduling.disruption.commands import command_of
from tenure.scheduling.disruption.cost import worth_moving
from tenure.scheduling.disruption.replacement import Replaced, evaluate
from tenure.scheduling.disruption.simulation import simulate
from tenure.scheduling.nodepool_template import Refusal

BALANCED: Final = "Balanced"
K: Final = 2.0
"""A share of the pool's cost is saved for at most so many times that share of its disruption."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all nodes of a pool, whether they may go or not."""

    price: float = 0.0
    cost: float = 0.0


def totals(candidates: Iterable[Candidate]) -> dict[str, Totals]:
    found: dict[str, Totals] = {}
    for one in candidates:
        before = found.get(one.claim.pool, Totals())
        found[one.claim.pool] = Totals(before.price + one.price, before.cost + one.cost)
    return found


def unbalanced(leaving: Sequence[Candidate], saving: float, pools: Mapping[str, Totals]) -> str:
    """Why a Balanced pool among those of the nodes does not accept the move; empty when all do."""
    whole = sum(one.price for one in leaving)
    for pool in sorted({one.claim.pool for one in leaving if _is_balanced(one)}):
        mine = [one for one in leaving if one.claim.pool == pool]
        share = saving * sum(one.price for one in mine) / whole if whole else 0.0
        score = score_of(share, sum(one.cost for one in mine), pools.get(pool, Totals()))
        if score < 1 / K:
            return f"NodePool {pool} is Balanced, and the move scores {score:.2f}, less than {1 / K:.2f}"
    return ""


def score_of(saving: float, cost: float, pool: Totals) -> float:
    """The share of the pool's price that is saved, for the share of its disruption that it takes; 0 for no gain."""
    if saving <= 0 or pool.price <= 0 or pool.cost <= 0 or cost <= 0:
        return 0.0
    return (saving / pool.price) / (cost / pool.cost)


def _is_balanced(one: Candidate) -> bool:
    return one.pool is not None and one.pool.consolidation_policy == BALANCED


_ALIKE: Final = 0.01
"""Savings that differ by less than this part are the same; then the smaller disruption is better."""
_MOST_SPARED: Final = 10
"""Tries, each a simulation."""


@dataclass(slots=True)
class Consolidation:
    """One pass over the candidates for Underutilized."""

    stage: Stage
    purse: Purse
    settings: DisruptionSettings
    totals: Mapping[str, Totals]
    simulations: int = 0
    rejected: dict[str, list[str]] = field(default_factory=dict)
    """By claim what was found against it."""
    unreached: list[str] = field(default_factory=list)

    @property
    def exhausted(self) -> bool:
        return self.simulations >= self.settings.most_simulations

    @property
    def searched(self) -> bool:
        """Half is left for single nodes, so that each pass reaches some that the one before did not."""
        return self.simulations >= self.settings.most_simulations // 2

    def multi(self, candidates: Iterable[Candidate]) -> Command | None:
        """The most that can be saved by taking several nodes together; None where nothing can."""
        ordered = sorted(candidates, key=by_worth)
        among, refused = self.purse.allowed(ordered, "Underutilized", self.settings.most_candidates)
        for claim, reason in refused.items():
            self._reject(claim, reason)
        if len(among) < 2:
            return None
        tried: list[Rejection] = []
        found = list(self._together(among, tried))
        if not found:
            return None
        leaving, replaced = self._spared(*_best(found))
        return command_of("Underutilized", "multi" if len(leaving) > 1 else "single", leaving, replaced, tried)

    def single(self, candidates: Iterable[Candidate], first: Sequence[str] = ()) -> Iterator[Command]:
        """One node after the other, pool by pool in turn, `first` those that were not reached before. The caller takes
        each command into account before it asks for the next."""
        for one in _in_turn(candidates, first):
            if one.name in self.stage.receivers:
                self._reject(one.claim.name, "pods of nodes that go are expected there")
                continue
            reason = self.purse.refusal(one, "Underutilized") or unbalanced((one,), one.price, self.totals)
            if reason:
                self._reject(one.claim.name, reason)
            elif self.exhausted:
                self.unreached.append(one.claim.name)
            else:
                answer = self.judge((one,))
                if isinstance(answer, Refusal):
                    self._reject(one.claim.name, answer)
                else:
                    yield command_of("Underutilized", "single", (one,), answer)

    def _spared(self, leaving: Sequence[Candidate], replaced: Replaced) -> tuple[Sequence[Candidate], Replaced]:
        """Without nodes that would be bought again as they are, where about as much is saved when they stay."""
        enough = _saving(leaving, replaced) * (1 - _ALIKE)
        for one in [one for one in leaving if one.kind is not None and one.kind.name in _types(replaced)][
            :_MOST_SPARED
        ]:
            rest = [other for other in leaving if other is not one]
            answer = self.judge(rest) if rest else Refusal("nothing would go")
            if not isinstance(answer, Refusal) and _saving(rest, answer) >= enough:
                leaving, replaced = rest, answer
        return leaving, replaced

    def _together(
        self, among: Sequence[Candidate], tried: list[Rejection]
    ) -> Iterator[tuple[Sequence[Candidate], Replaced]]:
        answer = self.judge(among)
        if isinstance(answer, Refusal):
            tried.append(_rejection(among, answer))
        else:
            yield among, answer
        yield from self._prefixes((), among, tried)
        removable = self._removable(among)
        while len(removable) > 1:
            answer = self.judge(removable)
            if not isinstance(answer, Refusal):
                yield removable, answer
                break
            tried.append(_rejection(removable, answer))
            removable = removable[: len(removable) // 2]
        kept = {one.name for one in removable}
        if len(removable) > 1:
            yield from self._prefixes(removable, [one for one in among if one.name not in kept], tried)

    def _prefixes(
        self, always: Sequence[Candidate], among: Sequence[Candidate], tried: list[Rejection]
    ) -> Iterator[tuple[Sequence[Candidate], Replaced]]:
        """Karpenter's search for the longest prefix that is worth it, each with those that go `always`."""
        low, high = (0 if always else 1), len(among) - 1
        while low <= high and not self.searched:
            middle = (low + high) // 2
            leaving = [*always, *among[: middle + 1]]
            answer = self.judge(leaving)
            if isinstance(answer, Refusal):
                tried.append(_rejection(leaving, answer))
                high = middle - 1
            else:
                yield leaving, answer
                low = middle + 1

    def _removable(self, among: Sequence[Candidate]) -> list[Candidate]:
        """Those whose pods have room on what stays, each tried after those before it are gone."""
        scratch, gone = self.stage.again(), list[Candidate]()
        received: dict[str, list[PodFact]] = {}
        for one in among:
            if self.searched:
                break
            self.simulations += 1
            heavier = replace(one, pods=(*one.pods, *received.get(one.name, ())))
            found = simulate(scratch, (heavier,), "Underutilized")
            if not found.attempts:
                continue
            moves = found.attempts[0].packing.nominations
            scratch.commit((heavier,), moves, ())
            for uid, home in moves.items():
                received.setdefault(home, []).append(found.pods[uid])
            gone.append(one)
        return gone

    def judge(self, leaving: Sequence[Candidate]) -> Replaced | Refusal:
        """Whether these are worth taking away together, and what replaces them."""
        self.simulations += 1
        before = sum(one.price for one in leaving)
        one = len(leaving) == 1 and not self.settings.replace_one_by_several
        found = simulate(self.stage, leaving, "Underutilized", ceiling=before - self.settings.threshold, one_node=one)
        answer = evaluate(found, self.stage, self.settings)
        if isinstance(answer, Refusal):
            return answer
        reason = unbalanced(leaving, before - answer.price, self.totals)
        return Refusal(reason) if reason else answer

    def _reject(self, claim: str, words: str) -> None:
        said = self.rejected.setdefault(claim, [])
        if words not in said:
            said.append(words)


def by_worth(one: Candidate) -> tuple[float, str]:
    """What is paid for each unit of disruption, highest first."""
    return -worth_moving(one.price, one.cost), one.name


def _in_turn(candidates: Iterable[Candidate], first: Sequence[str]) -> Iterator[Candidate]:
    """Pool by pool in turn, each in its order."""
    sooner = frozenset(first)
    pools: dict[str, list[Candidate]] = {}
    for one in sorted(candidates, key=lambda one: (one.claim.name not in sooner, *by_worth(one))):
        pools.setdefault(one.claim.pool, []).append(one)
    return (one for one in chain.from_iterable(zip_longest(*pools.values())) if one is not None)


def _best(found: Iterable[tuple[Sequence[Candidate], Replaced]]) -> tuple[Sequence[Candidate], Replaced]:
    """What saves most; of those that save about as much what disturbs least."""
    every = [(_saving(leaving, answer), leaving, answer) for leaving, answer in found]
    most = max(saving for saving, _, _ in every)
    near = [one for one in every if one[0] >= most * (1 - _ALIKE)]
    _, leaving, answer = min(near, key=lambda one: (sum(node.cost for node in one[1]), -one[0]))
    return leaving, answer


def _saving(leaving: Iterable[Candidate], answer: Replaced) -> float:
    """US dollars an hour."""
    return sum(one.price for one in leaving) - answer.price


def _types(answer: Replaced) -> set[str]:
    """What its replacements may be."""
    wanted = [one for claim in answer.claims for one in claim.requirements if one.key == INSTANCE_TYPE]
    return {name for one in wanted for name in one.values}


def _rejection(leaving: Sequence[Candidate], words: str) -> Rejection:
    return Rejection(nodes=tuple(one.name for one in leaving), words=words)
