"""New workflows for existing NodeClaims, after a loss of Temporal's store or while no worker ran."""

from datetime import timedelta
from typing import Any

import pytest

from activities.ports.core import ConditionPatch
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import TryLater
from tenure.model.node_health import NotReadyInterval, format_intervals, ongoing_since, parse_intervals
from tenure.model.nodeclaim.state import Phase
from tenure.model.provider_results import InstanceFacts
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    is_in_phase,
    query_state,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import BUSY, JOINED, ready_nodeclaim

PROVIDER = "aws:///us-west-2a/i-old"
GROUP = {labels.LAUNCH_GROUP: "plan-0"}
YOUNG = timedelta(seconds=10)
LAUNCHED = {"provider_id": PROVIDER}


async def add_nodeclaim(fake: WorkerHarness, age: timedelta, **spec: Any) -> NodeClaim:
    return fake.claims.add("a", born=await fake.now() - age, **spec)


def add_running_instance(fake: WorkerHarness, instance_id: str = "i-old", **facts: Any) -> None:
    fake.instances.running[instance_id] = InstanceFacts(instance_id=instance_id, state="running", **facts)


async def add_launched_nodeclaim(
    fake: WorkerHarness, *conditions: str, age: timedelta = timedelta(hours=3), **spec: Any
) -> NodeClaim:
    """A NodeClaim with a running instance and these conditions."""
    claim = await add_nodeclaim(fake, age, **spec)
    add_running_instance(fake)
    statuses: dict[str, Any] = dict.fromkeys(("Launched", *conditions), "True")
    fake.claims.set_status("a", provider_id=PROVIDER, **statuses)
    if "Registered" in conditions:
        fake.claims.found["a"]["status"]["nodeName"] = "node-a"
        fake.nodes.join("node-a", PROVIDER)
        fake.nodes.update_node("node-a", taints=())
    return claim


async def test_initialized_node_is_ready_without_launch(fake: WorkerHarness) -> None:
    claim = await add_launched_nodeclaim(fake, "Registered", "Initialized", annotations=GROUP)
    handle = await fake.start(claim, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    await fake.sleep(minutes=30)
    state = await query_state(handle)
    assert state.phase is Phase.READY and state.node_name == "node-a" and state.boot_id == "boot-1"
    assert state.expires is not None and claim.metadata.creation_timestamp is not None
    assert state.expires - claim.metadata.creation_timestamp == timedelta(hours=720)
    assert fake.fleet.calls == [] and "i-old" in fake.instances.running


@pytest.mark.parametrize(
    ("conditions", "spec", "observed", "phase"),
    [
        (("Registered", "Initialized"), {"age": YOUNG, "annotations": GROUP}, {**BUSY, **LAUNCHED}, Phase.READY),
        (("Registered",), {}, BUSY, Phase.READY),
        ((), {"age": YOUNG}, {}, Phase.REGISTRATION),
    ],
    ids=["initialized, seconds after its launch", "registered", "launched seconds ago"],
)
async def test_node_with_instance_is_recovered_without_launch(
    fake: WorkerHarness, conditions: tuple[str, ...], spec: dict[str, Any], observed: dict[str, Any], phase: Phase
) -> None:
    """Temporal's store was lost, and the launch group with it."""
    handle = await fake.start(await add_launched_nodeclaim(fake, *conditions, **spec), **observed)
    await wait_until_phase(handle, phase)
    assert fake.fleet.calls == []
    assert phase is not Phase.READY or fake.claims.condition_text("a", "Initialized").startswith("True")


@pytest.mark.parametrize("age", [timedelta(seconds=10), timedelta(hours=3)], ids=["young", "old"])
async def test_deleting_nodeclaim_is_drained_before_termination(fake: WorkerHarness, age: timedelta) -> None:
    claim = await add_launched_nodeclaim(fake, "Registered", "Initialized", age=age, annotations=GROUP)
    fake.claims.set_status("a", deleting=True)
    fake.pods.add("node-a", "web")
    handle = await fake.start(claim, deleting=True)
    outcome = await handle.result()
    assert outcome.history[1].at - outcome.history[0].at < timedelta(minutes=1), (
        "the workflow waited for the lost launch group"
    )
    assert [step.phase for step in outcome.history][1:] == [Phase.READY, Phase.DRAIN, Phase.TERMINATION, Phase.DELETED]
    assert fake.pods.evicted == ["web"] and fake.instances.terminated == ["i-old"] and fake.claims.found == {}


async def test_unrecorded_instance_is_found_by_tag(fake: WorkerHarness) -> None:
    claim = await add_nodeclaim(fake, timedelta(minutes=2))
    instance_fields = {
        "instance_type": "m5.large",
        "zone": "us-west-2a",
        "capacity_type": "on-demand",
        "image_id": "ami-1",
    }
    add_running_instance(fake, "i-other", tags={labels.TAG_NODECLAIM: "b"}, **instance_fields)
    before = claim.metadata.creation_timestamp
    assert before is not None
    add_running_instance(
        fake, "i-older", tags={labels.TAG_NODECLAIM: "a"}, launched_at=before - timedelta(hours=1), **instance_fields
    )
    add_running_instance(fake, tags={labels.TAG_NODECLAIM: "a"}, **instance_fields)
    handle = await fake.start(claim)
    await wait_until_phase(handle, Phase.REGISTRATION)
    assert fake.fleet.calls == []
    assert fake.claims.found["a"]["status"]["providerID"] == PROVIDER


async def test_instance_recorded_by_lost_group_is_used(fake: WorkerHarness) -> None:
    handle = await fake.start(await add_nodeclaim(fake, timedelta(seconds=1), annotations=GROUP))
    add_running_instance(fake)
    fake.claims.set_status("a", provider_id=PROVIDER, Launched="True")
    await fake.sleep(minutes=5, seconds=5)
    await wait_until_phase(handle, Phase.REGISTRATION)
    assert fake.instances.terminated == []


async def test_old_nodeclaim_without_launch_attempt_is_launched_once(fake: WorkerHarness) -> None:
    handle = await fake.start(await add_nodeclaim(fake, timedelta(hours=1)))
    await wait_until_phase(handle, Phase.REGISTRATION)
    assert len(fake.fleet.calls) == 1


async def test_no_launch_until_recovery_lookup_succeeds(fake: WorkerHarness) -> None:
    fake.instances.faults["find_by_nodeclaim"] = [TryLater("503") for _ in range(3)]
    claim = await add_nodeclaim(fake, timedelta(minutes=2))
    add_running_instance(fake, tags={labels.TAG_NODECLAIM: "a"}, zone="us-west-2a")
    handle = await fake.start(claim)
    await wait_until_skipping_time(fake, lambda: is_in_phase(handle, Phase.REGISTRATION))
    assert fake.fleet.calls == []


@pytest.mark.parametrize("has_condition", [True, False])
async def test_node_with_lost_drain_returns_to_service(fake: WorkerHarness, has_condition: bool) -> None:
    """The cancellable drain was lost with Temporal's store: either later, or just as it started."""
    handle = await ready_nodeclaim(fake)
    await handle.terminate()
    await fake.nodes.mark_disrupted("node-a")
    if has_condition:
        fake.claims.set_status("a", DisruptionReason="True")
    await fake.sleep(minutes=5)
    rebuilt: Handle = await fake.start(await get_nodeclaim(fake, "a"), **BUSY)
    await wait_until_phase(rebuilt, Phase.READY)
    assert not fake.nodes.found["node-a"].being_disrupted
    assert fake.claims.condition_text("a", "DisruptionReason") == ""


@pytest.mark.parametrize("node_exists", [True, False])
async def test_lost_reboot_leaves_neither_taint_nor_condition(fake: WorkerHarness, node_exists: bool) -> None:
    handle = await ready_nodeclaim(fake)
    await handle.terminate()
    await fake.nodes.mark_rebooting("node-a")
    conditions = [ConditionPatch(type=labels.REBOOTING, status="True", reason=labels.REBOOT_ISSUED)]
    conditions += [ConditionPatch(type=labels.INITIALIZED_CONDITION, status="Unknown", reason=labels.REBOOTING)]
    await fake.claims.patch("a", "uid-a", conditions=conditions, now=await fake.now())
    if not node_exists:
        await fake.nodes.delete("node-a", "uid-node-a")
    await fake.sleep(minutes=5)
    rebuilt: Handle = await fake.start(await get_nodeclaim(fake, "a"), **(BUSY if node_exists else {}))
    await wait_until_phase(rebuilt, Phase.READY if node_exists else Phase.INITIALIZATION)
    rebooting = (await get_nodeclaim(fake, "a")).condition(labels.REBOOTING)
    assert rebooting is not None and (rebooting.status, rebooting.reason) == ("False", labels.REBOOT_FAILED)
    if node_exists:
        assert all(one.key != labels.REBOOTING_TAINT_KEY for one in fake.nodes.found["node-a"].taints)


async def test_requested_repair_does_not_outlive_its_workflow(fake: WorkerHarness) -> None:
    """Otherwise the node would be replaced as soon as it becomes unhealthy again, without the toleration."""
    claim = await add_launched_nodeclaim(
        fake, "Registered", "Initialized", annotations={**GROUP, labels.REPAIR_DUE: "{}"}
    )
    handle = await fake.start(claim, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    assert labels.REPAIR_DUE not in (await get_nodeclaim(fake, "a")).metadata.annotations


async def get_nodeclaim(fake: WorkerHarness, name: str) -> NodeClaim:
    claim = await fake.claims.get(name)
    assert claim is not None
    return claim


async def test_node_registered_while_no_worker_ran_is_kept(fake: WorkerHarness) -> None:
    """The registration deadline has passed. The Node exists, but no observation contains it yet."""
    handle = await fake.start(await add_launched_nodeclaim(fake, age=timedelta(seconds=1)))
    await wait_until_phase(handle, Phase.REGISTRATION)
    fake.nodes.join("node-a", PROVIDER)
    await fake.sleep(minutes=16)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    assert fake.instances.terminated == []
    await fake.signal_observed(handle, **JOINED)


async def test_not_ready_intervals_are_restored_and_ended(fake: WorkerHarness) -> None:
    not_ready_since = (await fake.now() - timedelta(minutes=30)).replace(microsecond=0)
    before = (
        NotReadyInterval(since=not_ready_since, until=not_ready_since + timedelta(seconds=50)),
        NotReadyInterval(since=not_ready_since + timedelta(minutes=10)),
    )
    claim = await add_launched_nodeclaim(
        fake, "Registered", "Initialized", annotations={labels.NOT_READY_INTERVALS: format_intervals(before)}
    )
    handle = await fake.start(claim, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    await wait_until_skipping_time(fake, lambda: last_interval_has_ended(fake), seconds=1)
    state = await query_state(handle)
    assert (
        state.flaps == 2
        and state.not_ready_intervals[0] == before[0]
        and state.not_ready_intervals[1].until is not None
    )


async def last_interval_has_ended(fake: WorkerHarness) -> bool:
    found = parse_intervals(fake.claims.found["a"]["metadata"]["annotations"][labels.NOT_READY_INTERVALS])
    return len(found) == 2 and ongoing_since(found) is None
