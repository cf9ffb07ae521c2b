"""CapacityBuffers in the controller: resolution, headroom checks and status."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.controller.capacity_buffers import MAX_CHECK_INTERVAL, MIN_CHECK_INTERVAL, CapacityBuffers
from tenure.kube.client.list_watch import Delta
from tenure.model.errors import TryLater
from tenure.model.plan import Plan
from tenure.model.provider_results import ConditionPatch
from tests.support.controller.builders import CacheHarness, claim, node_class, pool, stamp
from tests.support.injected_errors import fail_for
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness
from tests.unit.controller.signals.notifier_harness import NotifierHarness as WorkflowNotifierHarness

Json = dict[str, Any]
POD = {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
DEPLOYMENT = {"kind": "Deployment", "apiGroup": "apps", "name": "web"}


class FakeBufferPort:
    """Workloads by kind and name, and recorded statuses of buffers."""

    def __init__(self) -> None:
        self.workloads: dict[tuple[str, str], Json] = {}
        self.written: list[tuple[str, int, list[str]]] = []
        """Per write: name, replicas, and the reasons of the conditions."""
        self.broken = False

    async def get_workload(self, namespace: str, kind: str, name: str) -> Json | None:
        if self.broken:
            raise TryLater("told to fail")
        return self.workloads.get((kind, name))

    async def patch_status(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        status: Mapping[str, object],
        conditions: Sequence[ConditionPatch],
        now: datetime,
    ) -> bool:
        if self.broken:
            raise TryLater("told to fail")
        replicas = status["replicas"]
        assert isinstance(replicas, int)
        self.written.append((name, replicas, [one.reason for one in conditions]))
        return True


class BufferHarness(CacheHarness):
    """Buffers on a cluster cache. `reserved` maps virtual pods to the nodes on which the planner places them."""

    def __init__(self) -> None:
        super().__init__()
        self.port = FakeBufferPort()
        self.buffers = CapacityBuffers(self.cache, self.port, lambda: self.now)
        self.reserved: dict[str, str] = {}
        self.plan_request_count = 0

    def apply_buffer_objects(self, kind: str, *objects: Json, deleted: bool = False) -> None:
        self.buffers.on_deltas(kind, [Delta(one, is_deleted=deleted) for one in objects])

    async def resolve(self, *buffers: Json) -> None:
        """Resolve `buffers` with the PodTemplate that they refer to."""
        self.apply_buffer_objects("podtemplates", template())
        self.apply_buffer_objects("capacitybuffers", *buffers)
        await self.buffers.resolve()

    async def check_headroom(self) -> None:
        async def request_plan() -> Plan:
            self.plan_request_count += 1
            return Plan(reserved=self.reserved)

        await self.buffers.check_headroom(request_plan)

    def unschedulable_uids(self) -> list[str]:
        return [one.uid for one in self.buffers.unschedulable_pods()]


def buffer(name: str = "spare", *, generation: int = 1, **spec: Any) -> Json:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "generation": generation,
        "creationTimestamp": stamp(),
    }
    return {"metadata": metadata, "spec": {"provisioningStrategy": "buffer.x-k8s.io/active-capacity", **spec}}


def by_template(replicas: int = 2, **more: Any) -> Json:
    return buffer(podTemplateRef={"name": "web"}, replicas=replicas, **more)


def template(name: str = "web", generation: int = 1, spec: Json = POD) -> Json:
    return {"metadata": {"name": name, "namespace": "default", "generation": generation}, "template": {"spec": spec}}


def workload(replicas: int | None) -> Json:
    fields = {} if replicas is None else {"replicas": replicas}
    return {"spec": {**fields, "template": {"metadata": {"labels": {"app": "web"}}, "spec": POD}}}


@pytest.fixture
def harness() -> BufferHarness:
    return BufferHarness()


async def test_buffer_with_pod_template_becomes_a_planner_change(harness: BufferHarness) -> None:
    await harness.resolve(by_template())
    (change,) = harness.cache.drain_planner_changes()
    assert (change.kind, change.key) == ("buffer", "spare")
    assert harness.cache.buffers["spare"].replicas == 2
    assert harness.cache.buffers["spare"].pod.requests == {"cpu": 1000, "memory": 1 << 30, "pods": 1}
    await harness.buffers.resolve()
    assert harness.cache.drain_planner_changes() == ()
    harness.apply_buffer_objects("capacitybuffers", by_template(), deleted=True)
    await harness.buffers.resolve()
    assert [one.fact for one in harness.cache.drain_planner_changes()] == [None]


async def test_missing_pod_template_is_reported_until_it_exists(harness: BufferHarness) -> None:
    harness.apply_buffer_objects("capacitybuffers", by_template())
    for _ in range(2):
        await harness.buffers.resolve()
    assert harness.port.written == [("spare", 0, ["PodTemplateNotFound", "NotReadyForProvisioning"])]
    harness.apply_buffer_objects("podtemplates", template())
    await harness.buffers.resolve()
    await harness.check_headroom()
    assert harness.port.written[1:] == [("spare", 2, ["Resolved", "RequiresNewCapacity"])]


def observed_workload(generation: int, name: str = "web") -> Json:
    return {"metadata": {"namespace": "default", "name": name, "generation": generation}}


async def test_changed_workload_of_a_buffer_is_read_at_once(harness: BufferHarness) -> None:
    harness.apply_buffer_objects("capacitybuffers", buffer(scalableRef=DEPLOYMENT, percentage=20))
    changed = harness.buffers.objects_changed
    for one, is_changed in (
        (Delta(observed_workload(1)), True),
        (Delta(observed_workload(1)), False),
        (Delta(observed_workload(2)), True),
        (Delta(observed_workload(5, "other")), False),
        (Delta(observed_workload(2), is_deleted=True), True),
        (Delta(observed_workload(1)), True),
    ):
        changed.clear()
        harness.buffers.on_workload_deltas("deployments", [one])
        assert changed.is_set() == is_changed, one
    changed.clear()
    harness.buffers.on_workload_deltas("statefulsets", [Delta(observed_workload(9))])
    assert not changed.is_set(), "the buffer refers to a Deployment"


async def test_percentage_follows_its_workload(harness: BufferHarness) -> None:
    harness.apply_buffer_objects("capacitybuffers", buffer(scalableRef=DEPLOYMENT, percentage=20))
    await harness.buffers.resolve()
    assert harness.port.written == [("spare", 0, ["ScalableRefNotFound", "NotReadyForProvisioning"])]
    for replicas, expected in ((5, 1), (20, 4), (None, 1)):
        harness.port.workloads["Deployment", "web"] = workload(replicas)
        await harness.buffers.resolve()
        assert harness.cache.buffers["spare"].replicas == expected
    assert harness.cache.buffers["spare"].pod.labels == {"app": "web"}


@pytest.mark.parametrize(
    "spec",
    (
        {},
        {"scalableRef": {"kind": "Job", "apiGroup": "batch", "name": "x"}, "replicas": 1},
        {"podTemplateRef": {"name": "odd"}, "replicas": 1},
    ),
)
async def test_invalid_buffer_is_reported_and_affects_no_other(harness: BufferHarness, spec: Json) -> None:
    odd = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "much"}}}]}
    harness.apply_buffer_objects("podtemplates", template(), template("odd", spec=odd))
    harness.apply_buffer_objects("capacitybuffers", buffer("wrong", **spec), by_template())
    await harness.buffers.resolve()
    assert harness.port.written == [("wrong", 0, ["ResolutionFailed", "NotReadyForProvisioning"])]
    assert set(harness.cache.buffers) == {"spare"}


async def test_pods_of_buffer_get_defaults_of_limit_range_and_runtime_class(harness: BufferHarness) -> None:
    item = {"type": "Container", "defaultRequest": {"cpu": "1500m"}}
    metadata = {"name": "defaults", "namespace": "default", "uid": "uid-lr"}
    harness.apply_objects("limitranges", {"metadata": metadata, "spec": {"limits": [item]}})
    overhead = {"podFixed": {"cpu": "250m"}}
    harness.apply_objects("runtimeclasses", {"metadata": {"name": "kata", "uid": "uid-rc"}, "overhead": overhead})
    spec = {"containers": [{"name": "main", "image": "none"}], "runtimeClassName": "kata"}
    harness.apply_buffer_objects("podtemplates", template(spec=spec))
    harness.apply_buffer_objects("capacitybuffers", by_template())
    await harness.buffers.resolve()
    assert harness.cache.buffers["spare"].pod.requests["cpu"] == 1750


async def test_buffer_that_raises_an_error_affects_no_other(
    harness: BufferHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "tenure.controller.capacity_buffers.virtual_pod_fact"
    fail_for(monkeypatch, path, lambda one: one.get("metadata", {}).get("name") == "bad", AttributeError("injected"))
    bad = buffer("bad", podTemplateRef={"name": "web"}, replicas=2)
    await harness.resolve(bad, by_template())
    assert set(harness.cache.buffers) == {"spare"}
    assert harness.cache.invalid_objects.count() == {("CapacityBuffer", "UnexpectedType"): 1}
    harness.apply_buffer_objects("capacitybuffers", bad, deleted=True)
    assert not harness.cache.invalid_objects.count()


async def test_buffer_with_another_provisioning_strategy_is_ignored(harness: BufferHarness) -> None:
    harness.apply_buffer_objects("podtemplates", template())
    harness.apply_buffer_objects("capacitybuffers", by_template() | {"spec": {"provisioningStrategy": "x/standby"}})
    await harness.buffers.resolve()
    assert (harness.port.written, harness.cache.buffers) == ([], {})


async def test_buffer_keeps_its_last_state_while_the_api_server_fails(harness: BufferHarness) -> None:
    harness.port.workloads["Deployment", "web"] = workload(10)
    harness.apply_buffer_objects("capacitybuffers", buffer(scalableRef=DEPLOYMENT, percentage=20))
    await harness.buffers.resolve()
    harness.port.broken = True
    await harness.buffers.resolve()
    assert harness.cache.buffers["spare"].replicas == 2


async def test_unplaced_pods_are_pending_and_nodes_with_placed_pods_are_needed(harness: BufferHarness) -> None:
    harness.add_running_node()
    await harness.resolve(by_template())
    assert harness.buffers.is_uncertain
    harness.cache.drain_changes()
    harness.reserved = {"spare-0": "n1"}
    await harness.check_headroom()
    assert not harness.buffers.is_uncertain
    assert harness.buffers.buffer_needing("c1") == "default/spare" and harness.unschedulable_uids() == ["spare-1"]
    changes = harness.cache.drain_changes()
    assert changes.nodeclaims == {"c1"} and changes.pods
    assert harness.port.written == [("spare", 2, ["Resolved", "RequiresNewCapacity"])]

    harness.reserved = {"spare-0": "n1", "spare-1": "n1"}
    await harness.check_headroom()
    await harness.check_headroom()
    assert harness.unschedulable_uids() == []
    assert harness.port.written[1:] == [("spare", 2, ["Resolved", "FitsExistingCapacity"])]

    harness.apply_buffer_objects("capacitybuffers", by_template(), deleted=True)
    await harness.buffers.resolve()
    harness.cache.drain_changes()
    requests_before = harness.plan_request_count
    await harness.check_headroom()
    assert harness.buffers.buffer_needing("c1") == ""
    assert harness.cache.drain_changes().nodeclaims == {"c1"}
    assert harness.plan_request_count == requests_before


async def test_buffers_are_uncertain_until_the_first_headroom_check(harness: BufferHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    assert harness.buffers.is_uncertain
    harness.apply_buffer_objects("podtemplates", template())
    harness.apply_buffer_objects("capacitybuffers", by_template())
    harness.cache.drain_changes()
    await harness.buffers.resolve()
    assert harness.buffers.is_uncertain
    await harness.check_headroom()
    assert not harness.buffers.is_uncertain
    assert harness.cache.drain_changes().nodeclaims == {"c1"}


async def test_buffers_are_uncertain_while_one_cannot_be_resolved(harness: BufferHarness) -> None:
    harness.port.broken = True
    harness.apply_buffer_objects("capacitybuffers", buffer(scalableRef=DEPLOYMENT, replicas=1))
    await harness.buffers.resolve()
    assert harness.buffers.is_uncertain
    harness.port.broken = False
    await harness.buffers.resolve()
    assert not harness.buffers.is_uncertain


async def test_buffers_are_certain_if_there_are_none(harness: BufferHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    harness.cache.drain_changes()
    await harness.buffers.resolve()
    assert not harness.buffers.is_uncertain
    assert harness.cache.drain_changes().nodeclaims == {"c1"}


async def test_remaining_buffer_keeps_a_shared_node(harness: BufferHarness) -> None:
    harness.add_running_node()
    await harness.resolve(by_template(1), buffer("other", podTemplateRef={"name": "web"}, replicas=1))
    harness.reserved = {"spare-0": "n1", "other-0": "n1"}
    await harness.check_headroom()
    assert harness.buffers.buffer_needing("c1") == "default/other"
    harness.apply_buffer_objects("capacitybuffers", buffer("other"), deleted=True)
    await harness.buffers.resolve()
    harness.reserved = {"spare-0": "n1"}
    await harness.check_headroom()
    assert harness.buffers.buffer_needing("c1") == "default/spare"


async def test_launching_node_provides_no_capacity_yet_but_prevents_another_launch(harness: BufferHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c1", phase="Launched"))
    await harness.resolve(by_template(1))
    harness.reserved = {"spare-0": "c1"}
    await harness.check_headroom()
    assert harness.unschedulable_uids() == []
    assert harness.port.written == [("spare", 1, ["Resolved", "RequiresNewCapacity"])]


async def test_headroom_check_is_rarer_without_changes_and_off_without_buffers(harness: BufferHarness) -> None:
    assert not harness.buffers.is_check_due(changed=True)
    await harness.resolve(by_template())
    assert harness.buffers.is_check_due(changed=False)
    await harness.check_headroom()
    assert not harness.buffers.is_check_due(changed=True)
    harness.now += MIN_CHECK_INTERVAL
    assert harness.buffers.is_check_due(changed=False)
    await harness.check_headroom()
    harness.now += MIN_CHECK_INTERVAL
    assert not harness.buffers.is_check_due(changed=False)
    harness.now += MAX_CHECK_INTERVAL
    assert harness.buffers.is_check_due(changed=False)


async def test_slow_headroom_check_is_repeated_rarely(harness: BufferHarness) -> None:
    await harness.resolve(by_template())

    async def slow() -> Plan:
        return Plan(seconds=6)

    await harness.buffers.check_headroom(slow)
    harness.now += timedelta(seconds=59)
    assert not harness.buffers.is_check_due(changed=True)
    harness.now += timedelta(seconds=1)
    assert harness.buffers.is_check_due(changed=True)


async def test_failed_status_write_is_retried_at_the_next_check(harness: BufferHarness) -> None:
    await harness.resolve(by_template())
    harness.port.broken = True
    await harness.check_headroom()
    harness.port.broken = False
    await harness.check_headroom()
    assert len(harness.port.written) == 1


# --- with the planner ---


@pytest.fixture
async def harness_and_buffers() -> AsyncIterator[tuple[ProvisionerHarness, CapacityBuffers]]:
    harness = ProvisionerHarness()
    port = FakeBufferPort()
    buffers = harness.provisioner._buffers = CapacityBuffers(harness.cache, port, lambda: harness.now)
    harness.apply_objects("nodepools", pool())
    harness.apply_objects("ec2nodeclasses", node_class())
    buffers.on_deltas("podtemplates", [Delta(template())])
    buffers.on_deltas("capacitybuffers", [Delta(by_template(3))])
    await buffers.resolve()
    yield harness, buffers
    await harness.provisioner.close()


async def test_buffer_capacity_is_launched_once_without_nominations(
    harness_and_buffers: tuple[ProvisionerHarness, CapacityBuffers],
) -> None:
    harness, buffers = harness_and_buffers
    await harness.provisioner.sync_planner()
    assert [one.uid for one in buffers.unschedulable_pods()] == ["spare-0", "spare-1", "spare-2"]
    outcome = await harness.plan("plan-1")
    assert outcome.created >= 1 and outcome.nominated == 0 and outcome.unschedulable == 0
    assert buffers.unschedulable_pods() == []
    assert all(buffers.buffer_needing(name) == "default/spare" for name in harness.claims.found)
    # The next check waits for a multiple of the duration of the plan, which is long on a busy machine.
    harness.now += timedelta(minutes=1)
    await harness.provisioner.sync_planner()
    assert buffers.unschedulable_pods() == []
    assert {name for name in harness.claims.found if buffers.buffer_needing(name)}
    assert (await harness.plan("plan-2")).created == 0
    assert harness.events.published == []
    assert all(not harness.nominations.pods_expected_on(name) for name in harness.claims.found)


# --- emptiness ---


@pytest.mark.parametrize("is_needed", (True, False))
def test_node_needed_by_a_buffer_is_not_empty(is_needed: bool) -> None:
    harness = WorkflowNotifierHarness()
    harness.notifier._buffer_needing = lambda name: "default/spare" if is_needed and name == "c1" else ""
    harness.apply_objects("nodepools", pool())
    harness.add_running_node()
    harness.notify()
    assert (harness.last_observed().empty, harness.last_observed().needed_by_buffer) == (
        (False, "default/spare") if is_needed else (True, "")
    )
