"""Events and annotations of interruptions, and the steps of stopping and starting an instance."""

from datetime import datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.interruption.activities import NodeInterruptionActivities
from activities.nodeclaim.eviction import BatchedFirstEviction
from tenure.apis.labels import INTERRUPTIONS, MAINTENANCE_PLANNED, MAINTENANCE_UNTIL
from tenure.model.base import instance_id_of
from tenure.model.errors import BadInput, Throttled, TryLater
from tenure.model.interruption.records import EventText, InterruptionNotification
from tenure.model.nodeclaim.requests import NodeClaimRef, StopStartResult
from tenure.model.provider_results import InstanceFacts
from tests.support.fakes.kubernetes import condition_statuses
from tests.unit.activities.builders import PROVIDER, FakeCluster, run_activity

EVENT_TEXT = EventText(reason="SpotInterrupted", message="Spot interruption warning was triggered: soon")
INSTANCE = instance_id_of(PROVIDER)


def build_notification(**fields: Any) -> InterruptionNotification:
    claim = NodeClaimRef(name="a", uid="uid-a", node_name="node-a", provider_id=PROVIDER)
    return InterruptionNotification.model_validate({"claim": claim, **fields})


async def publish_events(cluster: FakeCluster, **fields: Any) -> dict[str, str]:
    """Publish, and return the annotations of the NodeClaim."""
    activities = NodeInterruptionActivities(cluster.made, BatchedFirstEviction())
    await run_activity(activities.publish_interruption_events, build_notification(**fields))
    annotations: dict[str, str] = cluster.claims.found["a"]["metadata"]["annotations"]
    return annotations


async def test_event_is_published_on_nodeclaim_and_node(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    assert INTERRUPTIONS not in await publish_events(cluster, events=[EVENT_TEXT])
    published = ("SpotInterrupted", EVENT_TEXT.message)
    assert cluster.events.published == [("a", *published), ("node-a", *published)]


async def test_node_of_another_instance_with_same_name_gets_no_event(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", provider_id="aws:///us-west-2a/i-other")
    await publish_events(cluster, events=[EVENT_TEXT])
    assert cluster.events.reasons_for("node-a") == []


async def test_event_is_published_although_the_node_rejects_updates(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.faults["set_conditions"] = [Throttled("429")]
    planned = {"type": MAINTENANCE_PLANNED, "status": "True"}
    with pytest.raises(ApplicationError, match="429"):
        await publish_events(cluster, events=[EVENT_TEXT], node_conditions=[planned])
    assert cluster.events.reasons_for("a") == ["SpotInterrupted"]


async def test_conditions_of_the_node_are_set_and_removed(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    planned = {"type": MAINTENANCE_PLANNED, "status": "True"}
    await publish_events(cluster, node_conditions=[planned])
    assert condition_statuses(cluster.nodes.found["node-a"]) == {MAINTENANCE_PLANNED: "True"}
    await publish_events(cluster, node_conditions=[planned | {"status": ""}])
    assert condition_statuses(cluster.nodes.found["node-a"]) == {}
    assert cluster.events.published == []


async def test_interruption_annotations_are_written_and_removed(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    until = datetime.fromisoformat("2026-06-01T12:00:00+00:00")
    annotations = await publish_events(cluster, write=True, text="[]", maintenance_until=until)
    assert (annotations[INTERRUPTIONS], annotations[MAINTENANCE_UNTIL]) == ("[]", until.isoformat())
    annotations = await publish_events(cluster, write=True)
    assert not {INTERRUPTIONS, MAINTENANCE_UNTIL} & annotations.keys()


async def test_nodeclaim_with_same_name_and_other_uid_gets_no_annotation(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.claims.found["a"]["metadata"]["uid"] = "uid-other"
    assert INTERRUPTIONS not in await publish_events(cluster, write=True, text="[]")


# --- stop and start ---


def add_running_instance(cluster: FakeCluster, state: str = "running", **facts: Any) -> None:
    cluster.instances.running[INSTANCE] = InstanceFacts(instance_id=INSTANCE, state=state, **facts)


async def stop_or_start(cluster: FakeCluster, step: str) -> StopStartResult:
    call = cluster.ending.stop_instance if step == "stop" else cluster.ending.start_instance
    result: StopStartResult = await run_activity(call, NodeClaimRef(name="a", uid="uid-a", provider_id=PROVIDER))
    return result


@pytest.mark.parametrize(
    ("state", "step", "entered"), [("running", "stop", "stopped"), ("stopped", "start", "running")]
)
async def test_instance_is_stopped_or_started_once(cluster: FakeCluster, state: str, step: str, entered: str) -> None:
    add_running_instance(cluster, state, root="ebs")
    assert [(await stop_or_start(cluster, step)).outcome for _ in range(2)] == ["done", "done"]
    assert cluster.instances.entered_states == [entered], "the second call does nothing"


async def test_instance_with_instance_store_root_is_not_stopped(cluster: FakeCluster) -> None:
    add_running_instance(cluster, root="instance-store")
    result = await stop_or_start(cluster, "stop")
    assert (result.outcome, cluster.instances.entered_states) == ("unfit", []) and "instance-store" in result.why


@pytest.mark.parametrize("state", ["shutting-down", ""])
async def test_missing_instance_is_not_awaited(cluster: FakeCluster, state: str) -> None:
    if state:
        add_running_instance(cluster, state)
    assert (await stop_or_start(cluster, "start")).outcome == "gone"


async def test_start_without_capacity_is_retryable(cluster: FakeCluster) -> None:
    add_running_instance(cluster, "stopped")
    cluster.instances.faults["start"] = [BadInput("no room", code="InsufficientInstanceCapacity")]
    with pytest.raises(ApplicationError) as error:
        await stop_or_start(cluster, "start")
    assert error.value.type == TryLater.__name__ and not error.value.non_retryable
