"""The watch fails over back to the process that it was lost by, before that one has noticed."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.controller.host import ClusterHost
from tenure.controller.settings import HostSettings
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.disruption.commands import DecideAsked, Decided, Proposal, ReplaceAsked, Replaced
from tenure.model.disruption.planning import Leaving
from tenure.model.operator_requests import ShowAsked, Shown
from tenure.model.provisioning import PlanOutcome, PlanRequest
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.turns import turns
from tests.unit.controller.fake_temporal import FakeTemporal
from tests.unit.controller.test_planning import Types

SHOW = ShowAsked(cluster="c")


class Stay:
    """A session that does nothing but plan."""

    made = 0

    def __init__(self, **_: Any) -> None:
        Stay.made += 1
        self.name = f"stay {Stay.made}"
        self.sent: dict[str, str] = {}

    async def forever(self) -> None:
        await asyncio.Event().wait()

    run = plannable = watch_drift = watch_disruption = forever

    async def close(self) -> None:
        await asyncio.sleep(0)

    def deaf(self) -> bool:
        return False

    def stale(self, within: float) -> list[str]:
        return []

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        return PlanOutcome(plan_id=request.plan_id, blocked=self.name)

    async def decide(self, asked: DecideAsked) -> Decided:
        return Decided(eligible=7)

    async def replace(self, asked: ReplaceAsked) -> Replaced:
        return Replaced(outcome="made")

    async def show(self, asked: ShowAsked) -> Shown:
        return Shown(nodes=7)


def nobody() -> AbstractAsyncContextManager[None]:
    return nullcontext()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> ClusterHost:
    monkeypatch.setattr("tenure.controller.host.Session", Stay)
    return ClusterHost(
        settings=HostSettings(cluster="c", task_queue="c", others_lease=""),
        kube=cast(KubeAdapters, SimpleNamespace()),
        temporal=FakeTemporal().client,
        offerings=Types(),
        instances=FakeInstances(),
        plan_worker=nobody,
    )


async def test_a_stay_that_ends_late_does_not_end_the_next_one(host: ClusterHost) -> None:
    first = asyncio.create_task(host.run(None, lambda _: None))
    await turns()
    assert (await host.plan(PlanRequest(plan_id="p"))).blocked == "stay 1"
    second = asyncio.create_task(host.run(None, lambda _: None))
    await turns()
    await ended(first)
    assert (await host.plan(PlanRequest(plan_id="p"))).blocked == "stay 2"
    await ended(second)
    assert "does not host" in (await host.plan(PlanRequest(plan_id="p"))).blocked


async def test_disruption_is_refused_as_a_value_while_there_is_no_host_or_its_caches_are_old(
    host: ClusterHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = Leaving(node="n", claim="n", pool="general")
    wanted = ReplaceAsked(
        proposal=Proposal(id="1", reason="Drifted", kind="drift", candidates=(leaving,)), plan_id="p", workflow_id="w"
    )
    refused = await host.decide(DecideAsked(first=("n",)))
    assert "does not host" in refused.blocked and refused.first == ("n",) and refused.again
    assert (await host.replace(wanted)).outcome == "not now" and "does not host" in (await host.show(SHOW)).blocked
    stay = asyncio.create_task(host.run(None, lambda _: None))
    await turns()
    assert (await host.decide(DecideAsked())).eligible == (await host.show(SHOW)).nodes == 7
    assert (await host.replace(wanted)).outcome == "made"
    monkeypatch.setattr(Stay, "stale", lambda self, within: ["pods"])
    assert (await host.decide(DecideAsked())).blocked == "caches are too old: pods"
    assert (await host.replace(wanted)).outcome == "not now"
    await ended(stay)


async def ended(stay: asyncio.Task[None]) -> None:
    stay.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stay
