"""Signals: one at a time for each workflow, only what is new, again until they are taken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCStatusCode

from tenure.controller.signals import signaller as module
from tenure.controller.signals.signaller import MAX_CONCURRENT_SIGNALS, Signal, SignalQueue, Start
from tenure.model.observations import ObservedNodePool
from tests.support.fakes.event_loop import run_pending_tasks
from tests.unit.controller.fake_temporal import FakeTemporal


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> FakeTemporal:
    monkeypatch.setattr(module, "_MIN_BACKOFF_SECONDS", 0.001)
    return FakeTemporal()


@pytest.fixture
async def signal_queue(temporal: FakeTemporal) -> AsyncIterator[SignalQueue]:
    signal_queue = SignalQueue(temporal.client, "queue", {})
    task = asyncio.create_task(signal_queue.run())
    yield signal_queue
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def signal(number: int, workflow_id: str = "w", *, start: bool = True, allow_restart: bool = True) -> Signal:
    state = ObservedNodePool(usage="state")
    how = Start("Flow", state, summary="what it is", allow_restart=allow_restart) if start else None
    return Signal(workflow_id, "observe", ObservedNodePool(number=number), f"digest-{number}", how)


async def wait_until_idle(signal_queue: SignalQueue) -> None:
    """Until nothing waits and nothing is under way."""
    for _ in range(1000):
        if not signal_queue._waiting and not signal_queue._busy:
            return
        await asyncio.sleep(0.002)
    raise AssertionError("signals still wait")


def sent_numbers(temporal: FakeTemporal) -> list[int]:
    return [one.argument.number for one in temporal.sent if isinstance(one.argument, ObservedNodePool)]


async def test_a_signal_starts_the_workflow_where_it_is_not(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    assert signal_queue.enqueue(signal(1))
    await wait_until_idle(signal_queue)
    sent = temporal.sent[0]
    assert (sent.workflow, sent.workflow_id, sent.signal) == ("Flow", "w", "observe")
    assert sent.options["task_queue"] == "queue" and sent.options["static_summary"] == "what it is"
    assert sent.options["id_conflict_policy"] is WorkflowIDConflictPolicy.USE_EXISTING
    assert signal_queue.sent == {"w": "digest-1"} and signal_queue.last_digest("w") == "digest-1"


@pytest.mark.parametrize(
    ("allow_restart", "policy"),
    [(True, WorkflowIDReusePolicy.ALLOW_DUPLICATE), (False, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)],
)
async def test_what_lives_but_once_is_not_started_again(
    temporal: FakeTemporal, signal_queue: SignalQueue, allow_restart: bool, policy: WorkflowIDReusePolicy
) -> None:
    signal_queue.enqueue(signal(1, allow_restart=allow_restart))
    await wait_until_idle(signal_queue)
    assert temporal.sent[0].options["id_reuse_policy"] is policy


async def test_what_was_told_is_not_told_twice(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    signal_queue.sent["carried"] = "digest-1"
    assert not signal_queue.enqueue(signal(1, "carried"))
    signal_queue.enqueue(signal(1))
    await wait_until_idle(signal_queue)
    assert not signal_queue.enqueue(signal(1))
    assert signal_queue.enqueue(signal(2))
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal) == [1, 2]


async def test_while_one_is_under_way_only_the_latest_waits(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
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


async def test_what_went_back_to_where_it_was_while_it_waited_is_told_all_the_same(
    temporal: FakeTemporal, signal_queue: SignalQueue
) -> None:
    """1 is under way, 2 waits, 1 is offered again: the workflow knows 1, so nothing more needs to be sent."""
    temporal.gate = asyncio.Event()
    signal_queue.enqueue(signal(1))
    await run_pending_tasks()
    signal_queue.enqueue(signal(2))
    signal_queue.enqueue(signal(1))
    temporal.gate.set()
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal)[-1] == 1 and signal_queue.last_digest("w") == "digest-1"


async def test_many_workflows_are_told_together_and_not_all_at_once(
    temporal: FakeTemporal, signal_queue: SignalQueue
) -> None:
    temporal.gate = asyncio.Event()
    for number in range(100):
        signal_queue.enqueue(signal(number, f"w-{number}"))
    await run_pending_tasks()
    assert temporal.waiting == MAX_CONCURRENT_SIGNALS
    temporal.gate.set()
    await wait_until_idle(signal_queue)
    assert sorted(sent_numbers(temporal)) == list(range(100)) and temporal.max_in_flight == MAX_CONCURRENT_SIGNALS


async def test_a_server_that_is_down_is_asked_again(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    temporal.failures = [RPCStatusCode.UNAVAILABLE, RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.DEADLINE_EXCEEDED]
    signal_queue.enqueue(signal(1))
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal) == [1] and not temporal.failures


async def test_a_workflow_that_is_over_needs_no_word(temporal: FakeTemporal, signal_queue: SignalQueue) -> None:
    temporal.failures = [RPCStatusCode.NOT_FOUND]
    signal_queue.enqueue(signal(1, start=False))
    await wait_until_idle(signal_queue)
    assert temporal.sent == [] and signal_queue.sent == {}


async def test_what_is_withdrawn_is_neither_sent_nor_remembered(
    temporal: FakeTemporal, signal_queue: SignalQueue
) -> None:
    temporal.gate = asyncio.Event()
    signal_queue.enqueue(signal(1))
    await run_pending_tasks()
    signal_queue.enqueue(signal(2))
    signal_queue.discard("w")
    temporal.gate.set()
    await wait_until_idle(signal_queue)
    assert sent_numbers(temporal) == [1]
