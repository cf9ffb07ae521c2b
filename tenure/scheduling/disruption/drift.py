"""Nodes that are not what their NodePool asks for any more: one command each (reference 4.8).

Empty ones first, then by age of the drift. One that cannot go does not hold up those after it, and pods of drifted
nodes go to other drifted nodes only where nothing else takes them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from tenure.model.disruption.planning import Command
from tenure.scheduling.disruption.budgets import Purse
from tenure.scheduling.disruption.candidates import Candidate, oldest_drift
from tenure.scheduling.disruption.cluster_snapshot import Stage
from tenure.scheduling.disruption.commands import command_of
from tenure.scheduling.disruption.replacement import Replaced, worst_prices
from tenure.scheduling.disruption.simulation import Simulation, simulate
from tenure.scheduling.nodepool_template import Refusal

_ANY_PRICE = float("inf")


@dataclass(slots=True)
class Replacing:
    """One pass over the candidates for Drifted."""

    stage: Stage
    purse: Purse
    most_simulations: int
    simulations: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)

    def commands(self, candidates: Iterable[Candidate], first: Collection[str] = ()) -> Iterator[Command]:
        """Those `first` that were not reached before. The caller takes each into account before it asks for the
        next."""
        for one in sorted(candidates, key=lambda one: (one.claim.name not in first, oldest_drift(one))):
            reason = self.purse.refusal(one, "Drifted")
            if not reason and one.name in self.stage.receivers:
                reason = "pods of nodes that go are expected there"
            if reason:
                self.rejected[one.claim.name] = reason
            elif self.simulations >= self.most_simulations:
                self.unreached.append(one.claim.name)
            else:
                answer = self.replaced(one)
                if isinstance(answer, Refusal):
                    self.rejected[one.claim.name] = answer
                else:
                    yield command_of("Drifted", "drift", (one,), answer)

    def replaced(self, one: Candidate) -> Replaced | Refusal:
        """What takes its place, whatever that costs."""
        if not one.pods:
            return Replaced((), {}, 0.0, 0.0)
        self.simulations += 1
        found = simulate(self.stage, (one,), "Drifted", ceiling=_ANY_PRICE)
        if not found.attempts:
            self.simulations += 1
            found = simulate(self.stage, (one,), ceiling=_ANY_PRICE)
        return self._cheapest(found)

    def _cheapest(self, found: Simulation) -> Replaced | Refusal:
        if not found.attempts:
            return Refusal(f"cannot go: {found.problem}")
        tried = min(found.attempts, key=lambda attempt: attempt.cost(self.stage.wishes.node_cost))
        claims, price, at_most = [], 0.0, 0.0
        for number in range(len(tried.packing.places.bought)):
            claim = tried.emission.claim(number)
            if isinstance(claim, Refusal):
                return Refusal(f"cannot go: {claim}")
            claims.append(claim)
            price += tried.emission.price(number)
            fill = tried.emission.fill(number)
            at_most += float(worst_prices(fill, self.stage)[fill.rows].max())
        return Replaced(tuple(claims), dict(tried.packing.nominations), price, at_most)
