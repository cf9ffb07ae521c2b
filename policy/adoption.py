"""What becomes of a NodeClaim that another controller ran, when Tenure takes it over. Pure.

`controller/shadow.py` says it beforehand, and `cli/handover.py` holds the workflows against it.
"""

from typing import Final

from model.facts import ClaimFact
from model.lifecycle import Phase

_ON_THE_WAY: Final = (Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY)
_LEAVING: Final = (Phase.DRAIN, Phase.TERMINATION, Phase.GONE)


def decide_first_phase(claim: ClaimFact) -> Phase:
    """The phase that it is recalled into (`activities/recalling.py`), or that follows at once when it is being
    deleted."""
    if claim.deleting:
        return Phase.DRAIN if claim.registered else Phase.TERMINATION
    if not claim.provider_id:
        return Phase.LAUNCH
    if claim.initialized:
        return Phase.READY
    return Phase.INITIALIZATION if claim.registered else Phase.REGISTRATION


def decide_taken_over(expected: Phase, phase: Phase) -> bool:
    """Whether a workflow in `phase` has its NodeClaim in hand: where its life begins, or further on."""
    if expected in _LEAVING:
        return phase in _LEAVING
    return phase in _ON_THE_WAY and _ON_THE_WAY.index(phase) >= _ON_THE_WAY.index(expected)
