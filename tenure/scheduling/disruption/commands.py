"""A decided removal as a command: what goes, what comes, where each pod is expected, and the sums.

Commands being carried out have their room: their nodes go, their pods have places, their replacements count.

A command whose moves nobody remembers, as after a fail-over, gets places by being simulated again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from tenure.model.base import few
from tenure.model.disruption.planning import Command, Method, Move, Rejection
from tenure.model.facts import PodFact
from tenure.model.provisioning import PlannedClaim, Unplaced
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import Stage
from tenure.scheduling.disruption.replacement import Replaced
from tenure.scheduling.disruption.simulation import Moving, attempt
from tenure.scheduling.nodepool_template import Refusal
from tenure.scheduling.packing.planning_pass import Way, with_needs

Kind = Literal["empty", "drift", "multi", "single"]


def command_of(
    reason: Method,
    kind: Kind,
    leaving: Sequence[Candidate],
    replaced: Replaced,
    rejected: Sequence[Rejection] = (),
) -> Command:
    before = sum(one.price for one in leaving)
    made = Command(
        reason=reason,
        kind=kind,
        candidates=tuple(one.leaving() for one in leaving),
        replacements=replaced.claims,
        moves=tuple(_moves(leaving, replaced)),
        price_before=before,
        price_after=replaced.price,
        price_at_most=replaced.at_most,
        rejected=tuple(rejected),
    )
    return made.model_copy(update={"why": _why(made)})


def _moves(leaving: Sequence[Candidate], replaced: Replaced) -> list[Move]:
    bought = {uid: number for number, claim in enumerate(replaced.claims) for uid in claim.pods}
    return [
        Move(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            source=one.name,
            target=replaced.moves.get(pod.uid, ""),
            replacement=bought.get(pod.uid, -1),
        )
        for one in leaving
        for pod in one.pods
    ]


def _why(made: Command) -> str:
    named = few(made.nodes)
    if made.reason == "Empty":
        return f"{named}: no pod has to move, {made.price_before:.4g} $/h are saved"
    staying = sum(one.replacement < 0 for one in made.moves)
    places = [f"{staying} pods have room on other nodes"] if staying else []
    if made.replacements:
        places.append(f"{len(made.moves) - staying} pods get {len(made.replacements)} new nodes")
    sums = f"{made.price_before:.4g} $/h become {made.price_after:.4g}, at most {made.price_at_most:.4g}"
    return f"{named}: {'; '.join((*places, sums))}"


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
