"""Interruptions that arrive while a NodeClaim workflow waits for something else are acted on at once."""

from typing import Any

from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, is_blocked_by, query_state, wait_until, wait_until_skipping_time
from tests.support.workflows.interruption_messages import interruption_rules, ready_with_rules, send_message
from tests.support.workflows.nodeclaim_workflows import BUSY, observe_empty, ready_nodeclaim, start_nodepool


async def test_interruption_is_handled_during_empty_node_backoff(fake: WorkerHarness) -> None:
    """After 25 minutes the workflow checks the node every ten minutes, and the test skips no time afterwards."""
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    fake.pods.add("node-a", "web")
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "not empty: default/web"), seconds=10)
    await fake.sleep(minutes=25)
    await send_message(fake, handle, "spotInterruption")
    await wait_until(lambda: fake.pods.evicted == ["web"])


async def test_interruption_is_handled_while_node_is_missing(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    await send_message(fake, handle, "spotInterruption")
    await wait_until(lambda: is_past_ready(handle))
    assert (await handle.result()).reason == "spot_interrupted"


STATEFUL = {"matchLabels": {"state": "kept"}, "action": "waitForApproval"}


async def blocked_for_approval(fake: WorkerHarness) -> Handle:
    """A drain after a rebalance recommendation that a pod blocks."""
    handle = await ready_with_rules(fake, rebalanceRecommendation={"action": "drain"}, workloads=[STATEFUL])
    fake.pods.add("node-a", "db", labels={"state": "kept"})
    await send_message(fake, handle, "rebalanceRecommendation")
    await wait_until(lambda: is_blocked_by(handle, "default/db: rebalanceRecommendation"))
    assert fake.pods.evicted == ["web"]
    return handle


async def test_interruption_overrides_approval_of_running_drain(fake: WorkerHarness) -> None:
    handle = await blocked_for_approval(fake)
    await send_message(fake, handle, "spotInterruption")
    assert (await handle.result()).reason == "rebalance_recommendation"
    assert fake.pods.evicted == ["web", "db"]
    assert fake.events.reasons_for("a").count("TerminatingOnInterruption") == 2


async def test_failed_status_check_forces_running_drain(fake: WorkerHarness) -> None:
    handle = await blocked_for_approval(fake)
    fake.pods.blocked["db"] = "a budget"
    await send_message(fake, handle, "instanceStatus", source="status")
    await handle.result()
    assert [name for name, _ in fake.pods.forced] == ["db"]


async def test_failed_status_check_forces_drain_after_failed_write(fake: WorkerHarness) -> None:
    handle = await blocked_for_approval(fake)
    fake.pods.blocked["db"] = "a budget"
    fake.claims.faults["patch"] = [BadInput("denied by a webhook")]
    await send_message(fake, handle, "instanceStatus", source="status")
    await wait_until_skipping_time(fake, lambda: [name for name, _ in fake.pods.forced] == ["db"], seconds=5)
    await handle.result()


async def test_interruption_overrides_do_not_disrupt_in_running_drain(fake: WorkerHarness) -> None:
    event_rules = {"spotInterruption": {"doNotDisrupt": "override"}}
    handle = await ready_with_rules(fake, **event_rules)
    fake.pods.add("node-a", "kept", evictable=False, protected=True, why_not="annotation karpenter.sh/do-not-disrupt")
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, **BUSY, deleting=True, **interruption_rules(**event_rules))
    await wait_until(lambda: is_blocked_by(handle, "default/kept"))
    await send_message(fake, handle, "spotInterruption")
    await handle.result()
    assert fake.pods.evicted == ["web", "kept"]


async def is_past_ready(handle: Handle) -> bool:
    return (await query_state(handle)).phase is not Phase.READY


async def test_interruption_events_are_published_after_nodeclaim_deletion(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    publish, tries = fake.events.publish, 0

    async def busy(*, name: str, reason: str, **fields: Any) -> None:
        """Fail while the NodeClaim exists."""
        nonlocal tries
        if reason == "SpotInterrupted" and "a" in fake.claims.found:
            tries += 1
            raise TryLater("too many requests")
        await publish(name=name, reason=reason, **fields)

    fake.events.publish = busy  # type: ignore[method-assign]
    await send_message(fake, handle, "spotInterruption")
    await handle.result()
    assert tries
    assert {"SpotInterrupted", "TerminatingOnInterruption"} <= set(fake.events.reasons_for("a"))
