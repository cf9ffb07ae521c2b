"""One trace from a plan to the Ready node, on the time-skipping server with fake ports."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from tenure.controller.temporal.tracing import (
    SHUTDOWN_SECONDS,
    OpenTelemetryRecorder,
    StartupTracing,
    build_provider,
    export_to_collector,
)
from tenure.model.nodeclaim.state import Phase
from tenure.model.plan import PlanOutcome
from tenure.tracing.recorder import TRACES
from tenure.tracing.spans import key_of_pending_pods, key_of_plan, span_of_pending_pods, span_of_plan
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_provisioning
from tests.support.workflows.eventually import Handle, wait_until, wait_until_phase
from tests.support.workflows.histories import create_replayer, replay_histories
from tests.support.workflows.nodeclaim_workflows import BUSY, JOINED
from tests.unit.workflows.provisioning.provisioning_workflow import (
    get_nodeclaim,
    make_launch_draft,
    signal_waiting_pods,
    wait_until_launched,
)

PLAN = "0123456789ab"
NODECLAIM = ("plan", "launch group", "NodeClaim startup")
HEADER = "_tracer-data"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def recorder(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> OpenTelemetryRecorder:
    provider = build_provider("test")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorder = OpenTelemetryRecorder(provider)
    monkeypatch.setattr(TRACES, "recorder", recorder)
    return recorder


@asynccontextmanager
async def traced_worker(
    skipping: WorkflowEnvironment, recorder: OpenTelemetryRecorder | None, cached: int = 1000
) -> AsyncIterator[WorkerHarness]:
    """A worker with a planner. Without a recorder, tracing is off."""
    config = skipping.client.config()
    if recorder:
        config["interceptors"] = [*config["interceptors"], StartupTracing(recorder)]
    harness = WorkerHarness(Client(**config), environment=skipping, max_cached_workflows=cached)
    async with harness.running_worker(), harness.running_planner():
        yield harness


async def start_node(harness: WorkerHarness) -> Handle:
    """A pod waits, the plan creates a NodeClaim, and its node becomes Ready."""
    draft = await make_launch_draft(harness, "a", group_id=f"{PLAN}-0")
    harness.host.outcomes = [PlanOutcome(plan_id="", drafts=(draft,), created=1)]
    provisioning = await start_provisioning(harness, plan_id=PLAN)
    await signal_waiting_pods(harness, provisioning)
    await wait_until_launched(harness, "a")
    handle = harness.workflow_handle(get_nodeclaim(harness, "a"))
    harness.nodes.join("node-a", harness.claims.found["a"]["status"]["providerID"], ready=False)
    await harness.signal_observed(handle, **JOINED)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    harness.nodes.update_node("node-a", ready=True)
    await harness.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    return handle


async def delete_node(harness: WorkerHarness, handle: Handle) -> None:
    await harness.claims.delete("a", "uid-a")
    await harness.signal_observed(handle, **BUSY, deleting=True)
    await handle.result()


def list_paths(spans: Sequence[ReadableSpan]) -> set[tuple[str, ...]]:
    """Each span's name after those of its ancestors that were exported."""
    by_id = {span.context.span_id: span for span in spans if span.context}

    def walk(span: ReadableSpan) -> Iterator[str]:
        if span.parent and span.parent.span_id in by_id:
            yield from walk(by_id[span.parent.span_id])
        yield span.name

    return {tuple(walk(span)) for span in spans}


def count_started(spans: Sequence[ReadableSpan]) -> int:
    return sum(span.name.startswith("StartActivity:") for span in spans)


@pytest.mark.parametrize("cached", [1000, 0])
async def test_plan_and_node_until_ready_are_one_trace(
    skipping: WorkflowEnvironment, recorder: OpenTelemetryRecorder, exporter: InMemorySpanExporter, cached: int
) -> None:
    async with traced_worker(skipping, recorder, cached) as harness:
        handle = await start_node(harness)
        await wait_until(lambda: "launch group" in {span.name for span in exporter.get_finished_spans()})
        spans = exporter.get_finished_spans()
        await delete_node(harness, handle)
    assert {span.context.trace_id for span in spans if span.context} == {key_of_plan(PLAN).trace_id}
    paths = list_paths(spans)
    activities = {
        ("plan",): "plan_capacity",
        ("plan", "launch group"): "launch_group",
        (*NODECLAIM, "Registration"): "register_node",
        (*NODECLAIM, "Initialization"): "initialize_node",
    }
    expected = {(*parents, f"StartActivity:{name}", f"RunActivity:{name}") for parents, name in activities.items()} | {
        (*NODECLAIM, "Launch")
    }
    assert expected <= paths, sorted(paths)
    plan = next(span for span in spans if span.name == "plan")
    assert plan.parent and plan.parent.span_id == key_of_pending_pods(PLAN).span_id
    assert Counter(span.name for span in spans if ":" not in span.name).most_common(1)[0][1] == 1
    startup = next(span for span in spans if span.name == "NodeClaim startup")
    assert startup.attributes and startup.attributes["k8s.node.name"] == "node-a"
    assert count_started(exporter.get_finished_spans()) == count_started(spans), "the later life is not recorded"


async def test_trace_context_does_not_affect_replays(
    skipping: WorkflowEnvironment, recorder: OpenTelemetryRecorder, exporter: InMemorySpanExporter
) -> None:
    async with traced_worker(skipping, recorder) as harness:
        handle = await start_node(harness)
        await delete_node(harness, handle)
        history = await handle.fetch_history()
    assert HEADER in history.to_json()
    await replay_histories(skipping.client, f"{harness.cluster}/")
    count = len(exporter.get_finished_spans())
    config = {**create_replayer().config(), "interceptors": [StartupTracing(recorder)]}
    await Replayer(**config).replay_workflow(history)  # type: ignore[arg-type]
    assert len(exporter.get_finished_spans()) == count


async def test_histories_have_no_headers_if_tracing_is_off(
    skipping: WorkflowEnvironment,
    recorder: OpenTelemetryRecorder,
    exporter: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TRACES, "recorder", None)
    async with traced_worker(skipping, None) as harness:
        history = await (await start_node(harness)).fetch_history()
    assert exporter.get_finished_spans() == () and HEADER not in history.to_json()


async def test_unreachable_collector_delays_neither_node_nor_shutdown(
    skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = export_to_collector("test", "http://127.0.0.1:1")
    monkeypatch.setattr(TRACES, "recorder", recorder)
    async with traced_worker(skipping, recorder) as harness:
        await start_node(harness)
    now = datetime.now(UTC)
    span = span_of_pending_pods(PLAN, {"web/a": now - timedelta(seconds=1)}, began=now, end=now)
    for _ in range(5000):
        recorder.record(span)
    started_at = time.monotonic()
    recorder.shut_down()
    assert time.monotonic() - started_at < SHUTDOWN_SECONDS + 2


def test_sampler_decides_for_the_whole_trace(monkeypatch: pytest.MonkeyPatch, exporter: InMemorySpanExporter) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    provider = build_provider("test")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorder = OpenTelemetryRecorder(provider)
    now = datetime.now(UTC)
    for number in range(100):
        recorder.record(span_of_pending_pods(f"plan{number}", {}, began=now, end=now))
        recorder.record(span_of_plan(PlanOutcome(plan_id=f"plan{number}"), now, now))
    counts = Counter(span.context.trace_id for span in exporter.get_finished_spans() if span.context)
    assert 20 < len(counts) < 80 and set(counts.values()) == {2}


def test_resource_names_service_and_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod")
    resource = build_provider("demo").resource.attributes
    assert (resource["service.name"], resource["k8s.cluster.name"]) == ("tenure", "demo")
    assert resource["deployment.environment.name"] == "prod"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nodes")
    assert build_provider("demo").resource.attributes["service.name"] == "nodes"
