"""While Temporal is unreachable, signals are retried and the endpoint is reported once."""

import asyncio

import pytest
from temporalio.service import RPCStatusCode

from tenure.controller.signals import signaller
from tenure.controller.signals.signaller import Signal, SignalQueue
from tenure.endpoints import MIN_FAILURES, Endpoints
from tenure.model.observations import ObservedNodeClaim
from tests.support.product.eventually import wait_until
from tests.unit.controller.fake_temporal import FakeTemporal


async def test_signals_are_sent_after_temporal_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signaller, "_MIN_BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(signaller, "_MAX_BACKOFF_SECONDS", 0.001)
    temporal, observed = FakeTemporal(), list[tuple[str, bool]]()
    temporal.failures = [RPCStatusCode.UNAVAILABLE] * 3 * MIN_FAILURES
    queue = SignalQueue(temporal.client, "queue", Endpoints(lambda *found: observed.append(found)))
    for name in ("a", "b", "c"):
        queue.enqueue(Signal(name, "observe", ObservedNodeClaim(number=1), "digest"))

    async def assert_sent() -> None:
        assert queue.count == 3

    task = asyncio.create_task(queue.run())
    try:
        await wait_until(assert_sent, seconds=10, poll_interval=0.001)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert {one.workflow_id for one in temporal.sent} == {"a", "b", "c"}
    assert observed == [("Temporal", True), ("Temporal", False)]
