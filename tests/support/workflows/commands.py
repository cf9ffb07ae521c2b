"""Candidates and disruption commands, for tests of voluntary disruption."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from tenure.apis.labels import DISRUPTION_REASON
from tenure.model.disruption.commands import CommandFinished, CommandState, Proposal, ReplacementMessage
from tenure.model.disruption.decision import CommandCandidate
from tests.support.fakes.permit_granter import PermitGranterHandle, PermitGranterWorkflow, PermitRules
from tests.support.fakes.worker import WorkerHarness
from workflows import ids
from workflows.disruption.command import DisruptionWorkflow

CommandHandle = WorkflowHandle[DisruptionWorkflow, CommandFinished]


def add_nodes(fake: WorkerHarness, *names: str) -> None:
    """Add initialized nodes, each with a pod."""
    for name in names:
        provider = f"aws:///us-west-2a/i-{name}"
        fake.claims.add(name)
        fake.claims.found[name]["metadata"]["finalizers"] = ["karpenter.sh/termination"]
        fake.claims.set_status(name, provider_id=provider, Initialized="True")
        fake.nodes.join(f"node-{name}", provider)
        fake.pods.add(f"node-{name}", f"web-{name}")


def make_proposal(*names: str, replacements: int = 1, pool: str = "default", **fields: Any) -> Proposal:
    candidates = (CommandCandidate(node=f"node-{one}", claim=one, claim_uid=f"uid-{one}", pool=pool) for one in names)
    defaults: dict[str, Any] = {"id": "-".join(names), "reason": "Underutilized", "kind": "multi", "why": "cheaper"}
    return Proposal(
        candidates=tuple(candidates),
        replacements=replacements,
        replacement_pools=(pool,) if replacements else (),
        **{**defaults, **fields},
    )


async def start_permit_granter(fake: WorkerHarness, pool: str = "default", **rules: Any) -> PermitGranterHandle:
    """Start a permit granter instead of the NodePool's workflow."""
    return await fake.client.start_workflow(
        PermitGranterWorkflow.run, PermitRules(**rules), id=ids.nodepool(fake.cluster, pool), task_queue=fake.cluster
    )


async def start_command(fake: WorkerHarness, proposal: Proposal) -> CommandHandle:
    return await fake.client.start_workflow(
        DisruptionWorkflow.run,
        CommandState(cluster=fake.cluster, proposal=proposal),
        id=ids.disruption(fake.cluster, proposal.id),
        task_queue=fake.cluster,
    )


async def is_in_step(handle: CommandHandle, step: str) -> bool:
    """False if the workflow was not started yet."""
    try:
        return (await handle.query(DisruptionWorkflow.state)).step == step
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False


async def command_duration(handle: CommandHandle) -> timedelta:
    """Duration of a completed command."""
    state = await handle.query(DisruptionWorkflow.state)
    assert state.step == "Over" and state.since and state.created_at
    return state.since - state.created_at


async def replacement_names(handle: CommandHandle) -> tuple[str, ...]:
    return (await handle.query(DisruptionWorkflow.state)).claims


def initialize_replacements(fake: WorkerHarness, *names: str, ready: bool = True) -> None:
    """Initialize the replacements' nodes without notifying the command."""
    for name in names:
        provider = f"aws:///us-west-2a/i-{name}"
        fake.claims.found[name]["status"]["nodeName"] = f"node-{name}"
        fake.claims.set_status(name, provider_id=provider, Initialized="True")
        fake.nodes.join(f"node-{name}", provider, ready=ready)


async def report_replacements_ready(fake: WorkerHarness, handle: CommandHandle) -> None:
    """Signal that replacements are ready, as their workflows do."""
    for name in await replacement_names(handle):
        initialize_replacements(fake, name)
        await handle.signal(DisruptionWorkflow.replacement_status, ReplacementMessage(claim=name, ready=True))


def is_deleted(fake: WorkerHarness, name: str) -> bool:
    return name not in fake.claims.found or "deletionTimestamp" in fake.claims.found[name]["metadata"]


def is_disrupted(fake: WorkerHarness, name: str) -> bool:
    """The Node has the disruption taint, or the NodeClaim the condition."""
    return fake.nodes.found[f"node-{name}"].being_disrupted or bool(fake.claims.condition_text(name, DISRUPTION_REASON))


def is_undisturbed(fake: WorkerHarness, *names: str) -> bool:
    return not any(is_deleted(fake, one) or is_disrupted(fake, one) for one in names)
