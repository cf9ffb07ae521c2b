"""What workflows count and measure in the worker's metrics; nothing of it while a history is replayed."""

import itertools
import re
from typing import Final

from temporalio import workflow

from tenure.apis import labels
from tenure.model.hooks import HookRun
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.rollout import RolloutEventReason

OVERDUE: Final = "tenure_overdue_total"
ROLLOUTS: Final = "tenure_rollouts_total"
STOPPED: Final[tuple[RolloutEventReason, ...]] = ("RolloutHalted", "RolloutRollsBack")
TERMINATED: Final = "karpenter_nodeclaims_terminated_total"
NODES_CREATED: Final = "karpenter_nodes_created_total"
NODES_TERMINATED: Final = "karpenter_nodes_terminated_total"
DISRUPTED: Final = "karpenter_nodeclaims_disrupted_total"
HOOKS: Final = "tenure_hooks_total"
EVENTS: Final = "tenure_aws_events_total"
STARTUP: Final = "tenure_startup_duration_seconds"
STARTUP_BUCKETS: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0)
"""Upper ends, in seconds; the last ones are the usual deadlines."""
CLAIM_ENDED: Final = "karpenter_nodeclaims_termination_duration_seconds"
NODE_ENDED: Final = "karpenter_nodes_termination_duration_seconds"
ENDED_BUCKETS: Final = tuple(float(2**power) for power in range(12))
"""As Karpenter's of NodeClaims, in seconds."""
_UNCOUNTED: Final = ("Deleted", "NodeClaimGone", labels.OVERPROVISIONED)
"""A person's doing, or a static pool's, which Karpenter does not count either."""
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_BEFORE: Final = {
    Phase.REGISTRATION: Phase.LAUNCH,
    Phase.INITIALIZATION: Phase.REGISTRATION,
    Phase.READY: Phase.INITIALIZATION,
}
"""How a start-up goes: a life that was recalled, or a machine that rebooted, comes from elsewhere, or again."""


def count_overdue(state: NodeClaimState) -> None:
    """A phase passed its deadline."""
    counter = workflow.metric_meter().create_counter(OVERDUE, "Phases of nodes' lives that passed their deadline")
    counter.add(1, {"phase": state.phase.value, "nodepool": state.identity.pool})


def count_disrupted(state: NodeClaimState, next_phase: Phase) -> bool:
    """Called with the state before a phase is entered: whether its NodeClaim is deleted by that, for what Karpenter
    counts. A drain that can still be given up deletes nothing before its end."""
    is_retained = next_phase is Phase.DRAIN and state.drain is not None and state.drain.retains_nodeclaim
    reason = disruption_reason(state)
    if state.disruption_counted or is_retained or not reason or next_phase not in (Phase.DRAIN, Phase.TERMINATION):
        return False
    counter = workflow.metric_meter().create_counter(DISRUPTED, "NodeClaims deleted for a disruption, by why")
    capacity_type = state.launched.capacity_type if state.launched else ""
    counter.add(1, {"reason": reason, "nodepool": state.identity.pool, "capacity_type": capacity_type})
    return True


def disruption_reason(state: NodeClaimState) -> str:
    """In Karpenter's words; empty for what is no disruption there. Who deletes the NodeClaim for a command says why on
    it."""
    reason = state.observed.disruption if state.disruption in ("", "Deleted") else state.disruption
    return "" if reason in _UNCOUNTED else _CAPITAL.sub("_", reason.replace("NodeClass", "Nodeclass")).lower()


def count_terminated(state: NodeClaimState) -> None:
    """A life is over: the instance is gone."""
    launched = state.launched
    offering = (launched.capacity_type, launched.zone) if launched else ("", "")
    counter = workflow.metric_meter().create_counter(TERMINATED, "NodeClaims whose life is over")
    counter.add(1, {"nodepool": state.identity.pool, "capacity_type": offering[0], "zone": offering[1]})
    if state.registered:
        _count_node(NODES_TERMINATED, "Nodes of NodeClaims whose life is over", state)


def time_end(state: NodeClaimState) -> None:
    """A life is over: how long it took from when the node was to go. What became of a drain that was given up before
    is not of it."""
    ending = itertools.takewhile(lambda step: step.phase in (Phase.DRAIN, Phase.TERMINATION), reversed(state.history))
    began = min((step.at for step in ending), default=None)
    if began is None:
        return
    took = max(0.0, (workflow.now() - began).total_seconds())
    _record_end(CLAIM_ENDED, "How long NodeClaims took to go", state, took)
    if state.registered:
        _record_end(NODE_ENDED, "How long Nodes took to go", state, took)


def count_event(state: NodeClaimState, kind: str) -> None:
    """AWS said something of a node, or something else than before."""
    counter = workflow.metric_meter().create_counter(EVENTS, "What AWS said of nodes, each change once")
    counter.add(1, {"kind": kind, "nodepool": state.identity.pool})


def count_hook(state: NodeClaimState, run: HookRun) -> None:
    """A hook has an outcome."""
    counter = workflow.metric_meter().create_counter(HOOKS, "What became of hooks, by point and outcome")
    outcome = (run.outcome or "").replace(" ", "_")
    counter.add(1, {"point": run.point, "outcome": outcome, "nodepool": state.identity.pool})


def count_rollout(pool: str, happened: RolloutEventReason) -> None:
    """What became of a roll-out. Those that alerts go by are shown as 0 before, since Prometheus sees no rise else."""
    counter = workflow.metric_meter().create_counter(ROLLOUTS, "What became of roll-outs, by their events")
    for reason in dict.fromkeys((*STOPPED, happened)):
        counter.add(int(reason == happened), {"nodepool": pool, "event": reason})


def time_startup(state: NodeClaimState, next_phase: Phase) -> None:
    """Called with the state before the next phase is entered. Launch counts from the NodeClaim's birth."""
    if _BEFORE.get(next_phase) is not state.phase or state.flaps or state.since is None:
        return
    if next_phase is Phase.INITIALIZATION:
        _count_node(NODES_CREATED, "Nodes that registered", state)
    began = state.identity.created if state.phase is Phase.LAUNCH else state.since
    histogram = workflow.metric_meter().create_histogram_float(STARTUP, "How long nodes took for a phase", "s")
    histogram.record(
        max(0.0, (workflow.now() - began).total_seconds()),
        {
            "phase": state.phase.value,
            "nodepool": state.identity.pool,
            "instance_type": state.launched.instance_type if state.launched else "",
        },
    )


def _record_end(name: str, description: str, state: NodeClaimState, took: float) -> None:
    histogram = workflow.metric_meter().create_histogram_float(name, description, "s")
    histogram.record(took, {"nodepool": state.identity.pool})


def _count_node(name: str, description: str, state: NodeClaimState) -> None:
    zone = state.launched.zone if state.launched else ""
    workflow.metric_meter().create_counter(name, description).add(1, {"nodepool": state.identity.pool, "zone": zone})
