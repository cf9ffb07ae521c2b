"""Metrics of workflows. The SDK's meter records nothing during replay."""

import itertools
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

from temporalio import workflow

from tenure import metrics
from tenure.apis import labels
from tenure.apis.durations import parse_duration_or_none
from tenure.model.disruption.commands import CommandFinished, Proposal
from tenure.model.hooks import HookRun
from tenure.model.node_health import Reboot
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.rollout import RolloutEventReason
from tenure.policy.lifecycle.repair import repair_bound

_CONSOLIDATION: Final = ("empty", "underutilized")
_UNCOUNTED: Final = ("Deleted", "NodeClaimGone", labels.OVERPROVISIONED)
"""Deletions by users or by a static NodePool, which Karpenter does not count either."""
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_BEFORE: Final = {
    Phase.REGISTRATION: Phase.LAUNCH,
    Phase.INITIALIZATION: Phase.REGISTRATION,
    Phase.READY: Phase.INITIALIZATION,
}
"""Transitions of a normal startup. A recovered NodeClaim or a rebooted node has other transitions."""


def count_overdue(state: NodeClaimState) -> None:
    """Count a phase that passed its deadline."""
    metrics.OVERDUE.record(workflow.metric_meter(), phase=state.phase.value, nodepool=state.identity.pool)


def count_disrupted(state: NodeClaimState, next_phase: Phase) -> bool:
    """Count a disruption at the transition to `next_phase`; False if none starts that Karpenter would count.

    `state`: before the transition. A drain that defers deletion deletes the NodeClaim only at its end.
    """
    is_deferred = next_phase is Phase.DRAIN and state.drain is not None and state.drain.defers_deletion
    reason = disruption_reason(state)
    if state.disruption_counted or is_deferred or not reason or next_phase not in (Phase.DRAIN, Phase.TERMINATION):
        return False
    metrics.NODECLAIMS_DISRUPTED.record(workflow.metric_meter(), **_disruption_labels(state, reason))
    if reason == "unhealthy":
        _count_unhealthy(state)
    return True


def count_pods(state: NodeClaimState, pods: int) -> None:
    """Count the pods of a disrupted NodeClaim that must run on another node."""
    if reason := disruption_reason(state):
        metrics.PODS_DISRUPTION_INITIATED.record(workflow.metric_meter(), pods, **_disruption_labels(state, reason))


def _disruption_labels(state: NodeClaimState, reason: str) -> dict[str, str]:
    return {
        "reason": reason,
        "nodepool": state.identity.pool,
        "capacity_type": state.launched.capacity_type if state.launched else "",
        "consolidation_policy": _consolidation_policy(state) if reason in _CONSOLIDATION else "",
        "termination_mode": _termination_mode(parse_duration_or_none(state.identity.termination_grace_period)),
    }


def _count_unhealthy(state: NodeClaimState) -> None:
    metrics.NODECLAIMS_UNHEALTHY_DISRUPTED.record(
        workflow.metric_meter(),
        condition=_to_snake_case(state.health.condition.partition("=")[0]),
        nodepool=state.identity.pool,
        capacity_type=state.launched.capacity_type if state.launched else "",
        image_id=state.launched.image_id if state.launched else "",
        termination_mode=_termination_mode(repair_bound(state)),
    )


def disruption_reason(state: NodeClaimState) -> str:
    """Karpenter's reason; empty if Karpenter counts no disruption. The reason of a command is on the NodeClaim."""
    reason = state.observed.disruption if state.disruption in ("", "Deleted") else state.disruption
    return "" if reason in _UNCOUNTED else _to_snake_case(reason.replace("NodeClass", "Nodeclass"))


def _consolidation_policy(state: NodeClaimState) -> str:
    return _to_snake_case(state.observed.consolidation.partition("/")[0])


def _termination_mode(grace: timedelta | None) -> Literal["graceful", "eventual", "forceful"]:
    """Karpenter's modes: without a termination grace period, with one, and with one of zero."""
    if grace is None:
        return "graceful"
    return "eventual" if grace else "forceful"


def _to_snake_case(name: str) -> str:
    return _CAPITAL.sub("_", name).lower()


def count_terminated(state: NodeClaimState) -> None:
    """Count a NodeClaim whose instance is terminated."""
    metrics.NODECLAIMS_TERMINATED.record(
        workflow.metric_meter(),
        nodepool=state.identity.pool,
        capacity_type=state.launched.capacity_type if state.launched else "",
        zone=state.launched.zone if state.launched else "",
    )
    if state.registered:
        _count_node(metrics.NODES_TERMINATED, state)


def time_end(state: NodeClaimState) -> None:
    """Record the duration from the last drain to the end of the instance. Cancelled drains do not count."""
    ending = itertools.takewhile(lambda step: step.phase in (Phase.DRAIN, Phase.TERMINATION), reversed(state.history))
    began = min((step.at for step in ending), default=None)
    if began is None:
        return
    took = max(0.0, (workflow.now() - began).total_seconds())
    meter, pool = workflow.metric_meter(), state.identity.pool
    metrics.NODECLAIMS_TERMINATION_DURATION.record(meter, took, nodepool=pool)
    if state.registered:
        metrics.NODES_TERMINATION_DURATION.record(meter, took, nodepool=pool)


def count_event(state: NodeClaimState, kind: str) -> None:
    """Count a new or changed AWS event of a node."""
    metrics.AWS_EVENTS.record(workflow.metric_meter(), kind=kind, nodepool=state.identity.pool)


def count_hook(state: NodeClaimState, run: HookRun) -> None:
    """Count a finished hook."""
    outcome = (run.outcome or "").replace(" ", "_")
    metrics.HOOKS.record(workflow.metric_meter(), point=run.point, outcome=outcome, nodepool=state.identity.pool)


def count_rollout(pool: str, happened: RolloutEventReason) -> None:
    """Count a rollout event."""
    metrics.ROLLOUTS.record(workflow.metric_meter(), nodepool=pool, event=happened)


def time_startup(state: NodeClaimState, next_phase: Phase) -> None:
    """`state`: before the transition. Launch counts from the creation of the NodeClaim."""
    if _BEFORE.get(next_phase) is not state.phase or state.flaps or state.since is None:
        return
    if next_phase is Phase.INITIALIZATION:
        _count_node(metrics.NODES_CREATED, state)
    began = state.identity.created if state.phase is Phase.LAUNCH else state.since
    metrics.STARTUP_DURATION.record(
        workflow.metric_meter(),
        max(0.0, (workflow.now() - began).total_seconds()),
        phase=state.phase.value,
        nodepool=state.identity.pool,
        instance_type=state.launched.instance_type if state.launched else "",
    )


def _count_node(metric: metrics.Metric, state: NodeClaimState) -> None:
    zone = state.launched.zone if state.launched else ""
    metric.record(workflow.metric_meter(), nodepool=state.identity.pool, zone=zone)


def count_command(proposal: Proposal) -> None:
    """Count a command that begins."""
    _count_decision(_decision_labels(proposal), (one.pool for one in proposal.candidates))
    if proposal.terminate_first:
        for one in proposal.candidates:
            metrics.TERMINATE_FIRST_DECISIONS.record(
                workflow.metric_meter(),
                nodepool=one.pool,
                reason=proposal.reason.lower(),
                terminate_first_reason=proposal.terminate_first,
            )


def count_empty(pool: str) -> None:
    """Count the deletion of an empty node, which has no command."""
    _count_decision({"decision": "delete", "reason": "empty", "consolidation_type": "empty"}, (pool,))


def count_reboot_decision(state: NodeClaimState) -> None:
    """Count the decision to reboot an unhealthy node, which has no command."""
    _count_decision({"decision": "reboot", "reason": "unhealthy", "consolidation_type": ""}, (state.identity.pool,))


RebootOutcome = Literal["succeeded", "provider_error", "recovery_timeout"]


def time_reboot(reboot: Reboot, issued_at: datetime | None, result: RebootOutcome) -> None:
    """Count a reboot that has ended, from its decision; a recovery from the request to EC2."""
    meter, now = workflow.metric_meter(), workflow.now()
    metrics.NODES_REBOOTS.record(meter, result=result)
    metrics.NODES_REBOOT_DURATION.record(meter, (now - reboot.requested_at).total_seconds(), result=result)
    if result == "succeeded" and issued_at is not None:
        metrics.NODES_REBOOT_RECOVERY_DURATION.record(meter, (now - issued_at).total_seconds())


def count_ending(proposal: Proposal, finished: CommandFinished) -> None:
    """Count the ending of a command. A command that was cancelled or never began has not failed."""
    meter, decision = workflow.metric_meter(), _decision_labels(proposal)
    metrics.DISRUPTION_COMMANDS.record(meter, **decision, ending=finished.ending)
    if finished.ending in ("not replaced", "held", "failed"):
        metrics.VOLUNTARY_DISRUPTION_QUEUE_FAILURES.record(meter, **decision)
    if finished.ending == "stale":
        metrics.VOLUNTARY_DISRUPTION_FAILED_VALIDATIONS.record(meter, consolidation_type=decision["consolidation_type"])


def _count_decision(decision: dict[str, str], pools: Iterable[str]) -> None:
    meter = workflow.metric_meter()
    metrics.VOLUNTARY_DISRUPTION_DECISIONS.record(meter, **decision)
    for pool in sorted({*pools}):
        metrics.VOLUNTARY_DISRUPTION_DECISIONS_BY_NODEPOOL.record(meter, **decision, nodepool=pool)


def _decision_labels(proposal: Proposal) -> dict[str, str]:
    decision = "replace" if proposal.replacements else "delete"
    return {
        "decision": "terminate-first" if proposal.terminate_first else decision,
        "reason": proposal.reason.lower(),
        "consolidation_type": "" if proposal.kind in ("expiry", "drift", "repair") else proposal.kind,
    }
