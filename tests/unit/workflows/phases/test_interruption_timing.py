"""Interruptions that arrive while a NodeClaim workflow waits for something else are acted on at once."""

from typing import Any

from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, is_blocked_by, query_state, wait_until, wait_until_skipping_time
from tests.support.workflows.interruption_messages import blocked_for_approval, ready_with_rules, send_message
from tests.support.workflows.nodeclaim_workflows import observe_empty, ready_nodeclaim, start_nodepool


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


async def test_failed_status_check_forces_drain_after_failed_write(fake: WorkerHarness) -> None:
    handle = await blocked_for_approval(fake)
    fake.pods.blocked["db"] = "a budget"
    await wait_until(lambda: is_blocked_by(handle, "default/db"))
    fake.claims.faults["patch"] = [BadInput("denied by a webhook")]
    await send_message(fake, handle, "instanceStatus", source="status")
    await wait_until_skipping_time(fake, lambda: [name for name, _ in fake.pods.forced] == ["db"], seconds=5)
    await handle.result()


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
