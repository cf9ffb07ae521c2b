"""Signals are sent one at a time per workflow, only if new, and retried until they are accepted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import pytest
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.signals import signaller as module
from tenure.controller.signals.signaller import (
    LEASE_CHECK_SECONDS,
    MAX_CONCURRENT_SIGNALS,
    ROUTINE_BURST,
    ROUTINE_SECONDS,
    Signal,
    SignalQueue,
    Start,
)
from tenure.model.observations import ObservedNodePool
from tests.support.fakes.event_loop import run_pending_tasks
from tests.support.virtual_time import in_virtual_time
from tests.unit.controller.fake_temporal import FakeTemporal, Sent
from workflows import ids


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> FakeTemporal:
    monkeypatch.setattr(module, "_MIN_BACKOFF_SECONDS", 0.001)
    return FakeTemporal()


@pytest.fixture
async def signal_queue(temporal: FakeTemporal) -> AsyncIterator[SignalQueue]:
    signal_queue = SignalQueue(temporal.client, "demo")
    task = asyncio.create_task(signal_queue.run())
    yield signal_queue
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def signal(number: int, workflow_id: str = "w", *, start: bool = True, allow_restart: bool = True) -> Signal:
    state = ObservedNodePool(usage="state")
    start_options = (
        Start("Flow", state, summary="its summary", details="its details", allow_restart=allow_restart)
        if start
        else None
    )
    return Signal(workflow_id, "observe", ObservedNodePool(number=number), f"digest-{number}", start_options)


async def wait_until_idle(signal_queue: SignalQueue) -> None:
    """Wait until no signal is queued or in flight."""
    for _ in range(1000):
        if not signal_queue._waiting and not signal_queue._busy:
            return
        await asyncio.sleep(0.002)
    raise AssertionError("signals are still queued or in flight")


def sent_numbers(temporal: FakeTemporal) -> list[int]:
    return [one.argument.number for one in temporal.sent if isinstance(one.argument, ObservedNodePool)]


async def test_coordinators_start_on_their_own_task_queue(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    for kind in ("NodeClaim", "NodePool"):
        start = Start(kind, ObservedNodePool(usage="state"))
        signal_queue.enqueue(Signal(kind, "observe", ObservedNodePool(number=1), "digest", start))
    await wait_until_idle(signal_queue)
    queues = {one.workflow: one.options["task_queue"] for one in temporal.sent}
    assert queues == {"NodeClaim": "demo", "NodePool": "demo-coordinators"}


async def test_low_priority_signals_wait_for_others(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    for number in range(40):
        signal_queue.enqueue(replace(signal(number, f"w{number}"), low_priority=number < 39))
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal)[0] == 39 and sorted(sent_numbers(temporal)) == list(range(40))


async def test_changed_signal_no_longer_has_low_priority(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    for number in range(40):
        signal_queue.enqueue(replace(signal(number, f"w{number}"), low_priority=True))
    signal_queue.enqueue(signal(100, "w39"))
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal)[0] == 100 and 39 not in sent_numbers(temporal) and len(sent_numbers(temporal)) == 40


async def test_signal_starts_a_missing_workflow(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    assert signal_queue.enqueue(signal(1))
    await wait_until_idle(signal_queue)
    sent = temporal.sent[0]
    assert (sent.workflow, sent.workflow_id, sent.signal) == ("Flow", "w", "observe")
    assert sent.options["task_queue"] == "demo-coordinators" and sent.options["static_summary"] == "its summary"
    assert sent.options["static_details"] == "its details"
    assert sent.options["id_conflict_policy"] is WorkflowIDConflictPolicy.USE_EXISTING
    assert signal_queue.sent == {"w": "digest-1"} and signal_queue.last_digest("w") == "digest-1"


@pytest.mark.parametrize(
    ("allow_restart", "policy"),
    [(True, WorkflowIDReusePolicy.ALLOW_DUPLICATE), (False, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)],
)
async def test_reuse_policy_follows_allow_restart(
    temporal: FakeTemporal, signal_queue: SignalQueue, allow_restart: bool, policy: WorkflowIDReusePolicy
) -> None:
    signal_queue.enqueue(signal(1, allow_restart=allow_restart))
    await wait_until_idle(signal_queue)
    assert temporal.sent[0].options["id_reuse_policy"] is policy


async def test_sent_digest_is_not_sent_again(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    signal_queue.sent["carried"] = "digest-1"
    assert not signal_queue.enqueue(signal(1, "carried"))
    signal_queue.enqueue(signal(1))
    await wait_until_idle(signal_queue)
    assert not signal_queue.enqueue(signal(1))
    assert signal_queue.enqueue(signal(2))
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal) == [1, 2]


async def test_only_the_latest_signal_is_queued_behind_one_in_flight(
    temporal: FakeTemporal, signal_queue: SignalQueue
) -> None:
    temporal.gate = asyncio.Event()
    signal_queue.enqueue(signal(1))
    await run_pending_tasks()
    for number in (2, 3, 4):
        signal_queue.enqueue(signal(number))
    await run_pending_tasks()
    assert temporal.waiting == 1
    temporal.gate.set()
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal) == [1, 4]


async def test_signal_that_returns_to_the_digest_in_flight_is_the_last_sent(
    temporal: FakeTemporal, signal_queue: SignalQueue
) -> None:
    """Signal 1 is in flight, 2 is queued, 1 is enqueued again. The workflow ends with 1."""
    temporal.gate = asyncio.Event()
    signal_queue.enqueue(signal(1))
    await run_pending_tasks()
    signal_queue.enqueue(signal(2))
    signal_queue.enqueue(signal(1))
    temporal.gate.set()
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal)[-1] == 1 and signal_queue.last_digest("w") == "digest-1"


async def test_concurrent_signals_are_limited(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    temporal.gate = asyncio.Event()
    for number in range(100):
        signal_queue.enqueue(signal(number, f"w-{number}"))
    await run_pending_tasks()
    assert temporal.waiting == MAX_CONCURRENT_SIGNALS
    temporal.gate.set()
    await wait_until_idle(signal_queue)
    assert sorted(sent_numbers(temporal)) == list(range(100)) and temporal.max_in_flight == MAX_CONCURRENT_SIGNALS


async def test_signal_is_retried_while_the_server_is_unavailable(
    temporal: FakeTemporal, signal_queue: SignalQueue
) -> None:
    temporal.failures = [RPCStatusCode.UNAVAILABLE, RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.DEADLINE_EXCEEDED]
    signal_queue.enqueue(signal(1))
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal) == [1] and not temporal.failures


async def test_signal_to_a_closed_workflow_is_dropped(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    temporal.failures = [RPCStatusCode.NOT_FOUND]
    signal_queue.enqueue(signal(1, start=False))
    await wait_until_idle(signal_queue)
    assert temporal.sent == [] and signal_queue.sent == {}


async def test_discarded_signal_is_not_sent(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    temporal.gate = asyncio.Event()
    signal_queue.enqueue(signal(1))
    await run_pending_tasks()
    signal_queue.enqueue(signal(2))
    signal_queue.discard("w")
    temporal.gate.set()
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal) == [1]


class LimitedTemporal(FakeTemporal):
    """Rejects every call until `accepts` is set, and records all attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.accepts = False
        self.attempts: list[str] = []

    async def _take(self, sent: Sent) -> None:
        self.attempts.append(sent.workflow_id)
        if not self.accepts:
            raise RPCError("action limit", RPCStatusCode.RESOURCE_EXHAUSTED, b"")
        await super()._take(sent)


CLAIMS = 5000


@in_virtual_time
async def test_attempts_are_bounded_at_the_action_limit_and_then_follow_urgency() -> None:
    temporal = LimitedTemporal()
    queue = SignalQueue(temporal.client, "demo")
    for number in range(CLAIMS):
        key = ids.nodeclaim("demo", f"claim-{number}", "uid")
        queue.enqueue(replace(signal(number, key), low_priority=number % 2 == 0))
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(300)
    # Eight doublings to the longest backoff, then at most one attempt every five seconds, by each sender.
    assert len(temporal.attempts) <= MAX_CONCURRENT_SIGNALS * (8 + 300 / 5)
    queue.enqueue(signal(1, ids.provisioning("demo")))
    temporal.accepts, temporal.attempts = True, []
    await asyncio.sleep(60)
    assert temporal.attempts[0] == ids.provisioning("demo")
    urgent = [one for one in temporal.sent if isinstance(one.argument, ObservedNodePool) and one.argument.number % 2]
    assert len(urgent) == CLAIMS / 2 + 1, "routine signals do not delay them"
    await asyncio.sleep(CLAIMS / 2 / ROUTINE_BURST * ROUTINE_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert queue.is_idle and len(temporal.attempts) == CLAIMS + 1
    numbers = [one.argument.number for one in temporal.sent[1:] if isinstance(one.argument, ObservedNodePool)]
    routine_starts = next(at for at, number in enumerate(numbers) if number % 2 == 0)
    late = [number for number in numbers[routine_starts:] if number % 2]
    # Only signals that were rejected shortly before wait for the end of their own pause.
    assert len(late) <= MAX_CONCURRENT_SIGNALS * (8 + 300 / 5)


@in_virtual_time
async def test_routine_signals_have_a_rate() -> None:
    temporal = FakeTemporal()
    queue = SignalQueue(temporal.client, "demo")
    for number in range(3 * ROUTINE_BURST):
        queue.enqueue(replace(signal(number, f"w{number}"), low_priority=True))
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(0.1)
    assert len(temporal.sent) <= ROUTINE_BURST + 2
    queue.enqueue(signal(1, ids.provisioning("demo")))
    await asyncio.sleep(0.1)
    assert ids.provisioning("demo") in {one.workflow_id for one in temporal.sent}
    await asyncio.sleep(2 * ROUTINE_SECONDS)
    assert queue.is_idle
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_process_without_a_valid_lease_sends_nothing() -> None:
    temporal, valid = FakeTemporal(), [False]
    queue = SignalQueue(temporal.client, "demo", is_leading=lambda: valid[0])
    task = asyncio.create_task(queue.run())
    queue.enqueue(signal(1))
    await asyncio.sleep(60)
    assert not temporal.sent
    queue.enqueue(signal(2))
    valid[0] = True
    await asyncio.sleep(LEASE_CHECK_SECONDS)
    assert sent_numbers(temporal) == [2]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_rejected_signal_does_not_delay_others(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    temporal.failures = [RPCStatusCode.INVALID_ARGUMENT] * MAX_CONCURRENT_SIGNALS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MIN_BACKOFF_SECONDS", 0.05)
        for number in range(2 * MAX_CONCURRENT_SIGNALS):
            signal_queue.enqueue(signal(number, f"w{number}"))
        await run_pending_tasks()
    rejected = set(range(MAX_CONCURRENT_SIGNALS))
    assert sent_numbers(temporal) == sorted(set(range(2 * MAX_CONCURRENT_SIGNALS)) - rejected)
    await wait_until_idle(signal_queue)
    assert set(sent_numbers(temporal)) >= rejected


async def test_coordinators_precede_nodes_and_nodes_precede_repeated_observations(
    temporal: FakeTemporal, signal_queue: SignalQueue
) -> None:
    nodeclaim = ids.nodeclaim("demo", "claim", "uid")
    signal_queue.enqueue(replace(signal(1, f"{nodeclaim}1"), low_priority=True))
    signal_queue.enqueue(signal(2, f"{nodeclaim}2"))
    signal_queue.enqueue(signal(3, ids.provisioning("demo")))
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal) == [3, 2, 1]
