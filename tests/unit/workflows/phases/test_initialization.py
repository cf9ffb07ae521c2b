"""The initialization step is interrupted after its write, and repeated when the node has changed."""

from collections.abc import Sequence
from typing import Any

from tenure.apis import labels
from tenure.model.errors import TryLater
from tenure.model.nodeclaim.node_identity import REGISTERED_GAP
from tenure.model.nodeclaim.state import Phase
from tenure.model.provider_results import ConditionPatch
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    has_state,
    is_blocked_by,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import BUSY, ready_nodeclaim, registered_nodeclaim
from workflows.phases.initialization import REPORT_DELAY

UNREGISTERED = f"{labels.UNREGISTERED_TAINT_KEY}:NoExecute"


async def test_written_initialization_is_kept_although_node_became_not_ready(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    lose_patch_response(fake)
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    assert fake.claims.condition_text("a", "Initialized").startswith("True")
    state = await query_state(handle)
    assert state.initialized and state.flaps == 0
    assert fake.nodes.found["node-a"].ready is False, "as it was when the step was repeated"


async def test_rebooted_node_waits_until_ready_although_condition_is_true(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.nodes.update_node("node-a", boot_id="boot-2", ready=False)
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2"})
    await wait_until(lambda: is_blocked_by(handle, "NodeNotReady"))
    assert (await query_state(handle)).phase is Phase.INITIALIZATION
    assert fake.claims.condition_text("a", "Initialized").startswith("True"), "it never reverts"
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2", "node_ready": False})
    await wait_until_skipping_time(fake, lambda: has_reboot_event(fake), seconds=5)
    assert fake.claims.condition_text("a", "Initialized").startswith("True")


async def test_outdated_boot_id_of_the_watch_is_not_taken_for_reboots(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    fake.nodes.update_node("node-a", boot_id="boot-2", ready=True)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    await fake.sleep(minutes=1)
    state = await query_state(handle)
    assert (state.reboots, len(state.history)) == (0, 4), "the node was initialized once"
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2"})
    await wait_until(lambda: has_state(handle, reboots=1, phase=Phase.READY))


async def test_gaps_that_follow_a_reboot_are_restored_although_the_blocker_stays(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    launched = (await query_state(handle)).launched
    fake.nodes.join("node-a", launched.provider_id if launched else "")
    blocked = {**BUSY, "boot_id": "boot-2", "waiting_for": [f"KnownEphemeralTaintsExist: {UNREGISTERED}"]}
    await fake.signal_observed(handle, **blocked)
    await wait_until(lambda: is_blocked_by(handle, "KnownEphemeralTaintsExist"))
    await fake.signal_observed(handle, **blocked, registration_gaps=(REGISTERED_GAP,))
    await wait_until(lambda: is_registered(fake))
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2"})
    await wait_until_phase(handle, Phase.READY)


async def test_notready_node_that_disappears_is_missing(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    unready = {**BUSY, "boot_id": "boot-2", "node_ready": False}
    await fake.signal_observed(handle, **unready)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "NodeNotReady"))
    await fake.signal_observed(handle)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2"})
    await wait_until_phase(handle, Phase.READY)


async def test_blocker_of_ready_node_is_written_at_once(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    before = await fake.now()
    await fake.signal_observed(handle, **BUSY, waiting_for=["StartupTaintsExist: example.com/late"])
    await wait_until(lambda: has_initialized_condition(fake, "Unknown StartupTaintsExist"))
    assert await fake.now() - before < REPORT_DELAY
    await fake.signal_observed(handle, **BUSY, waiting_for=["ResourceNotRegistered: nvidia.com/gpu"])
    await wait_until(lambda: has_initialized_condition(fake, "Unknown ResourceNotRegistered"))
    assert await fake.now() - before < REPORT_DELAY


async def test_notready_node_is_blocked_after_a_delay(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    since = (await query_state(handle)).since
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "NodeNotReady"))
    assert since and await fake.now() - since >= REPORT_DELAY


async def is_registered(fake: WorkerHarness) -> bool:
    return labels.REGISTERED in fake.nodes.found["node-a"].labels


async def has_initialized_condition(fake: WorkerHarness, text: str) -> bool:
    return fake.claims.condition_text("a", "Initialized").startswith(text)


async def has_reboot_event(fake: WorkerHarness) -> bool:
    return any(reason == "Rebooted" and "NodeNotReady" in message for _, reason, message in fake.events.published)


def lose_patch_response(fake: WorkerHarness) -> None:
    """Let the patch with Initialized=True succeed, set the Node to NotReady, and return an error to the caller."""
    patch = fake.claims.patch

    async def once(*args: Any, conditions: Sequence[ConditionPatch] = (), **kwargs: Any) -> Any:
        response = await patch(*args, conditions=conditions, **kwargs)
        if any((one.type, one.status) == ("Initialized", "True") for one in conditions):
            fake.claims.patch = patch  # type: ignore[method-assign]
            fake.nodes.update_node("node-a", ready=False)
            raise TryLater("the connection was cut")
        return response

    fake.claims.patch = once  # type: ignore[method-assign]
