"""Interruption messages for NodeClaim workflows, as from the queue or the instance status."""

from typing import Any

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.base import instance_id_of
from tenure.model.interruption.messages import EventKind, InterruptionMessage, InterruptionMessages
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, has_blocker, wait_until
from tests.support.workflows.nodeclaim_workflows import BUSY, ready_nodeclaim
from workflows.nodeclaim import NodeClaimWorkflow


def interruption_rules(**interruption: Any) -> dict[str, Any]:
    """Fields of an observation with these interruption rules."""
    return {"rules": LifecycleRules.model_validate({"interruption": interruption}).to_object()}


async def ready_with_rules(fake: WorkerHarness, **interruption: Any) -> Handle:
    """A Ready node with a pod and these interruption rules."""
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    await fake.signal_observed(handle, **BUSY, **interruption_rules(**interruption))
    return handle


async def send_message(
    fake: WorkerHarness, handle: Handle, kind: EventKind = "scheduledChange", **fields: Any
) -> InterruptionMessage:
    """Signal a message with the current time. Returns it."""
    at = await fake.now()
    message = InterruptionMessage.model_validate({"kind": kind, "id": f"id-{kind}", "at": at, **fields})
    await signal_interruption(fake, handle, message)
    return message


async def signal_interruption(
    fake: WorkerHarness, handle: Handle, *messages: InterruptionMessage, early_evicted_pods: tuple[str, ...] = ()
) -> None:
    """`early_evicted_pods`: pods that were evicted before the signal."""
    provider: str = fake.claims.found.get("a", {}).get("status", {}).get("providerID", "/i-unknown")
    interruption = InterruptionMessages(
        instance_id=instance_id_of(provider), messages=messages, evicted_pods=early_evicted_pods
    )
    await handle.signal(NodeClaimWorkflow.interruption_events, interruption)


STATEFUL = {"matchLabels": {"state": "kept"}, "action": "waitForApproval"}


async def blocked_for_approval(fake: WorkerHarness) -> Handle:
    """A drain after a rebalance recommendation that a pod blocks."""
    handle = await ready_with_rules(fake, rebalanceRecommendation={"action": "drain"}, workloads=[STATEFUL])
    fake.pods.add("node-a", "db", labels={"state": "kept"})
    await send_message(fake, handle, "rebalanceRecommendation")
    await wait_until(lambda: has_blocker(handle, "default/db: rebalanceRecommendation"))
    assert fake.pods.evicted == ["web"]
    return handle
