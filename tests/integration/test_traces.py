"""A real worker exports one trace from a pending pod to its Ready node, with its calls to AWS and Kubernetes."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct

LAUNCH_GROUP = ("pending pods", "plan", "launch group")
NODE = (*LAUNCH_GROUP, "NodeClaim startup")
EXPECTED = {
    ("pending pods", "plan", "StartActivity:plan_capacity", "RunActivity:plan_capacity", "POST nodeclaims"),
    (*LAUNCH_GROUP, "StartActivity:launch_group", "RunActivity:launch_group", "AWS ec2 CreateFleet"),
    (*NODE, "Launch"),
    (*NODE, "Registration", "StartActivity:register_node", "RunActivity:register_node", "PATCH nodes"),
    (*NODE, "Initialization", "StartActivity:initialize_node", "RunActivity:initialize_node"),
}


class Collector:
    """Receives OTLP over HTTP on a free port."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self.resources: set[str] = set()

    async def receive(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            self.resources |= {f"{one.key}={one.value.string_value}" for one in resource.resource.attributes}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")

    def trace_of(self, nodeclaim: str) -> list[Span]:
        """The spans of the trace in which this NodeClaim starts."""
        ids = {one.trace_id for one in self.spans if attribute(one, "tenure.nodeclaim") == nodeclaim}
        return [one for one in self.spans if one.trace_id in ids]


@asynccontextmanager
async def running_collector() -> AsyncIterator[Collector]:
    collector, app = Collector(), web.Application()
    app.add_routes([web.post("/v1/traces", collector.receive)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


def attribute(span: Span, name: str) -> str:
    return next((one.value.string_value for one in span.attributes if one.key == name), "")


def list_paths(spans: list[Span]) -> set[tuple[str, ...]]:
    """Each span's name after those of its ancestors."""
    by_id = {span.span_id: span for span in spans}

    def walk(span: Span) -> Iterator[str]:
        if span.parent_span_id:
            yield from walk(by_id[span.parent_span_id]) if span.parent_span_id in by_id else ("(missing)",)
        yield span.name

    return {tuple(walk(span)) for span in spans}


async def test_pod_until_ready_node_is_one_trace(own_product: DedicatedProduct) -> None:
    async with running_collector() as collector:
        await own_product.ensure_worker(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="200")
        async with own_product.scope("traces") as scope:
            (claim,) = await scope.run_pods(1)
            (pod,) = await scope.pods()
            name = claim["metadata"]["name"]

            async def assert_complete() -> list[Span]:
                trace = collector.trace_of(name)
                assert list_paths(trace) >= EXPECTED, sorted(list_paths(trace))
                return trace

            trace = await wait_until(assert_complete)
        await own_product.stop_workers()
    assert len({span.trace_id for span in trace}) == 1
    assert {path[0] for path in list_paths(collector.trace_of(name))} == {"pending pods"}, "each span has its parent"
    (root,) = [span for span in trace if span.name == "pending pods"]
    names = next(one.value.array_value.values for one in root.attributes if one.key == "tenure.pod_names")
    assert [one.string_value for one in names] == [f"default/{pod['metadata']['name']}"]
    (startup,) = [span for span in trace if span.name == "NodeClaim startup"]
    assert attribute(startup, "k8s.node.name") == claim["status"]["nodeName"]
    assert root.start_time_unix_nano <= startup.start_time_unix_nano < startup.end_time_unix_nano
    assert "service.name=tenure" in collector.resources
