"""The resync compares NodeClaims with running workflows and repairs both sides."""

from datetime import datetime

import pytest
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from tenure.apis.labels import DISRUPTED_TAINT_KEY, DISRUPTION_REASON, EARLY_EVICTED_AT
from tenure.controller.interruption.notifier import INTERRUPTION_WINDOW
from tenure.controller.resync import (
    MissingWorkflowCounter,
    notify_closed_commands,
    notify_orphaned_coordinators,
    repair_nodeclaim_workflows,
    restart_missing_coordinators,
    restore_abandoned_nodes,
    restore_early_evicted_nodes,
)
from tenure.model.disruption.commands import ClosedCommands
from tenure.model.facts import NodeClaimFact
from tenure.model.nodeclaim.state import NodeClaimIdentity
from tenure.model.observations import ObservedNodeClass, ObservedNodePool
from tests.support.controller.builders import Json, at, claim, node, node_class, pool
from tests.support.controller.meter import RecordingMeter
from tests.support.fakes.kubernetes import FakeNodeClaims, FakeNodes
from tests.unit.controller.fake_temporal import FakeTemporal, RecordingSignalQueue
from tests.unit.controller.signals.notifier_harness import ALL_SYNCED, NotifierHarness


def repair(harness: NotifierHarness, running: dict[str, datetime], seconds: float = 0) -> tuple[int, int]:
    return repair_nodeclaim_workflows(
        running, harness.cache, harness.notifier, harness.signal_queue, ALL_SYNCED, at(seconds)
    )


def workflow_key(name: str) -> str:
    return f"prod/nodeclaim/{name}/{f'uid-{name}'[:8]}"


@pytest.mark.parametrize(
    ("nodeclaim", "running", "repaired", "signaled"),
    [
        (claim("c1"), {"c1": -100}, (0, 0), ""),
        (claim("c1"), {}, (1, 0), "c1"),
        (claim("c1", creationTimestamp="2026-01-01T11:59:30Z"), {}, (0, 0), ""),
        (claim("c1", deleting=True, finalizers=["example.com/mine"]), {}, (0, 0), ""),
        (claim("c1", deleting=True), {}, (1, 0), "c1"),
        (None, {"lost": -100, "young": -10}, (0, 1), "lost"),
    ],
    ids=["running", "missing", "young", "finalizer removed", "deleting", "orphaned"],
)
def test_missing_and_orphaned_workflows_are_repaired(
    nodeclaim: Json | None, running: dict[str, float], repaired: tuple[int, int], signaled: str
) -> None:
    harness = NotifierHarness()
    if nodeclaim:
        harness.apply_objects("nodeclaims", nodeclaim)
    assert repair(harness, {workflow_key(name): at(since) for name, since in running.items()}) == repaired
    assert {one.workflow_id for one in harness.signal_queue.signals} == (
        {workflow_key(signaled)} if signaled else set()
    )
    if signaled == "lost":
        assert harness.signal_queue.arguments_to(workflow_key("lost"))[0].exists is False


def test_nodeclaim_without_workflow_is_signaled_despite_an_equal_digest() -> None:
    harness = NotifierHarness()
    harness.apply_objects("nodeclaims", claim("c1"))
    harness.notify()
    assert repair(harness, {}) == (1, 0)
    assert len(harness.signal_queue.arguments_to(workflow_key("c1"))) == 2


def test_invalid_nodeclaim_does_not_prevent_the_repair_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = NotifierHarness()
    harness.apply_objects("nodeclaims", claim("bad"), claim("good"))
    identity_of = harness.notifier.identity_of

    def fail_for_bad(found: NodeClaimFact) -> NodeClaimIdentity:
        if found.name == "bad":
            raise ValueError
        return identity_of(found)

    monkeypatch.setattr(harness.notifier, "identity_of", fail_for_bad)
    assert repair(harness, {workflow_key("lost"): at(-100)}) == (2, 1)
    signaled = {one.workflow_id for one in harness.signal_queue.signals}
    assert signaled == {workflow_key("good"), workflow_key("lost")}
    assert [one.name for one in harness.cache.invalid_objects.items()] == ["bad"]


def test_digests_of_missing_workflows_are_forgotten() -> None:
    harness = NotifierHarness({workflow_key("old"): "x", "prod/nodepool/general": "y"})
    repair(harness, {})
    assert harness.signal_queue.sent == {"prod/nodepool/general": "y"}


def test_coordinators_of_objects_deleted_without_a_watch_are_signaled() -> None:
    harness = NotifierHarness()
    harness.apply_objects("nodepools", pool("general"))
    running = ["prod/nodepool/general", "prod/nodepool/lost", "prod/nodeclass/lost"]
    assert notify_orphaned_coordinators(running, "prod", harness.cache, harness.notifier, harness.signal_queue) == 2
    for lost_workflow_id, message in zip(running[1:], (ObservedNodePool, ObservedNodeClass), strict=True):
        (observed,) = harness.signal_queue.arguments_to(lost_workflow_id)
        assert isinstance(observed, message) and observed.exists is False
    assert not harness.signal_queue.arguments_to("prod/nodepool/general")


def test_missing_workflows_are_counted_after_the_start_of_a_session() -> None:
    meter = RecordingMeter()
    counter = MissingWorkflowCounter(meter, at(0))
    assert {value for _, _, value in meter.drain_records()} == {0}
    counter.record({"NodeClaim": 40, "NodePool": 2}, at(63))
    assert meter.drain_records() == []
    counter.record({"NodeClaim": 1}, at(123))
    assert meter.drain_records() == [("tenure_workflows_missing_total", ("NodeClaim",), 1)]


async def test_terminated_coordinators_are_started_again() -> None:
    """Visibility shows one of five; Temporal knows a second one, and one has completed."""
    harness, temporal = NotifierHarness(), FakeTemporal()
    temporal.open_workflows = {"prod/nodepool/young"}
    for name in ("general", "young", "lost"):
        harness.apply_objects("nodepools", pool(name))
    harness.apply_objects("ec2nodeclasses", node_class("default"), node_class("finalized", deleting=True))
    harness.notify()
    signaled = len(harness.signal_queue.signals)
    count = await restart_missing_coordinators(
        temporal.client,
        ["prod/nodepool/general"],
        harness.cache,
        harness.notifier,
        ALL_SYNCED,
        at(60),
    )
    assert count == {"NodePool": 1, "EC2NodeClass": 1}
    started = {one.workflow_id for one in harness.signal_queue.signals[signaled:]}
    assert started == {"prod/nodepool/lost", "prod/nodeclass/default"}


@pytest.mark.parametrize(
    ("is_open", "deleting", "owner", "is_restored"),
    [
        (False, False, "prod/disruption/1", True),
        (True, False, "prod/disruption/1", False),
        (False, True, "prod/disruption/1", False),
        (False, False, "prod/disruption/2", False),
    ],
    ids=["closed", "open", "deleting", "other command"],
)
async def test_node_of_a_closed_command_returns_to_service(
    is_open: bool, deleting: bool, owner: str, is_restored: bool
) -> None:
    """A terminated command does not roll itself back. The live NodeClaim may differ from the cache."""
    harness, temporal, claims, nodes = NotifierHarness(), FakeTemporal(), FakeNodeClaims(), FakeNodes()
    temporal.open_workflows = {"prod/disruption/1"} if is_open else set()
    disrupted = {"type": DISRUPTION_REASON, "status": "True", "reason": "Drifted", "message": "prod/disruption/1"}
    raw = claim("c1", phase="Initialized")
    raw["status"]["conditions"].append(disrupted)
    harness.apply_objects("nodeclaims", raw)
    harness.apply_objects("nodes", node("n1", of="c1"))
    claims.add("c1")
    claims.set_status("c1", deleting=deleting)
    claims.found["c1"]["status"]["conditions"] = [{**disrupted, "message": owner}]
    nodes.join("n1", "aws:///us-west-2a/i-c1")
    await nodes.mark_disrupted("n1")
    await restore_abandoned_nodes(temporal.client, harness.cache, claims, nodes)
    assert nodes.found["n1"].being_disrupted != is_restored
    assert bool(claims.condition_text("c1", DISRUPTION_REASON)) != is_restored


def execution(proposal_id: str, status: str, closed_at: datetime | None = None) -> WorkflowExecutionInfo:
    found = WorkflowExecutionInfo(status=WorkflowExecutionStatus.Value(f"WORKFLOW_EXECUTION_STATUS_{status}"))
    found.execution.workflow_id = f"prod/disruption/{proposal_id}"
    if closed_at:
        found.close_time.FromDatetime(closed_at)
    return found


async def test_cluster_workflow_is_notified_of_terminated_commands() -> None:
    """An operator may reset a terminated command, which runs again under its ID."""
    temporal, signal_queue = FakeTemporal(), RecordingSignalQueue()
    await notify_closed_commands(temporal.client, "prod", signal_queue, at(60))
    assert not signal_queue.signals
    temporal.executions = [
        execution("a", "TERMINATED", at(30)),
        execution("a", "TIMED_OUT", at(20)),
        execution("reset", "TERMINATED", at(10)),
        execution("reset", "RUNNING"),
    ]
    for _ in range(2):
        await notify_closed_commands(temporal.client, "prod", signal_queue, at(60))
    (signal,) = signal_queue.signals
    assert (signal.workflow_id, signal.name) == ("prod/cluster", "commands_closed")
    assert signal.argument == ClosedCommands(closed={"a": at(30)})


@pytest.mark.parametrize(
    ("evicted_after", "status", "is_restored"),
    [(0, "", True), (1, "", False), (0, "deleting", False), (0, "disrupted", False)],
    ids=["over", "in its window", "deleting", "drain before the deletion"],
)
async def test_node_returns_to_service_after_its_early_eviction(
    evicted_after: float, status: str, is_restored: bool
) -> None:
    """The LifecyclePolicy may have `ignore` by the time at which the workflow receives the event."""
    harness, claims, nodes = NotifierHarness(), FakeNodeClaims(), FakeNodes()
    annotations = {EARLY_EVICTED_AT: at(evicted_after).isoformat()}
    taint = {"key": DISRUPTED_TAINT_KEY, "effect": "NoSchedule"}
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    harness.apply_objects("nodes", node("n1", of="c1", taints=[taint], annotations=annotations))
    claims.add("c1")
    claims.set_status(
        "c1", deleting=status == "deleting", **({DISRUPTION_REASON: "True"} if status == "disrupted" else {})
    )
    nodes.join("n1", "aws:///us-west-2a/i-c1", annotations=annotations)
    await nodes.mark_disrupted("n1")
    await restore_early_evicted_nodes(harness.cache, claims, nodes, at(0) + INTERRUPTION_WINDOW)
    assert nodes.found["n1"].being_disrupted != is_restored
