"""Nodes that AWS says something of, as the queue and the instance's status would have it."""

from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.interruption.notices import EventKind, Notice, Notices
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle
from tests.support.workflows.lives import BUSY, ready
from workflows.nodeclaim import NodeClaimWorkflow


def rules(**interruption: Any) -> dict[str, Any]:
    """What the watch says of a node's rules."""
    return {"rules": LifecycleRules.model_validate({"interruption": interruption}).to_object()}


async def ready_under(fake: World, skipping: WorkflowEnvironment, **interruption: Any) -> Handle:
    """A node under these rules that runs a pod."""
    handle = await ready(fake, skipping)
    fake.pods.place("node-a", "web")
    await fake.see(handle, **BUSY, **rules(**interruption))
    return handle


async def notice(
    fake: World, skipping: WorkflowEnvironment, handle: Handle, kind: EventKind = "scheduledChange", **fields: Any
) -> Notice:
    """AWS says it, now."""
    at = await skipping.get_current_time()
    said = Notice.model_validate({"kind": kind, "id": f"id-{kind}", "at": at, **fields})
    await tell(fake, handle, said)
    return said


async def tell(fake: World, handle: Handle, *notices: Notice, left: tuple[str, ...] = ()) -> None:
    """`left`: pods that were told to go before."""
    provider: str = fake.claims.found["a"]["status"].get("providerID", "/i-unknown")
    told = Notices(instance_id=provider.rpartition("/")[2], notices=notices, left=left)
    await handle.signal(NodeClaimWorkflow.noticed, told)
