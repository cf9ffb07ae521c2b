"""The table of legal phase transitions, with the cause of each.

`workflows/nodeclaim.py` follows only this table; any other transition is a bug.
"""

from datetime import datetime, timedelta

from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.policy.lifecycle.deadlines import deadlines_of

TRANSITIONS: dict[Phase, dict[Phase, str]] = {
    Phase.LAUNCH: {
        Phase.REGISTRATION: "EC2 gave the claim an instance",
        Phase.INITIALIZATION: "its workflow was lost, and its NodeClaim is Registered",
        Phase.READY: "its workflow was lost, and its NodeClaim is Initialized",
        Phase.TERMINATION: "EC2 rejected the launch, its deadline passed, or a user deleted the NodeClaim",
    },
    Phase.REGISTRATION: {
        Phase.INITIALIZATION: "the instance's Node joined and carries the claim's labels and taints",
        Phase.TERMINATION: "the registration deadline passed, AWS reclaims it, or a user deleted the NodeClaim",
    },
    Phase.INITIALIZATION: {
        Phase.READY: "the Node is Ready, its startup taints are gone and its resources are there",
        Phase.DRAIN: "a user, an owner, expiration, repair or an AWS event deleted it, or a policy did at the deadline",
    },
    Phase.READY: {
        Phase.INITIALIZATION: "the machine came back with another boot id",
        Phase.DRAIN: "a user, expiration, repair or an AWS event deleted it, or its NodePool permitted a disruption",
    },
    Phase.DRAIN: {
        Phase.TERMINATION: "no pod and no volume is waited for, or the termination grace period is over",
        Phase.READY: "its policy or AWS called the drain off, and its NodeClaim is not being deleted",
    },
    Phase.TERMINATION: {Phase.DELETED: "EC2 no longer lists the instance and the finalizers are off"},
    Phase.DELETED: {},
}


def may_follow(before: Phase, after: Phase) -> bool:
    return after in TRANSITIONS[before]


def deadline_of(state: NodeClaimState, phase: Phase, entered: datetime) -> datetime | None:
    """When a phase entered at `entered` becomes overdue. Launch and registration count from the claim's birth
    (reference 3.5), the others from their entry; a ready node has no deadline of its own. A claim that was launched
    or recalled late has the time for registration that a launch in its last minute leaves. LifecyclePolicies may say
    other deadlines than the settings."""
    born, limits = state.identity.created, deadlines_of(state.observed.rules, state.deadlines)
    begun = {
        Phase.LAUNCH: (born, limits.launch),
        Phase.REGISTRATION: (max(born, entered - limits.launch), limits.registration),
        Phase.INITIALIZATION: (entered, limits.initialization),
        Phase.DRAIN: (entered, limits.drain),
        Phase.TERMINATION: (entered, limits.termination),
    }
    since, limit = begun.get(phase, (None, timedelta(0)))
    return since + limit if since else None
