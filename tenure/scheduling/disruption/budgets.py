"""What budgets leave, as it is spent in the course of a pass."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tenure.model.disruption.planning import Allowances, Method, Room
from tenure.scheduling.disruption.candidates import Candidate


class Purse:
    """Every node that goes counts in its pool, in its zone and in the cluster, whatever the reason is."""

    def __init__(self, allowances: Allowances) -> None:
        self._given = allowances
        self._pools: Counter[str] = Counter()
        self._zones: Counter[tuple[str, str]] = Counter()
        self._nodes = 0

    def refusal(self, one: Candidate, method: Method, with_others: Sequence[Candidate] = ()) -> str:
        """Why the budgets do not let this node go beside those others; empty when they do."""
        pool, zone = one.claim.pool, one.verdict.zone
        mine = sum(other.claim.pool == pool for other in with_others)
        near = sum((other.claim.pool, other.verdict.zone) == (pool, zone) for other in with_others)
        asked = (
            (self._given.pools.get(pool, {}).get(method), self._pools[pool] + mine, f"NodePool {pool}"),
            (self._given.zones.get(pool, {}).get(zone), self._zones[pool, zone] + near, f"zone {zone} of {pool}"),
            (self._given.cluster.get(pool), self._nodes + len(with_others), "the cluster"),
        )
        said = next((said for room, spent, of in asked if (said := _short(room, spent, of))), "")
        return said or self._one_zone_more(pool, zone, with_others)

    def _one_zone_more(self, pool: str, zone: str, with_others: Sequence[Candidate]) -> str:
        rule = self._given.zones_at_once.get(pool)
        if rule is None:
            return ""
        begun = {*rule.begun, *(near for of, near in self._zones if of == pool)}
        begun |= {one.verdict.zone for one in with_others if one.claim.pool == pool}
        if zone in begun or len(begun) < rule.most:
            return ""
        return f"nodes of NodePool {pool} go in {rule.most} zones at once, and some do in {', '.join(sorted(begun))}"

    def allowed(
        self, ordered: Iterable[Candidate], method: Method, most: int
    ) -> tuple[list[Candidate], dict[str, str]]:
        """The first so many that may go together, and why others before the last of them may not, by claim."""
        kept, refused = list[Candidate](), dict[str, str]()
        for one in ordered:
            if len(kept) == most:
                break
            reason = self.refusal(one, method, kept)
            if reason:
                refused[one.claim.name] = reason
            else:
                kept.append(one)
        return kept, refused

    def spend(self, leaving: Iterable[Candidate]) -> None:
        for one in leaving:
            self._pools[one.claim.pool] += 1
            self._zones[one.claim.pool, one.verdict.zone] += 1
            self._nodes += 1


def _short(room: Room | None, spent: int, of: str) -> str:
    if room is None or spent < room.allowed:
        return ""
    taken = f", and this pass takes {spent}" if spent and room.allowed else ""
    return f"the budgets of {of} let {room.allowed} nodes go{f' ({room.why})' if room.why else ''}{taken}"
