"""Lines of the worker's log about a node or a disruption command, with Karpenter's messages and keys.

Workflows write them with `workflow.logger`, which is silent during replay. Adapters log the taint and the deletion of a
Node.
"""

from datetime import datetime
from typing import Any

from tenure.model.base import log_seconds, object_log_fields
from tenure.model.blockers import Verdict
from tenure.model.disruption.commands import Proposal
from tenure.model.nodeclaim.state import NodeClaimState, Phase

_MESSAGES = {
    Phase.LAUNCH: "created nodeclaim",
    Phase.REGISTRATION: "launched nodeclaim",
    Phase.INITIALIZATION: "registered nodeclaim",
    Phase.READY: "initialized nodeclaim",
    Phase.DRAIN: "draining node",
    Phase.TERMINATION: "terminating instance",
    Phase.DELETED: "deleted nodeclaim",
}
"""By the phase that begins."""
_SPECIAL_MESSAGES: dict[tuple[Phase | None, Phase], str] = {
    (Phase.LAUNCH, Phase.INITIALIZATION): "recovered nodeclaim",
    (Phase.LAUNCH, Phase.READY): "recovered nodeclaim",
    (Phase.READY, Phase.INITIALIZATION): "initializing node again",
    (Phase.DRAIN, Phase.READY): "cancelled drain",
    (Phase.DRAIN, Phase.INITIALIZATION): "cancelled drain",
    (Phase.DRAIN, Phase.TERMINATION): "drained node",
}


def step_line(state: NodeClaimState, phase: Phase, cause: str, now: datetime) -> tuple[str, dict[str, Any]]:
    """Message and fields of a transition to `phase`. `state`: before it. The step is the phase that ends, with its
    duration; the first step is the time from the creation of the NodeClaim to its workflow."""
    before = state.phase if state.since else None
    message = _SPECIAL_MESSAGES.get((before, phase), _MESSAGES[phase])
    if phase is Phase.TERMINATION and state.launched is None:
        message = "deleting nodeclaim"
    if before is None:
        cause = state.identity.why or cause
    elif phase is Phase.DELETED:
        cause = state.disruption or cause
    fields = {
        "step": before.value if before else "Creation",
        "duration-seconds": log_seconds(now - (state.since or state.identity.created)),
        "reason": cause,
    }
    return message, {**_node_fields(state), **fields}


def blocker_line(state: NodeClaimState, verdict: Verdict, now: datetime) -> tuple[str, dict[str, Any]]:
    """Message and fields of a new verdict on a node."""
    return "blocked nodeclaim", {**_node_fields(state), "step": state.phase.value, **verdict.log_fields(now)}


def command_fields(proposal: Proposal) -> dict[str, Any]:
    """Fields of a line about a disruption command."""
    return {
        "command-id": proposal.id,
        "decision": "replace" if proposal.replacements else "delete",
        "disrupted-nodes": [
            object_log_fields(Node=one.node, NodeClaim=one.claim, NodePool=one.pool) for one in proposal.candidates
        ],
        "replacement-node-count": proposal.replacements,
    }


def _node_fields(state: NodeClaimState) -> dict[str, Any]:
    identity, launched = state.identity, state.launched
    fields = object_log_fields(NodeClaim=identity.name, NodePool=identity.pool, Node=state.node_name)
    if launched:
        fields |= {
            "provider-id": launched.provider_id,
            "instance-type": launched.instance_type,
            "zone": launched.zone,
            "capacity-type": launched.capacity_type,
        }
    return fields
