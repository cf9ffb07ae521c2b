"""Nodes that could go, and commands that take them away, for tests of voluntary disruption."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from tenure.apis.labels import DISRUPTED_TAINT_KEY, DISRUPTION_REASON
from tenure.model.disruption.commands import CommandOver, CommandState, Proposal, ReplacementSaid
from tenure.model.disruption.planning import Leaving
from tests.support.fakes.granter import Granter, GranterWorkflow, Grants
from tests.support.fakes.worker import World
from workflows import ids
from workflows.disruption.command import DisruptionWorkflow

Command = WorkflowHandle[DisruptionWorkflow, CommandOver]


def nodes(fake: World, *names: str) -> None:
    """Initialized, each with a pod."""
    for name in names:
        provider = f"aws:///us-west-2a/i-{name}"
        fake.claims.add(name)
        fake.claims.found[name]["metadata"]["finalizers"] = ["karpenter.sh/termination"]
        fake.claims.give(name, provider_id=provider, Initialized="True")
        fake.nodes.join(f"node-{name}", provider)
        fake.pods.place(f"node-{name}", f"web-{name}")


def proposal(*names: str, replacements: int = 1, pool: str = "default", **fields: Any) -> Proposal:
    leaving = (Leaving(node=f"node-{one}", claim=one, claim_uid=f"uid-{one}", pool=pool) for one in names)
    usual: dict[str, Any] = {"id": "-".join(names), "reason": "Underutilized", "kind": "multi", "why": "cheaper"}
    return Proposal(
        candidates=tuple(leaving),
        replacements=replacements,
        replacement_pools=(pool,) if replacements else (),
        **{**usual, **fields},
    )


async def granting(fake: World, pool: str = "default", **grants: Any) -> Granter:
    """In the place of the NodePool's workflow."""
    return await fake.client.start_workflow(
        GranterWorkflow.run, Grants(**grants), id=ids.nodepool(fake.cluster, pool), task_queue=fake.cluster
    )


async def command(fake: World, wanted: Proposal) -> Command:
    return await fake.client.start_workflow(
        DisruptionWorkflow.run,
        CommandState(cluster=fake.cluster, proposal=wanted),
        id=ids.disruption(fake.cluster, wanted.id),
        task_queue=fake.cluster,
    )


async def in_step(handle: Command, step: str) -> bool:
    """False also for one that was not started yet."""
    try:
        return (await handle.query(DisruptionWorkflow.state)).step == step
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False


async def lasted(handle: Command) -> timedelta:
    """How long a command took that is over."""
    state = await handle.query(DisruptionWorkflow.state)
    assert state.step == "Over" and state.since and state.born
    return state.since - state.born


async def replacements(handle: Command) -> tuple[str, ...]:
    return (await handle.query(DisruptionWorkflow.state)).claims


def comes_up(fake: World, *names: str, ready: bool = True) -> None:
    """Each replacement's node is initialized; nobody is told."""
    for name in names:
        provider = f"aws:///us-west-2a/i-{name}"
        fake.claims.found[name]["status"]["nodeName"] = f"node-{name}"
        fake.claims.give(name, provider_id=provider, Initialized="True")
        fake.nodes.join(f"node-{name}", provider, ready=ready)


async def say_ready(fake: World, handle: Command) -> None:
    """As their workflows do."""
    for name in await replacements(handle):
        comes_up(fake, name)
        await handle.signal(DisruptionWorkflow.replacement, ReplacementSaid(claim=name, ready=True))


def deleted(fake: World, name: str) -> bool:
    return name not in fake.claims.found or "deletionTimestamp" in fake.claims.found[name]["metadata"]


def marked(fake: World, name: str) -> bool:
    """Out of service, or said to be."""
    taints = [key for key, _, _ in fake.nodes.found[f"node-{name}"].taints]
    return DISRUPTED_TAINT_KEY in taints or bool(fake.claims.condition(name, DISRUPTION_REASON))


def untouched(fake: World, *names: str) -> bool:
    return not any(deleted(fake, one) or marked(fake, one) for one in names)
