"""The first phase of a NodeClaim that another controller managed, and its static hash (reference 6.3)."""

from collections.abc import Mapping
from typing import Final

from tenure.apis.hash import HASH_VERSION
from tenure.model.facts import NodeClaimFact
from tenure.model.nodeclaim.state import Phase

_LIVE_PHASES: Final = (Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY)
_TERMINATING_PHASES: Final = (Phase.DRAIN, Phase.TERMINATION, Phase.DELETED)


def decide_first_phase(claim: NodeClaimFact) -> Phase:
    """The phase into which it is recovered (`activities/nodeclaim/recovery.py`), or the next phase if it is being
    deleted."""
    if claim.deleting:
        return Phase.DRAIN if claim.registered else Phase.TERMINATION
    if not claim.provider_id:
        return Phase.LAUNCH
    if claim.initialized:
        return Phase.READY
    return Phase.INITIALIZATION if claim.registered else Phase.REGISTRATION


def decide_taken_over(expected: Phase, phase: Phase) -> bool:
    """Whether a workflow in `phase` has taken over its NodeClaim: it is in the expected first phase or a later one."""
    if expected in _TERMINATING_PHASES:
        return phase in _TERMINATING_PHASES
    return phase in _LIVE_PHASES and _LIVE_PHASES.index(phase) >= _LIVE_PHASES.index(expected)


def decide_stamp(
    annotations: Mapping[str, str], value: str, *, key: str, version: str, drifted: bool, deleting: bool
) -> dict[str, str]:
    """The hash annotations to write; empty if they do not change.

    A drifted NodeClaim keeps its hash under the new version, so it stays drifted. A NodeClaim without a hash version
    was created manually and gets none.
    """
    if deleting or annotations.get(version, "") in ("", HASH_VERSION):
        return {}
    return {version: HASH_VERSION} | ({} if drifted else {key: value})
