"""What a worker runs: every workflow, and the sandbox they run in. Tests and the replayer use the same."""

from collections.abc import Sequence

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy

from workflows.cluster import ClusterWorkflow
from workflows.disruption import DisruptionWorkflow
from workflows.interruption import InterruptionWorkflow
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodeclass import NodeClassWorkflow
from workflows.nodepool import NodePoolWorkflow
from workflows.provisioning import ProvisioningWorkflow
from workflows.showing import ShowWorkflow
from workflows.timely import TimelyRunner
from workflows.upkeep import UpkeepWorkflow
from workflows.watch import WatchWorkflow

WORKFLOWS: Sequence[type] = (
    ClusterWorkflow,
    DisruptionWorkflow,
    InterruptionWorkflow,
    NodeClaimWorkflow,
    NodeClassWorkflow,
    NodePoolWorkflow,
    ProvisioningWorkflow,
    ShowWorkflow,
    UpkeepWorkflow,
    WatchWorkflow,
)
PASSED_THROUGH = (
    "activities",
    "model",
    "policy",
    "scheduling",
    "cronsim",
    "workflows.answers",
    "workflows.approvals",
    "workflows.attributes",
    "workflows.booking",
    "workflows.brakes",
    "workflows.command",
    "workflows.decision_measures",
    "workflows.details",
    "workflows.disruption",
    "workflows.ids",
    "workflows.interruptible",
    "workflows.launch_groups",
    "workflows.life",
    "workflows.looks",
    "workflows.measures",
    "workflows.nodeclaim",
    "workflows.options",
    "workflows.permits",
    "workflows.phases",
    "workflows.replicas",
    "workflows.rollouts",
    "workflows.visible",
    "workflows.wishes",
)
"""Loaded once and shared by all runs; kept deterministic by the linter's bans and the import contracts."""


def runner() -> TimelyRunner:
    """Our own packages pass through; a module that was forgotten is an error when the worker is made."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(
        *PASSED_THROUGH
    ).with_import_notification_policy(
        SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
    return TimelyRunner(SandboxedWorkflowRunner(restrictions=restrictions), frozenset(PASSED_THROUGH))
