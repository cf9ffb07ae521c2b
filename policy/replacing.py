"""What a replacement's life says to the disruption that waits for it: that it is ready, or that it never will be."""

from model.disrupting import ReplacementSaid
from model.lifecycle import ENDING, ClaimState, Phase


def replacement_says(state: ClaimState) -> ReplacementSaid | None:
    """None while there is nothing to say, or nobody to say it to. What was said holds: a node that is not Ready any
    more was a replacement all the same."""
    if not state.identity.replaces or state.said_ready is not None:
        return None
    if state.phase is Phase.READY:
        return ReplacementSaid(claim=state.identity.name, ready=True)
    if state.phase in ENDING:
        refused = f": {state.refused.reason} {state.refused.message}" if state.refused else ""
        return ReplacementSaid(claim=state.identity.name, ready=False, why=f"{state.disruption}{refused}"[:200])
    return None
