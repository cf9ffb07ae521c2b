"""One complete session on a stub of the API server, from lists to signals and a plan."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from itertools import chain
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.apis.labels import INSTANCE_TYPE
from tenure.clock import utc_now
from tenure.controller import session as session_module
from tenure.controller.cache.changes import CacheChanged
from tenure.controller.drift import DriftDetector
from tenure.controller.planning import catalog
from tenure.controller.planning import controller as planning_controller
from tenure.controller.planning.provisioner import Provisioner
from tenure.controller.session import GATHER_SECONDS, ControllerSession
from tenure.controller.settings import ControllerSettings
from tenure.controller.watched_cluster import WatchedCluster
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import list_watch
from tenure.kube.client.client import KubeClient
from tenure.kube.client.list_watch import Delta
from tenure.kube.client.resources import PODS
from tenure.metrics import METRICS
from tenure.model.disruption.commands import DisruptionDecisionRequest
from tenure.model.errors import Fault, Forbidden, NotFound, TryLater
from tenure.model.instance_types import ReservationHeadroom, UnavailableOffering
from tenure.model.operator_requests import DisruptionPreviewRequest
from tenure.model.plan import PlanRequest
from tenure.tracing.recorder import TRACES
from tenure.tracing.spans import FinishedSpan, key_of_pending_pods
from tests.support.controller.builders import NOW, Json, claim, node, node_class, pod, pool
from tests.support.controller.meter import RecordingMeter
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.kubernetes import FakeEvents, FakeNodeClaims
from tests.support.product.eventually import wait_until
from tests.unit.controller.fake_temporal import FakeTemporal
from tests.unit.controller.planning.provisioner_harness import FakeOfferings

CONTAINERS = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]

OVERLAY: Json = {
    "metadata": {"name": "huge-pages", "uid": "uid-huge-pages", "generation": 1},
    "spec": {"requirements": [], "capacity": {"hugepages-2Mi": "1Gi"}},
}


class StubKubeClient:
    """Lists the given objects, keeps watches open, and returns the body of each write."""

    def __init__(self, **objects: list[Json]) -> None:
        self._objects = objects
        self.faults: dict[str, Fault] = {}
        """By plural: raised by a list."""
        for one in chain(*objects.values()):
            one["metadata"]["resourceVersion"] = "1"

    async def request(self, method: str, path: str, *, body: Json | None = None, **_: Any) -> Json:
        kind = path.rpartition("/")[2]
        if method == "GET":
            if kind in self.faults:
                raise self.faults[kind]
            return {"items": self._objects.get(kind, []), "metadata": {"resourceVersion": "1"}}
        return body or {}

    @asynccontextmanager
    async def stream_lines(self, path: str, **_: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def never() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        yield never()


class SpanList:
    """Implements `tenure.tracing.recorder.SpanRecorder` for finished spans."""

    def __init__(self) -> None:
        self.spans: list[FinishedSpan] = []

    def record(self, span: FinishedSpan) -> None:
        self.spans.append(span)

    def start_call(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def kube_client() -> StubKubeClient:
    return StubKubeClient(
        nodepools=[pool()],
        ec2nodeclasses=[node_class()],
        nodeclaims=[claim("c1", phase="Initialized")],
        nodes=[node("n1", of="c1")],
        pods=[pod("waits", containers=CONTAINERS), pod("runs", on="n1")],
    )


def build_session(
    kube_client: StubKubeClient,
    temporal: FakeTemporal,
    claims: FakeNodeClaims,
    gates: Set[str] = frozenset(),
    *,
    is_leading: bool = True,
    now: Callable[[], datetime] = lambda: NOW,
    offerings: FakeOfferings | None = None,
) -> ControllerSession:
    kube = KubeAdapters(cast(KubeClient, kube_client))
    kube.claims, kube.events = cast(Any, claims), cast(Any, FakeEvents())
    return ControllerSession(
        settings=ControllerSettings(cluster="demo", gates=frozenset(gates)),
        kube=kube,
        temporal=temporal.client,
        offerings=offerings or FakeOfferings(),
        instances=FakeInstances(),
        now=now,
        is_leading=lambda: is_leading,
    )


async def test_session_without_a_valid_lease_changes_nothing(kube_client: StubKubeClient) -> None:
    temporal, claims = FakeTemporal(), FakeNodeClaims()
    session = build_session(kube_client, temporal, claims, is_leading=False)
    task = asyncio.create_task(session.run())
    await session.cluster.wait_until_synced()
    outcome = await session.plan(PlanRequest(plan_id="p"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await session.close()
    assert outcome.unschedulable == 1 and not claims.found and not temporal.sent


@pytest.mark.parametrize(
    "gates", [frozenset[str](), frozenset({FeatureGate.CAPACITY_BUFFER})], ids=["no feature gates", "CapacityBuffer"]
)
async def test_session_signals_workflows_and_plans(
    kube_client: StubKubeClient, gates: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    temporal, claims, recorder = FakeTemporal(), FakeNodeClaims(), SpanList()
    monkeypatch.setattr(TRACES, "recorder", recorder)
    session = build_session(kube_client, temporal, claims, gates)
    task = asyncio.create_task(session.run())

    async def assert_signaled() -> None:
        signals = Counter((one.workflow_id, one.signal) for one in temporal.sent)
        assert signals.keys() >= {
            ("demo/nodeclaim/c1/uid-c1", "observe"),
            ("demo/nodepool/general", "observe"),
            ("demo/nodeclass/default", "observe"),
            ("demo/provisioning", "pending_pods"),
            ("demo/cluster", "cluster_changed"),
        }

    try:
        await wait_until(assert_signaled, seconds=20, poll_interval=0.05)
        assert session.cluster.stale_kinds(1.0) == [] and not session.cluster.is_disconnected()
        assert session.cluster.nominations.nominated_nodes() == ()
        decisions = asyncio.create_task(session.compute_disruption(DisruptionDecisionRequest()))
        await asyncio.sleep(2 * GATHER_SECONDS)
        assert not decisions.done(), "the pod waits for its first plan"
        outcome = await session.plan(PlanRequest(plan_id="p"))
        assert not outcome.blocked and outcome.created == 1 == len(claims.found)
        assert session.cluster.nominations.nominated_nodes() != ()
        (root,) = recorder.spans
        assert root.key == key_of_pending_pods("p") and root.attributes["tenure.pod_names"] == ["default/waits"]
        assert not (await decisions).blocked
        preview = await session.preview_disruption(DisruptionPreviewRequest(cluster="demo"))
        assert preview.nodes == 2
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.close()


def unavailable_everywhere(duration: timedelta) -> UnavailableOffering:
    return UnavailableOffering(instance_type="*", zone="*", capacity_type="*", until=NOW + duration)


async def test_pod_is_signaled_again_as_soon_as_offerings_are_available(kube_client: StubKubeClient) -> None:
    """Unchanged pods are signaled again after 10 seconds at the earliest."""
    temporal, claims, clock = FakeTemporal(), FakeNodeClaims(), SimpleNamespace(now=NOW)
    session = build_session(kube_client, temporal, claims, now=lambda: clock.now)
    task = asyncio.create_task(session.run())

    async def assert_signaled(times: int) -> None:
        assert [one.signal for one in temporal.sent].count("pending_pods") == times

    try:
        await wait_until(lambda: assert_signaled(1), seconds=20, poll_interval=0.05)
        everywhere = unavailable_everywhere(timedelta(seconds=0.5))
        outcome = await session.plan(PlanRequest(plan_id="p", unavailable=(everywhere,)))
        assert outcome.unschedulable == 1 and not claims.found
        clock.now = everywhere.until
        await wait_until(lambda: assert_signaled(2), seconds=5, poll_interval=0.05)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.close()


class LimitedOfferings(FakeOfferings):
    def __init__(self) -> None:
        super().__init__()
        self.zones, self.free, self.reads = frozenset[str](), 0, 0

    async def fetch_shifted_zones(self) -> frozenset[str]:
        self.reads += 1
        return self.zones

    async def reservation_capacities(self, node_classes: Sequence[EC2NodeClass]) -> Mapping[str, ReservationHeadroom]:
        return {"cr-1": ReservationHeadroom(available=self.free, at=NOW)}


@pytest.mark.parametrize("cause", ["zonal shift", "reservation", "instance type", "NodePool", "NodeOverlay"])
async def test_pods_and_disruption_notice_available_offerings(monkeypatch: pytest.MonkeyPatch, cause: str) -> None:
    """The clock advances by less than any other delay."""
    monkeypatch.setattr(catalog, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(catalog, "FRESH_FOR", timedelta(0))
    monkeypatch.setattr(session_module, "_SYNC_EVERY", 0.05)
    nodeclass, offerings, temporal, clock = node_class(), LimitedOfferings(), FakeTemporal(), SimpleNamespace(now=NOW)
    nodeclass["status"]["subnets"] = [{"id": "subnet-1", "zone": "a", "zoneID": "usw2-az1"}]
    if cause == "zonal shift":
        offerings.zones = frozenset({"usw2-az1"})
    elif cause == "reservation":
        reservation = {"id": "cr-1", "instanceType": "m5.large", "availabilityZone": "a"}
        nodeclass["status"]["capacityReservations"] = [reservation]
    waiting = pod("waits", containers=CONTAINERS)
    kube_client = StubKubeClient(nodepools=[pool()], ec2nodeclasses=[nodeclass], pods=[waiting])
    session = build_session(kube_client, temporal, FakeNodeClaims(), now=lambda: clock.now, offerings=offerings)
    task = asyncio.create_task(session.run())

    def count_signals() -> int:
        return [one.signal for one in temporal.sent].count("pending_pods")

    async def assert_both_signaled(signals: int, disruption_changes: int) -> None:
        """`DisruptionTrigger` signals changes at most once a second."""
        assert count_signals() > signals
        assert session.cluster.cache.planner_changes.disruption_changes > disruption_changes

    try:
        await wait_until(lambda: assert_both_signaled(0, 0), seconds=20, poll_interval=0.02)
        everywhere = unavailable_everywhere(timedelta(minutes=3))
        outcome = await session.plan(PlanRequest(plan_id="p", unavailable=(everywhere,)))
        assert outcome.unschedulable == 1
        await asyncio.sleep(0.15)
        reads, before = offerings.reads, (count_signals(), session.cluster.cache.planner_changes.disruption_changes)
        await asyncio.sleep(0.1)
        assert (offerings.reads > reads) == (cause in ("zonal shift", "reservation"))
        assert count_signals() == before[0]
        clock.now += timedelta(seconds=0.5)
        if cause == "instance type":
            offerings.kinds = [*offerings.kinds, offerings.kinds[0].model_copy(update={"name": "m9.large"})]
        elif cause == "NodePool":
            session.cluster.on_deltas("nodepools", [Delta(pool(weight=5))])
        elif cause == "NodeOverlay":
            session.cluster.on_deltas("nodeoverlays", [Delta(OVERLAY)])
        else:
            offerings.zones, offerings.free = frozenset(), 1
        await wait_until(lambda: assert_both_signaled(*before), seconds=5, poll_interval=0.02)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.close()


async def test_former_host_reports_no_gauge(kube_client: StubKubeClient) -> None:
    """Also if a plan or a pass ends while the session ends."""
    temporal, meter = FakeTemporal(), RecordingMeter()
    temporal.service_client = SimpleNamespace(config=SimpleNamespace(runtime=SimpleNamespace(metric_meter=meter)))
    session = build_session(kube_client, temporal, FakeNodeClaims(), is_leading=False)
    task = asyncio.create_task(session.run())
    await session.cluster.wait_until_synced()
    await asyncio.sleep(2 * GATHER_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await session.plan(PlanRequest(plan_id="p"))
    await session.compute_disruption(DisruptionDecisionRequest())
    await session.close()
    gauges = {one.name for one in METRICS if one.kind == "gauge" and "instance_type" not in one.labels}
    last = {(name, values): value for name, values, value in meter.records if name in gauges}
    assert len(last) > len(gauges) / 3 and not {key: value for key, value in last.items() if value}


async def test_error_of_one_task_leaves_no_task_behind(
    kube_client: StubKubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: DriftDetector) -> None:
        raise RuntimeError

    monkeypatch.setattr(DriftDetector, "run", fail)
    session = build_session(kube_client, FakeTemporal(), FakeNodeClaims())
    before = asyncio.all_tasks()
    with pytest.raises(ExceptionGroup):
        await session.run()
    await session.close()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(("limit", "is_late"), [(60.0, False), (0.5, True)], ids=["early", "after the limit"])
async def test_pods_and_capacity_are_signaled_once_all_kinds_are_synced(
    monkeypatch: pytest.MonkeyPatch, limit: float, is_late: bool
) -> None:
    monkeypatch.setattr(planning_controller, "_SYNC_LIMIT", timedelta(seconds=limit))
    monkeypatch.setattr(list_watch, "_LONGEST_PAUSE", 0.05)
    type_label = {INSTANCE_TYPE: "m5.large"}
    nodeclaim, n1 = claim("c1", phase="Initialized", labels=type_label), node("n1", of="c1", labels=type_label)
    nodeclaim["status"]["imageID"] = "ami-1"
    n1["status"]["capacity"] = {"memory": "7Gi"}
    kube_client = StubKubeClient(
        nodepools=[pool()],
        ec2nodeclasses=[node_class()],
        nodeclaims=[nodeclaim],
        nodes=[n1],
        pods=[pod("waits", containers=CONTAINERS)],
    )
    kube_client.faults["csinodes"] = TryLater("no response")
    temporal = FakeTemporal()
    session = build_session(kube_client, temporal, FakeNodeClaims(), now=utc_now)
    task = asyncio.create_task(session.run())

    async def assert_signaled(workflow: str) -> None:
        assert workflow in {one.workflow_id for one in temporal.sent}

    try:
        await wait_until(lambda: assert_signaled("demo/nodeclaim/c1/uid-c1"), seconds=20, poll_interval=0.01)
        await asyncio.sleep(2 * GATHER_SECONDS)
        assert session.provisioning.planner_client.capacity_discovery.discovered.images
        assert "demo/provisioning" not in {one.workflow_id for one in temporal.sent}
        if not is_late:
            kube_client.faults.clear()
        await wait_until(lambda: assert_signaled("demo/provisioning"), seconds=20, poll_interval=0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.close()


async def test_planner_receives_objects_before_all_kinds_are_listed(kube_client: StubKubeClient) -> None:
    kube_client.faults["pods"] = TryLater("no response")
    session = build_session(kube_client, FakeTemporal(), FakeNodeClaims())
    task = asyncio.create_task(session.run())

    async def assert_preloaded() -> None:
        assert session.provisioning.planner_client.has_changed

    try:
        await wait_until(assert_preloaded, seconds=20, poll_interval=0.05)
        assert not session.cluster.is_synced(PODS)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.close()


async def test_error_of_the_planner_sync_does_not_end_the_session(
    kube_client: StubKubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, AWS describes an instance type in an unknown way."""
    failures = 0

    async def fail(_: Provisioner) -> None:
        nonlocal failures
        failures += 1
        raise KeyError("VCpuInfo")

    for name in ("preload_planner", "sync_planner"):
        monkeypatch.setattr(Provisioner, name, fail)
    session = build_session(kube_client, FakeTemporal(), FakeNodeClaims())
    task = asyncio.create_task(session.run())
    try:
        await asyncio.wait({task}, timeout=2 * GATHER_SECONDS)
        assert failures and not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await session.close()


@pytest.mark.parametrize("ticks", range(2))
async def test_session_ends_when_it_is_cancelled_during_a_change(kube_client: StubKubeClient, ticks: int) -> None:
    """With the `asyncio.wait_for` of Python 3.11, a wait that ends in the same tick swallows the cancellation."""
    session = build_session(kube_client, FakeTemporal(), FakeNodeClaims())
    task = asyncio.create_task(session.run())
    await wait_until(session.cluster.wait_until_synced, poll_interval=0.05)
    await asyncio.sleep(2 * GATHER_SECONDS)
    session.cluster.cache.publish(CacheChanged())
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    _, running = await asyncio.wait({task}, timeout=5)
    assert not running
    await session.close()


async def test_unreadable_optional_kinds_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ClusterRole may be older than the worker, and older clusters have no DeviceClasses."""
    monkeypatch.setattr(list_watch, "_OPTIONAL_PAUSE", 0.01)
    agent = {"name": "agent", "namespace": "kube-system", "uid": "uid-agent", "creationTimestamp": NOW.isoformat()}
    template = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    limits = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
    client = StubKubeClient(
        daemonsets=[{"metadata": agent, "spec": {"template": template}}],
        limitranges=[
            {"metadata": {"name": "l", "namespace": "kube-system", "uid": "uid-l"}, "spec": {"limits": limits}}
        ],
    )
    client.faults = {
        "limitranges": Forbidden("no"),
        "runtimeclasses": Forbidden("no"),
        "deviceclasses": NotFound("no"),
    }
    cluster = WatchedCluster(ControllerSettings(cluster="demo"), KubeAdapters(cast(KubeClient, client)), lambda: NOW)
    task = asyncio.create_task(cluster.run())

    async def assert_requested(cpu: int) -> None:
        assert cluster.cache.daemonsets["uid-agent"].pod.requests.get("cpu", 0) == cpu

    try:
        await asyncio.wait_for(cluster.wait_until_synced(), 5)
        assert cluster.stale_kinds(1.0) == [] and not cluster.is_disconnected()
        await assert_requested(0)
        del client.faults["limitranges"]
        await wait_until(lambda: assert_requested(1000), seconds=5, poll_interval=0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
