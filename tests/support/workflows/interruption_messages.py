"""Nodes that AWS says something of, as the queue and the instance's status would have it."""

from typing import Any

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.interruption.messages import EventKind, InterruptionMessage, InterruptionMessages
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle
from tests.support.workflows.nodeclaim_workflows import BUSY, ready_nodeclaim
from workflows.nodeclaim import NodeClaimWorkflow


def interruption_rules(**interruption: Any) -> dict[str, Any]:
    """What the watch says of a node's rules."""
    return {"rules": LifecycleRules.model_validate({"interruption": interruption}).to_object()}


async def ready_with_rules(fake: WorkerHarness, **interruption: Any) -> Handle:
    """A node under these rules that runs a pod."""
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    await fake.signal_observed(handle, **BUSY, **interruption_rules(**interruption))
    return handle


async def send_message(
    fake: WorkerHarness, handle: Handle, kind: EventKind = "scheduledChange", **fields: Any
) -> InterruptionMessage:
    """AWS says it, now."""
    at = await fake.now()
    message = InterruptionMessage.model_validate({"kind": kind, "id": f"id-{kind}", "at": at, **fields})
    await signal_interruption(fake, handle, message)
    return message


async def signal_interruption(
    fake: WorkerHarness, handle: Handle, *messages: InterruptionMessage, early_evicted_pods: tuple[str, ...] = ()
) -> None:
    """`early_evicted_pods`: pods that were told to go before."""
    provider: str = fake.claims.found["a"]["status"].get("providerID", "/i-unknown")
    interruption = InterruptionMessages(
        instance_id=provider.rpartition("/")[2], messages=messages, evicted_pods=early_evicted_pods
    )
    await handle.signal(NodeClaimWorkflow.interruption_events, interruption)
