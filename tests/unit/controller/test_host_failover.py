"""The session fails over back to the process that lost it, before that process notices the loss."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.controller.host import ClusterController
from tenure.controller.settings import ControllerSettings
from tenure.endpoints import Endpoints
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    Proposal,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.errors import Fault, Forbidden, Throttled, TryLater
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlanOutcome, PlanRequest
from tenure.model.workflow_states import WatchHost
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.event_loop import run_pending_tasks
from tests.unit.controller.fake_temporal import FakeTemporal
from tests.unit.controller.planning.provisioner_harness import FakeOfferings

PREVIEW_REQUEST = DisruptionPreviewRequest(cluster="c")


class FakeSession:
    """A session with fixed results."""

    count = 0

    def __init__(self, **options: Any) -> None:
        FakeSession.count += 1
        self.endpoints = options["endpoints"]
        self.name = f"session {FakeSession.count}"
        self.cluster = self

    async def forever(self) -> None:
        await asyncio.Event().wait()

    run = wait_until_synced = forever

    async def close(self) -> None:
        await asyncio.sleep(0)

    def is_disconnected(self) -> bool:
        return False

    def stale_kinds(self, within: float) -> list[str]:
        return []

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        return PlanOutcome(plan_id=request.plan_id, blocked=self.name)

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        return DisruptionDecision(eligible=7)

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult:
        return ReplacementResult(outcome="made")

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        return DisruptionStatus(nodes=7)


def null_plan_worker() -> AbstractAsyncContextManager[None]:
    return nullcontext()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> ClusterController:
    monkeypatch.setattr("tenure.controller.host.ControllerSession", FakeSession)
    return ClusterController(
        settings=ControllerSettings(cluster="c", karpenter_lease=""),
        kube=cast(KubeAdapters, SimpleNamespace()),
        temporal=FakeTemporal().client,
        offerings=FakeOfferings(),
        instances=FakeInstances(),
        plan_worker=null_plan_worker,
        endpoints=Endpoints(),
    )


async def test_session_that_ends_late_does_not_end_the_next_one(host: ClusterController) -> None:
    first = asyncio.create_task(host.run())
    await run_pending_tasks()
    assert (await host.plan(PlanRequest(plan_id="p"))).blocked == "session 1"
    second = asyncio.create_task(host.run())
    await run_pending_tasks()
    await cancel_session(first)
    assert (await host.plan(PlanRequest(plan_id="p"))).blocked == "session 2"
    await cancel_session(second)
    assert "does not host" in (await host.plan(PlanRequest(plan_id="p"))).blocked


async def test_unreachable_endpoints_are_kept_across_sessions(host: ClusterController) -> None:
    found = []
    for _ in range(2):
        session = asyncio.create_task(host.run())
        await run_pending_tasks()
        found.append(cast(Any, host._session).endpoints)
        await cancel_session(session)
    assert isinstance(found[0], Endpoints) and found[0] is found[1]


async def test_disruption_is_blocked_without_session_or_with_stale_caches(
    host: ClusterController, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = CommandCandidate(node="n", claim="n", pool="general")
    request = ReplacementRequest(
        proposal=Proposal(id="1", reason="Drifted", kind="drift", candidates=(candidate,)), plan_id="p", workflow_id="w"
    )
    rejected = await host.compute_disruption(DisruptionDecisionRequest(first=("n",)))
    assert "does not host" in rejected.blocked and rejected.first == ("n",) and rejected.next_pass_at
    assert (await host.create_replacements(request)).outcome == "not now" and "does not host" in (
        await host.preview_disruption(PREVIEW_REQUEST)
    ).blocked
    session_task = asyncio.create_task(host.run())
    await run_pending_tasks()
    assert (
        (await host.compute_disruption(DisruptionDecisionRequest())).eligible
        == (await host.preview_disruption(PREVIEW_REQUEST)).nodes
        == 7
    )
    assert (await host.create_replacements(request)).outcome == "made"
    monkeypatch.setattr(FakeSession, "stale_kinds", lambda self, within: ["pods"])
    assert (await host.compute_disruption(DisruptionDecisionRequest())).blocked == "caches are too old: pods"
    assert (await host.create_replacements(request)).outcome == "not now"
    await cancel_session(session_task)


async def test_fault_is_reported_once_until_the_watch_is_hosted_again(
    host: ClusterController, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise TryLater("no API server")

    with monkeypatch.context() as patch:
        patch.setattr(host, "_check_karpenter_lease", fail)
        for _ in range(3):
            with pytest.raises(TryLater):
                await host.run()
    session = asyncio.create_task(host.run())
    await run_pending_tasks()
    await cancel_session(session)
    assert [one.fault for one in reported_hosts(host)] == ["no API server", ""]


@pytest.mark.parametrize("fault", [Throttled("429"), Forbidden("401"), TryLater("503")])
async def test_unreadable_lease_of_karpenter_does_not_end_the_session(
    host: ClusterController, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr("tenure.controller.host._LEASE_EVERY", 0.0)
    session, reads = asyncio.create_task(host.run()), 0
    await run_pending_tasks()

    async def fail() -> None:
        nonlocal reads
        reads += 1
        raise fault

    monkeypatch.setattr(host, "_check_karpenter_lease", fail)
    await run_pending_tasks()
    assert reads and not session.done()
    await cancel_session(session)


def reported_hosts(host: ClusterController) -> list[WatchHost]:
    sent = cast(FakeTemporal, host._temporal).arguments_to("c/watch")
    return [one for one in sent if isinstance(one, WatchHost)]


async def cancel_session(session_task: asyncio.Task[None]) -> None:
    session_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await session_task
