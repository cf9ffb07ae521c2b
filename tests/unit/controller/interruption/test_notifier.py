"""Interruption messages: which workflow is signaled, which messages are new, and which instances are foreign."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode

from activities.ports.interruption import InterruptedNode, NotifyOutcome
from tenure.controller.host import ClusterController
from tenure.controller.interruption import notifier
from tenure.controller.interruption.notifier import InterruptionNotifier
from tenure.controller.session import ControllerSession
from tenure.controller.settings import ControllerSettings
from tenure.model.interruption.messages import InterruptionMessage, InterruptionMessages
from tests.support.controller.builders import NOW, CacheHarness, at, claim
from tests.support.fakes.event_loop import run_pending_tasks
from tests.unit.controller.fake_temporal import FakeTemporal

WORKFLOW_ID = "demo/nodeclaim/a/uid-a"


class InterruptionNotifierHarness(CacheHarness):
    def __init__(self, *phases: str) -> None:
        super().__init__()
        self.temporal = FakeTemporal()
        self.notifier = InterruptionNotifier(self.temporal.client, "demo", now=lambda: self.now)
        self.apply_objects("nodeclaims", claim("a", phase="Initialized"))

    async def notify(self, *messages: InterruptionMessage, instance: str = "i-a", known: bool = True) -> NotifyOutcome:
        return await self.notifier.notify(self.cache, instance, messages or (spot(),), known=known)

    def signaled_ids(self) -> list[list[str]]:
        """The message IDs of each signal."""
        found: Sequence[Any] = self.temporal.arguments_to(WORKFLOW_ID)
        assert all(isinstance(one, InterruptionMessages) and one.instance_id == "i-a" for one in found)
        return [[message.id for message in one.messages] for one in found]


def spot(**more: Any) -> InterruptionMessage:
    return InterruptionMessage.model_validate({"kind": "spotInterruption", "id": "terminate", "at": NOW, **more})


def change(**more: Any) -> InterruptionMessage:
    return InterruptionMessage.model_validate(
        {"kind": "scheduledChange", "id": "arn:1", "at": NOW, "starts": at(86400), **more}
    )


@pytest.fixture
def harness() -> InterruptionNotifierHarness:
    return InterruptionNotifierHarness()


async def test_workflow_of_the_instance_is_signaled(harness: InterruptionNotifierHarness) -> None:
    assert await harness.notify(spot(), change()) == "notified"
    (sent,) = harness.temporal.sent
    assert (sent.workflow_id, sent.signal) == (WORKFLOW_ID, "interruption_events")
    assert harness.signaled_ids() == [["terminate", "arn:1"]]


async def test_repeated_message_is_signaled_once(harness: InterruptionNotifierHarness) -> None:
    assert await harness.notify() == "notified"
    assert await harness.notify(spot(at=at(30))) == "repeated"
    assert await harness.notify(spot(), spot(at=at(60)), change(), change(text="other text")) == "notified"
    assert harness.signaled_ids() == [["terminate"], ["arn:1"]]


async def test_concurrent_repeats_are_signaled_once(harness: InterruptionNotifierHarness) -> None:
    harness.temporal.gate = asyncio.Event()
    tasks = [asyncio.create_task(harness.notify()) for _ in range(5)]
    await asyncio.sleep(0)
    harness.temporal.gate.set()
    assert sorted(await asyncio.gather(*tasks)) == ["notified"] + ["repeated"] * 4
    assert harness.signaled_ids() == [["terminate"]]


async def test_rescheduled_or_withdrawn_event_is_signaled(harness: InterruptionNotifierHarness) -> None:
    await harness.notify(change())
    assert await harness.notify(change(starts=at(7200), at=at(10))) == "notified"
    assert await harness.notify(change(starts=at(7200), status="withdrawn", at=at(20))) == "notified"


async def test_late_older_message_is_a_repeat(harness: InterruptionNotifierHarness) -> None:
    """SQS neither keeps the order nor delivers exactly once."""
    await harness.notify(change(status="withdrawn", at=at(20)))
    assert await harness.notify(change()) == "repeated"


async def test_latest_of_two_messages_about_one_event_counts(harness: InterruptionNotifierHarness) -> None:
    await harness.notify(change(status="over", at=at(20)), change())
    (message,) = harness.temporal.arguments_to(WORKFLOW_ID)
    assert isinstance(message, InterruptionMessages) and [one.status for one in message.messages] == ["over"]


async def test_failed_signal_is_retried(harness: InterruptionNotifierHarness) -> None:
    harness.temporal.failures = [RPCStatusCode.UNAVAILABLE, RPCStatusCode.PERMISSION_DENIED]
    assert [await harness.notify() for _ in range(4)] == ["later", "later", "notified", "repeated"]


async def test_permanent_rejection_raises_rpc_error(harness: InterruptionNotifierHarness) -> None:
    harness.temporal.failures = [RPCStatusCode.INVALID_ARGUMENT]
    with pytest.raises(RPCError):
        await harness.notify()


async def test_unowned_instance_is_foreign(harness: InterruptionNotifierHarness) -> None:
    assert await harness.notify(instance="i-other") == "foreign"
    assert harness.temporal.sent == []


async def test_unknown_instance_may_belong_to_a_launching_nodeclaim(harness: InterruptionNotifierHarness) -> None:
    harness.now = at(-40)
    harness.apply_objects("nodeclaims", claim("b"))
    assert await harness.notify(instance="i-b") == "not yet"
    harness.now = at(21)
    assert await harness.notify(instance="i-b") == "foreign"
    harness.now = at(-40)
    harness.apply_objects("nodeclaims", claim("b", phase="Launched"))
    assert await harness.notify(instance="i-b") == "notified"


async def test_no_instance_is_foreign_with_stale_caches(harness: InterruptionNotifierHarness) -> None:
    assert await harness.notify(instance="i-other", known=False) == "later"
    assert await harness.notify(known=False) == "notified"


async def test_closed_workflow_of_a_deleting_nodeclaim_is_over(harness: InterruptionNotifierHarness) -> None:
    harness.apply_objects("nodeclaims", claim("a", phase="Initialized", deleting=True))
    harness.temporal.failures = [RPCStatusCode.NOT_FOUND]
    assert await harness.notify() == "over"


async def test_missing_workflow_is_signaled_again(harness: InterruptionNotifierHarness) -> None:
    """Its NodeClaim exists and is not deleting, so the controller starts the workflow soon."""
    harness.temporal.failures = [RPCStatusCode.NOT_FOUND]
    assert [await harness.notify(), await harness.notify()] == ["no workflow", "notified"]


async def test_instance_termination_of_a_deleting_node_is_not_signaled(harness: InterruptionNotifierHarness) -> None:
    """AWS announces every termination. A signal for it would only add history events."""
    harness.apply_objects("nodeclaims", claim("a", phase="Initialized", deleting=True))
    ends = InterruptionMessage(kind="instanceTerminating", id="shutting-down", at=NOW)
    assert await harness.notify(ends) == "over"
    assert await harness.notify(ends, spot()) == "notified"
    assert harness.signaled_ids() == [["terminate"]]


async def test_tracked_messages_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "MAX_TRACKED", 2)
    harness = InterruptionNotifierHarness()
    for number in range(3):
        await harness.notify(change(id=f"arn:{number}"))
    assert await harness.notify(change(id="arn:2")) == "repeated"
    assert await harness.notify(change(id="arn:0")) == "notified"


async def test_concurrent_interruption_signals_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = InterruptionNotifierHarness()
    names = [f"n{number}" for number in range(3 * notifier.MAX_CONCURRENT_SIGNALS)]
    for name in names:
        harness.apply_objects("nodeclaims", claim(name, phase="Initialized"))
    harness.temporal.gate = asyncio.Event()
    tasks = [asyncio.create_task(harness.notify(instance=f"i-{name}")) for name in names]
    await run_pending_tasks()
    harness.temporal.gate.set()
    assert set(await asyncio.gather(*tasks)) == {"notified"}
    assert harness.temporal.max_in_flight == notifier.MAX_CONCURRENT_SIGNALS


def test_nodeclaim_is_found_by_instance_until_deletion(harness: InterruptionNotifierHarness) -> None:
    found = harness.cache.nodeclaim_of_instance("i-a")
    assert found is not None and found.name == "a"
    harness.delete_objects("nodeclaims", claim("a", phase="Initialized"))
    assert harness.cache.nodeclaim_of_instance("i-a") is None
    assert harness.cache.nodeclaim_of_instance("") is None
    assert timedelta(minutes=2) == notifier.LAUNCH_WINDOW


class FakeSession:
    """A controller session with the parts that interruption messages need."""

    def __init__(self, harness: InterruptionNotifierHarness) -> None:
        self.cluster = self.provisioning = self
        self.cache = harness.cache
        self.stale_kind_names: list[str] = []
        self.observed: list[str] = []

    def observe_interruption(self, instance_id: str, messages: Sequence[InterruptionMessage]) -> None:
        self.observed.append(instance_id)

    def start_early_eviction(self, instance_id: str, messages: Sequence[InterruptionMessage]) -> InterruptedNode:
        return InterruptedNode(node="n", uid="u", tainted=False, pods=())

    def stale_kinds(self, within: float) -> list[str]:
        return self.stale_kind_names


def make_cluster_controller(harness: InterruptionNotifierHarness) -> ClusterController:
    unused: Any = None
    return ClusterController(
        settings=ControllerSettings(cluster="demo"),
        kube=unused,
        temporal=harness.temporal.client,
        offerings=unused,
        instances=unused,
        plan_worker=unused,
    )


async def test_process_without_session_sends_no_signal(harness: InterruptionNotifierHarness) -> None:
    host = make_cluster_controller(harness)
    assert await host.notify("i-a", [spot()]) == "later"
    assert host.find_owned(["i-a"]) == frozenset()


async def test_host_remembers_signals_across_sessions(harness: InterruptionNotifierHarness) -> None:
    host, live_session = make_cluster_controller(harness), FakeSession(harness)
    host._session = cast(ControllerSession, live_session)
    assert host.find_owned(["i-a", "i-other"]) == {"i-a"}
    assert await host.notify("i-a", [spot()]) == "notified"
    assert await host.notify("i-other", [spot()]) == "foreign"
    assert live_session.observed == ["i-a", "i-other"], "before any workflow is signaled"
    live_session.stale_kind_names = ["nodeclaims"]
    assert await host.notify("i-other", [spot()]) == "later"
    host._session = cast(ControllerSession, FakeSession(harness))
    assert await host.notify("i-a", [spot()]) == "repeated"


async def test_pods_are_evicted_early_only_while_lifecycle_policies_are_known(
    harness: InterruptionNotifierHarness,
) -> None:
    """A LifecyclePolicy that is not known yet may say that the kind is ignored."""
    host, session = make_cluster_controller(harness), FakeSession(harness)
    assert host.find_interrupted_node("i-a", [spot()]) is None
    host._session = cast(ControllerSession, session)
    found = host.find_interrupted_node("i-a", [spot()])
    assert found is not None and found.node == "n"
    session.stale_kind_names = ["lifecyclepolicies"]
    assert host.find_interrupted_node("i-a", [spot()]) is None
