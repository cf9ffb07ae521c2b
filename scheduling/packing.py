"""Pods onto homes, onto nodes planned in this pass, and onto new ones, in that order (reference 2.4).

Takes groups of equal pods from `scheduling/demand.py`; leaves purchases for `scheduling/emission.py`.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from model.facts import PodFact
from model.plans import Unplaced
from scheduling.demand import PodGroup, Variant
from scheduling.fills import Fill, Fills
from scheduling.homes import Homes
from scheduling.pools import Offer, Refusal


@dataclass(slots=True)
class Purchase:
    """A node to be bought, and the UIDs of the pods it is for."""

    fill: Fill
    pods: list[str]


@dataclass(slots=True)
class Packing:
    """One pass; its fields are its result."""

    homes: Homes
    offers: Sequence[Offer]
    fills: Fills
    closed: Mapping[str, Refusal] = field(default_factory=dict)
    """Pools from which nothing can be bought in this pass, and why."""
    purchases: list[Purchase] = field(default_factory=list)
    nominations: dict[str, str] = field(default_factory=dict)
    unplaced: list[Unplaced] = field(default_factory=list)

    def keep(self, groups: Iterable[PodGroup], promised: dict[str, str]) -> list[PodGroup]:
        """Leave pods where an earlier pass promised them a place, if it still takes them; the groups that remain."""
        return [rest for group in groups if (rest := self._keep(group, promised)).pods]

    def place(self, group: PodGroup) -> None:
        """Find places for all pods of a group; those without one are listed with the reason."""
        waiting = list(group.pods)
        refusals: dict[str, Refusal] = {}
        for variant in group.variants:
            self._settle(variant, group.requests, waiting)
            self._join(variant, group.requests, waiting)
            self._buy(variant, group.requests, waiting, refusals)
            if not waiting:
                return
        reason = self._reason(refusals)
        self.unplaced += [unplaced(pod, reason) for pod in waiting]

    def _keep(self, group: PodGroup, promised: dict[str, str]) -> PodGroup:
        if promised.keys().isdisjoint(pod.uid for pod in group.pods):
            return group
        requests, rest = group.requests, []
        for pod in group.pods:
            home = promised.get(pod.uid, "")
            if self.homes.place_on(home, group.variants, requests):
                self.nominations[pod.uid] = home
            else:
                rest.append(pod)
        return PodGroup(group.shape, tuple(rest), group.variants)

    def _settle(self, variant: Variant, requests: dict[str, int], waiting: list[PodFact]) -> None:
        for name, count in self.homes.place(variant, requests, len(waiting)):
            self.nominations.update((pod.uid, name) for pod in waiting[:count])
            del waiting[:count]

    def _join(self, variant: Variant, requests: dict[str, int], waiting: list[PodFact]) -> None:
        """Nodes planned already take one pod after the other, always the one with the fewest pods."""
        if not waiting:
            return
        shares = self._shares(variant, requests, len(waiting))
        grown: dict[tuple[Fill, int], Fill] = {}
        for number, count in sorted(shares.items()):
            purchase = self.purchases[number]
            key = (purchase.fill, count)
            if key not in grown:
                grown[key] = self._grown(purchase.fill, variant, requests, count)
            purchase.fill = grown[key]
            purchase.pods += [pod.uid for pod in waiting[:count]]
            del waiting[:count]

    def _grown(self, fill: Fill, variant: Variant, requests: dict[str, int], count: int) -> Fill:
        extended = self.fills.extend(fill, variant, requests, count)
        assert extended is not None
        return extended[0]

    def _shares(self, variant: Variant, requests: dict[str, int], count: int) -> dict[int, int]:
        """How many of the pods each purchase takes, by its number."""
        room: dict[Fill, int] = {}
        queue: list[tuple[int, int]] = []
        for number, purchase in enumerate(self.purchases):
            if purchase.fill not in room:
                extended = self.fills.extend(purchase.fill, variant, requests, count)
                room[purchase.fill] = extended[1] if extended else 0
            if room[purchase.fill]:
                queue.append((len(purchase.pods), number))
        heapq.heapify(queue)
        shares: dict[int, int] = {}
        for _ in range(count):
            if not queue:
                break
            pods, number = queue[0]
            shares[number] = shares.get(number, 0) + 1
            if shares[number] < room[self.purchases[number].fill]:
                heapq.heapreplace(queue, (pods + 1, number))
            else:
                heapq.heappop(queue)
        return shares

    def _buy(
        self, variant: Variant, requests: dict[str, int], waiting: list[PodFact], refusals: dict[str, Refusal]
    ) -> None:
        for offer in self.offers:
            while waiting:
                started = self.fills.start_reserved(offer, variant, requests, len(waiting)) or self.fills.start(
                    offer, variant, requests, len(waiting)
                )
                if isinstance(started, Refusal):
                    refusals[offer.name] = started
                    break
                self._purchase(offer, *started, waiting)

    def _purchase(self, offer: Offer, fill: Fill, count: int, waiting: list[PodFact]) -> None:
        """Buy as many equal nodes as there are pods to fill them; under a limit one, since it may change the choice."""
        times = 1 if offer.limited else len(waiting) // count
        if fill.option.reservation:
            times = min(times, offer.rooms.left(fill.option.reservation))
            offer.rooms.take(fill.option.reservation, times)
        for _ in range(times):
            offer.spend(fill.rows)
            self.purchases.append(Purchase(fill, [pod.uid for pod in waiting[:count]]))
            del waiting[:count]

    def _reason(self, refusals: dict[str, Refusal]) -> str:
        said = {offer.name: refusals[offer.name] for offer in self.offers if offer.name in refusals}
        every = [f"pool {name}: {refusal}" for name, refusal in {**said, **self.closed}.items()]
        return "; ".join(every) or "no existing node has room, and no NodePool is ready to make one"


def unplaced(pod: PodFact, reason: str) -> Unplaced:
    return Unplaced(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, reason=reason)
