"""The watch fails over back to the process that it was lost by, before that one has noticed."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.host import ClusterHost
from controller.settings import HostSettings
from kube.adapters import KubeAdapters
from model.plans import PlanOutcome, PlanRequest
from tests.controller.fake_temporal import FakeTemporal
from tests.controller.test_planning import Types
from tests.fakes.cloud import FakeInstances


class Stay:
    """A session that does nothing but plan."""

    made = 0

    def __init__(self, **_: Any) -> None:
        Stay.made += 1
        self.name = f"stay {Stay.made}"
        self.sent: dict[str, str] = {}

    async def forever(self) -> None:
        await asyncio.Event().wait()

    run = plannable = watch_drift = forever

    async def close(self) -> None:
        await asyncio.sleep(0)

    def deaf(self) -> bool:
        return False

    def stale(self, within: float) -> list[str]:
        return []

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        return PlanOutcome(plan_id=request.plan_id, blocked=self.name)


def nobody() -> AbstractAsyncContextManager[None]:
    return nullcontext()


async def test_a_stay_that_ends_late_does_not_end_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.host.Session", Stay)
    host = ClusterHost(
        settings=HostSettings(cluster="c", task_queue="c", others_lease=""),
        kube=cast(KubeAdapters, SimpleNamespace()),
        temporal=FakeTemporal().client,
        offerings=Types(),
        instances=FakeInstances(),
        plan_worker=nobody,
    )
    first = asyncio.create_task(host.run(None, lambda _: None))
    await asyncio.sleep(0.01)
    assert (await host.plan(PlanRequest(plan_id="p"))).blocked == "stay 1"
    second = asyncio.create_task(host.run(None, lambda _: None))
    await asyncio.sleep(0.01)
    await ended(first)
    assert (await host.plan(PlanRequest(plan_id="p"))).blocked == "stay 2"
    await ended(second)
    assert "does not host" in (await host.plan(PlanRequest(plan_id="p"))).blocked


async def ended(stay: asyncio.Task[None]) -> None:
    stay.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stay
