"""A decided removal as a command: what goes, what comes, where each pod is expected, and the sums."""

from collections.abc import Sequence
from typing import Literal

from model.disruption import Command, Method, Move, Rejection
from model.words import few
from scheduling.disruption.candidates import Candidate
from scheduling.disruption.replacing import Replaced

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
