"""What workflows count of voluntary disruption: what was decided, and how commands ended.

Names are Karpenter's where the meaning is (reference 5.1).
"""

from collections.abc import Iterable
from typing import Final

from temporalio import workflow

from tenure.model.disruption.commands import CommandFinished, Proposal

DECISIONS: Final = "karpenter_voluntary_disruption_decisions_total"
BY_NODEPOOL: Final = "karpenter_voluntary_disruption_decisions_by_nodepool_total"
FAILURES: Final = "karpenter_voluntary_disruption_queue_failures_total"
VALIDATIONS: Final = "karpenter_voluntary_disruption_failed_validations_total"
COMMANDS: Final = "tenure_disruption_commands_total"


def count_command(proposal: Proposal) -> None:
    """A command begins."""
    _count_decision(_decision_labels(proposal), (one.pool for one in proposal.candidates))


def count_empty(pool: str) -> None:
    """A node that is empty goes by itself, without a command."""
    _count_decision({"decision": "delete", "reason": "empty", "consolidation_type": "empty"}, (pool,))


def count_ending(proposal: Proposal, finished: CommandFinished) -> None:
    """How a command ended. What people stopped, and what never began, has not failed."""
    labels = _decision_labels(proposal)
    _add(COMMANDS, "Commands of voluntary disruption, by how they ended", {**labels, "ending": finished.ending})
    if finished.ending in ("not replaced", "held", "failed"):
        _add(FAILURES, "Commands that had begun and came to nothing", labels)
    if finished.ending == "stale":
        kind = {"consolidation_type": labels["consolidation_type"]}
        _add(VALIDATIONS, "Commands that would not be decided like this any more", kind)


def _count_decision(labels: dict[str, str], pools: Iterable[str]) -> None:
    _add(DECISIONS, "Decisions to disrupt nodes voluntarily", labels)
    for pool in sorted({*pools}):
        _add(BY_NODEPOOL, "Decisions to disrupt nodes voluntarily, by NodePool", {**labels, "nodepool": pool})


def _decision_labels(proposal: Proposal) -> dict[str, str]:
    return {
        "decision": "replace" if proposal.replacements else "delete",
        "reason": proposal.reason.lower(),
        "consolidation_type": "" if proposal.kind == "drift" else proposal.kind,
    }


def _add(name: str, described: str, labels: dict[str, str]) -> None:
    workflow.metric_meter().create_counter(name, described).add(1, labels)
