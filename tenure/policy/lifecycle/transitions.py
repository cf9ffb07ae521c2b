"""The table of legal phase transitions and their causes.

`workflows/nodeclaim.py` follows only this table; any other transition is a bug.
"""

from datetime import datetime, timedelta

from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.policy.lifecycle.deadlines import deadlines_of

TRANSITIONS: dict[Phase, dict[Phase, str]] = {
    Phase.LAUNCH: {
        Phase.REGISTRATION: "EC2 launched an instance for the NodeClaim",
        Phase.INITIALIZATION: "its workflow was lost, and its NodeClaim is Registered",
        Phase.READY: "its workflow was lost, and its NodeClaim is Initialized",
        Phase.TERMINATION: "EC2 rejected the launch, its deadline passed, or a user deleted the NodeClaim",
    },
    Phase.REGISTRATION: {
        Phase.INITIALIZATION: "the instance's Node joined and has the NodeClaim's labels and taints",
        Phase.TERMINATION: "the registration deadline passed, AWS reclaims it, or a user deleted the NodeClaim",
    },
    Phase.INITIALIZATION: {
        Phase.READY: "the Node is Ready, without startup taints, and its resources are allocatable",
        Phase.DRAIN: "a user, an owner, expiration, repair or an AWS event deleted it, or a policy did at the deadline",
    },
    Phase.READY: {
        Phase.INITIALIZATION: "the instance rebooted (boot ID changed)",
        Phase.DRAIN: "a user, expiration, repair or an AWS event deleted it, or its NodePool permitted a disruption",
    },
    Phase.DRAIN: {
        Phase.TERMINATION: "pods and volumes are gone, or the termination grace period is over",
        Phase.READY: "a policy or AWS cancelled the drain, and the NodeClaim is not being deleted",
        Phase.INITIALIZATION: "a policy or AWS cancelled the drain, and the node was never initialized",
    },
    Phase.TERMINATION: {Phase.DELETED: "EC2 no longer lists the instance, and the finalizers are removed"},
    Phase.DELETED: {},
}


def may_follow(before: Phase, after: Phase) -> bool:
    return after in TRANSITIONS[before]


def deadline_of(state: NodeClaimState, phase: Phase, entered: datetime) -> datetime | None:
    """When a phase entered at `entered` becomes overdue; None for Ready.

    Launch and registration count from the NodeClaim's creation (reference 3.5), the others from `entered`. After a late
    launch or recovery, registration has the time that remains after a launch at its deadline. A LifecyclePolicy
    overrides the deadlines of the settings.
    """
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
