"""Commands being carried out have their room: their nodes go, their pods have places, their replacements count.

A command whose moves nobody remembers, as after a fail-over, gets places by being simulated again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from model.disruption import Command
from model.facts import PodFact
from model.plans import PlannedClaim, Unplaced
from scheduling.disruption.candidates import Candidate
from scheduling.disruption.simulation import Moving, attempt
from scheduling.disruption.stage import Stage
from scheduling.pools import Refusal
from scheduling.priced.planning import Way, with_needs

_ANY_PRICE: Final = float("inf")


def reserve(stage: Stage, command: Command, candidates: Iterable[Candidate]) -> None:
    """The budgets know of it already."""
    names = {one.claim for one in command.candidates}
    leaving = [one for one in candidates if one.claim.name in names]
    moves = _remembered(stage, command, leaving)
    bought = () if command.claims else command.replacements
    stage.commit(leaving, moves, bought)
    placed = {*moves, *(uid for claim in bought for uid in claim.pods)}
    lost = {pod.uid: pod for one in leaving for pod in one.pods if pod.uid not in placed}
    if lost:
        stage.settle(lost, *_places_of(stage, lost))


def _places_of(stage: Stage, pods: Mapping[str, PodFact]) -> tuple[Mapping[str, str], list[PlannedClaim]]:
    """Homes of pods whose nodes are gone already, be it ones that are not up yet, and what the others would need. What
    fits nowhere takes no room."""
    try:
        refused, held = list[Unplaced](), stage.volumes[1].values()
        shaped = list(with_needs([(stage.shape(pod), pod) for pod in pods.values()], stage.facts, held, refused))
        tried = attempt(stage, (), Moving(shaped, None), stage.offers_below(_ANY_PRICE, ()), Way())
        bought = [tried.emission.claim(number) for number in range(len(tried.packing.places.bought))]
    except Exception:
        # It only makes the picture better: whoever is simulated next must not fail by it.
        return {}, []
    return tried.packing.nominations, [one for one in bought if not isinstance(one, Refusal)]


def _remembered(stage: Stage, command: Command, leaving: Sequence[Candidate]) -> dict[str, str]:
    """Pods to homes, by UID."""
    there = {pod.uid for one in leaving for pod in one.pods}
    homes = stage.homes
    by_claim = {home.claim: home.name for home in homes.homes if home.claim}
    moves: dict[str, str] = {}
    for one in command.moves:
        made = command.claims[one.replacement] if 0 <= one.replacement < len(command.claims) else ""
        target = by_claim.get(made, "") if made else one.target
        if target in homes.index and one.pod_uid in there:
            moves[one.pod_uid] = target
    return moves
