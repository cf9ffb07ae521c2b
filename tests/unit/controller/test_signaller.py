"""Signals: one at a time for each workflow, only what is new, again until they are taken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCStatusCode

from tenure.controller.signals import signaller as module
from tenure.controller.signals.signaller import AT_ONCE, Signal, Signaller, Start
from tenure.model.observations import PoolSeen
from tests.support.fakes.turns import turns
from tests.unit.controller.fake_temporal import FakeTemporal


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> FakeTemporal:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.001)
    return FakeTemporal()


@pytest.fixture
async def signaller(temporal: FakeTemporal) -> AsyncIterator[Signaller]:
    signaller = Signaller(temporal.client, "queue", {})
    task = asyncio.create_task(signaller.run())
    yield signaller
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def signal(number: int, workflow_id: str = "w", *, start: bool = True, again: bool = True) -> Signal:
    state = PoolSeen(usage="state")
    how = Start("Flow", state, summary="what it is", again=again) if start else None
    return Signal(workflow_id, "seen", PoolSeen(number=number), f"digest-{number}", how)


async def quiet(signaller: Signaller) -> None:
    """Until nothing waits and nothing is under way."""
    for _ in range(1000):
        if not signaller._waiting and not signaller._busy:
            return
        await asyncio.sleep(0.002)
    raise AssertionError("signals still wait")


def numbers(temporal: FakeTemporal) -> list[int]:
    return [one.argument.number for one in temporal.sent if isinstance(one.argument, PoolSeen)]


async def test_a_signal_starts_the_workflow_where_it_is_not(temporal: FakeTemporal, signaller: Signaller) -> None:
    assert signaller.offer(signal(1))
    await quiet(signaller)
    sent = temporal.sent[0]
    assert (sent.workflow, sent.workflow_id, sent.signal) == ("Flow", "w", "seen")
    assert sent.options["task_queue"] == "queue" and sent.options["static_summary"] == "what it is"
    assert sent.options["id_conflict_policy"] is WorkflowIDConflictPolicy.USE_EXISTING
    assert signaller.sent == {"w": "digest-1"} and signaller.told("w") == "digest-1"


@pytest.mark.parametrize(
    ("again", "policy"),
    [(True, WorkflowIDReusePolicy.ALLOW_DUPLICATE), (False, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)],
)
async def test_what_lives_but_once_is_not_started_again(
    temporal: FakeTemporal, signaller: Signaller, again: bool, policy: WorkflowIDReusePolicy
) -> None:
    signaller.offer(signal(1, again=again))
    await quiet(signaller)
    assert temporal.sent[0].options["id_reuse_policy"] is policy


async def test_what_was_told_is_not_told_twice(temporal: FakeTemporal, signaller: Signaller) -> None:
    signaller.sent["carried"] = "digest-1"
    assert not signaller.offer(signal(1, "carried"))
    signaller.offer(signal(1))
    await quiet(signaller)
    assert not signaller.offer(signal(1))
    assert signaller.offer(signal(2))
    await quiet(signaller)
    assert numbers(temporal) == [1, 2]


async def test_while_one_is_under_way_only_the_latest_waits(temporal: FakeTemporal, signaller: Signaller) -> None:
    temporal.gate = asyncio.Event()
    signaller.offer(signal(1))
    await turns()
    for number in (2, 3, 4):
        signaller.offer(signal(number))
    await turns()
    assert temporal.waiting == 1
    temporal.gate.set()
    await quiet(signaller)
    assert numbers(temporal) == [1, 4]


async def test_what_went_back_to_where_it_was_while_it_waited_is_told_all_the_same(
    temporal: FakeTemporal, signaller: Signaller
) -> None:
    """1 is under way, 2 waits, 1 is offered again: the workflow knows 1, so nothing more needs to be sent."""
    temporal.gate = asyncio.Event()
    signaller.offer(signal(1))
    await turns()
    signaller.offer(signal(2))
    signaller.offer(signal(1))
    temporal.gate.set()
    await quiet(signaller)
    assert numbers(temporal)[-1] == 1 and signaller.told("w") == "digest-1"


async def test_many_workflows_are_told_together_and_not_all_at_once(
    temporal: FakeTemporal, signaller: Signaller
) -> None:
    temporal.gate = asyncio.Event()
    for number in range(100):
        signaller.offer(signal(number, f"w-{number}"))
    await turns()
    assert temporal.waiting == AT_ONCE
    temporal.gate.set()
    await quiet(signaller)
    assert sorted(numbers(temporal)) == list(range(100)) and temporal.most_at_once == AT_ONCE


async def test_a_server_that_is_down_is_asked_again(temporal: FakeTemporal, signaller: Signaller) -> None:
    temporal.failures = [RPCStatusCode.UNAVAILABLE, RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.DEADLINE_EXCEEDED]
    signaller.offer(signal(1))
    await quiet(signaller)
    assert numbers(temporal) == [1] and not temporal.failures


async def test_a_workflow_that_is_over_needs_no_word(temporal: FakeTemporal, signaller: Signaller) -> None:
    temporal.failures = [RPCStatusCode.NOT_FOUND]
    signaller.offer(signal(1, start=False))
    await quiet(signaller)
    assert temporal.sent == [] and signaller.sent == {}


async def test_what_is_withdrawn_is_neither_sent_nor_remembered(temporal: FakeTemporal, signaller: Signaller) -> None:
    temporal.gate = asyncio.Event()
    signaller.offer(signal(1))
    await turns()
    signaller.offer(signal(2))
    signaller.withdraw("w")
    temporal.gate.set()
    await quiet(signaller)
    assert numbers(temporal) == [1]
