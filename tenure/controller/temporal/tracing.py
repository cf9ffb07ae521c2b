"""Tracing with OpenTelemetry. Import this module only if tracing is on: the import takes 0.2 s.

The SDK's interceptor creates the spans of activities. Here it gets their parents, which derive from the state of the
workflow, and it creates no spans for calls of the Temporal client and for activities without a trace.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from threading import Thread
from typing import Any, Final

from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from temporalio import client, worker, workflow
from temporalio.contrib.opentelemetry import TracingInterceptor, TracingWorkflowInboundInterceptor

from tenure.model.launch import LaunchGroup
from tenure.model.nodeclaim.requests import GroupLaunchRequest, GroupRejection
from tenure.model.plan import PlanRequest
from tenure.tracing import spans
from tenure.tracing.spans import FinishedSpan, SpanKey
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.provisioner import ProvisioningWorkflow

SHUTDOWN_SECONDS: Final = 3.0
"""Seconds for the last export when the worker stops."""
_KEY: Final[ContextVar[SpanKey | None]] = ContextVar("SPAN_KEY", default=None)
_CONTEXT_OF: Final = "tenure_span_context"


class _DerivedIds(RandomIdGenerator):
    """IDs of the span that is being recorded; random IDs for all other spans."""

    def generate_trace_id(self) -> int:
        key = _KEY.get()
        return key.trace_id if key else super().generate_trace_id()

    def generate_span_id(self) -> int:
        key = _KEY.get()
        return key.span_id if key else super().generate_span_id()


class OpenTelemetryRecorder:
    """Implements `tenure.tracing.recorder.SpanRecorder`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self.tracer = provider.get_tracer("tenure")

    def record(self, span: FinishedSpan) -> None:
        token = _KEY.set(span.key)
        try:
            recorded = self.tracer.start_span(
                span.name, self.context_of(span.parent), attributes=span.attributes, start_time=_nanoseconds(span.start)
            )
        finally:
            _KEY.reset(token)
        if span.error:
            recorded.set_status(Status(StatusCode.ERROR, span.error))
        recorded.end(_nanoseconds(span.end))

    @contextmanager
    def start_call(self, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
        if not get_current_span().get_span_context().is_valid:
            yield
            return
        with self.tracer.start_as_current_span(
            name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False
        ):
            yield

    def context_of(self, key: SpanKey | None) -> Context:
        """A context in which this span is current. The sampler decides by the trace ID, so all processes agree."""
        if key is None:
            return Context()
        is_sampled = self._provider.sampler.should_sample(None, key.trace_id, "").decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        span = NonRecordingSpan(SpanContext(key.trace_id, key.span_id, is_remote=True, trace_flags=flags))
        return set_span_in_context(span, Context())

    def shut_down(self) -> None:
        """Export the last spans, for at most SHUTDOWN_SECONDS: an unreachable collector delays no shutdown."""
        exporting = Thread(target=self._provider.shutdown, name="tracing-shutdown", daemon=True)
        exporting.start()
        exporting.join(SHUTDOWN_SECONDS)


def build_provider(cluster: str) -> TracerProvider:
    """A provider without an exporter. The SDK reads OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and
    OTEL_RESOURCE_ATTRIBUTES."""
    resource = Resource.create({"service.name": "tenure", "k8s.cluster.name": cluster})
    return TracerProvider(
        resource=resource.merge(OTELResourceDetector().detect()), id_generator=_DerivedIds(), shutdown_on_exit=False
    )


def export_to_collector(cluster: str, endpoint: str) -> OpenTelemetryRecorder:
    """Export in a background thread; a full queue drops spans. `endpoint`: base URL, as in the specification.

    The exporter reads the other variables of OTLP, such as OTEL_EXPORTER_OTLP_HEADERS."""
    provider = build_provider(cluster)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetryRecorder(provider)


def find_activity_parent(workflow_instance: object, request: object) -> SpanKey | None:
    """The parent span of an activity with this request; None: the activity belongs to no trace."""
    match workflow_instance, request:
        case NodeClaimWorkflow(), _:
            state = workflow_instance.state()
            return spans.key_of_phase(state.identity, state.phase) if spans.is_starting(state) else None
        case ProvisioningWorkflow(), PlanRequest():
            return spans.key_of_plan(request.plan_id)
        case ProvisioningWorkflow(), GroupLaunchRequest():
            return spans.key_of_group(request.draft.group_id)
        case ProvisioningWorkflow(), LaunchGroup() | GroupRejection():
            return spans.key_of_group(request.group_id)
    return None


class StartupTracing(TracingInterceptor):
    """Interceptor of the client and its workers."""

    def __init__(self, recorder: OpenTelemetryRecorder) -> None:
        super().__init__(recorder.tracer)
        self._recorder = recorder

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002
        """No spans: the header of a signal-with-start would make all later signals of the node part of the trace."""
        return next

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:  # noqa: A002
        return _TracedActivities(super().intercept_activity(next), next, self.header_key)

    def workflow_interceptor_class(
        self,
        input: worker.WorkflowInterceptorClassInput,  # noqa: A002
    ) -> type[TracingWorkflowInboundInterceptor]:
        super().workflow_interceptor_class(input)
        input.unsafe_extern_functions[_CONTEXT_OF] = self._recorder.context_of
        return _WorkflowTracing


class _TracedActivities(worker.ActivityInboundInterceptor):
    """Traces activities with a parent; the SDK's interceptor would start a trace for each of the others."""

    def __init__(
        self, traced: worker.ActivityInboundInterceptor, untraced: worker.ActivityInboundInterceptor, header: str
    ) -> None:
        super().__init__(traced)
        self._untraced, self._header = untraced, header

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:  # noqa: A002
        one = self.next if self._header in input.headers else self._untraced
        return await one.execute_activity(input)


class _WorkflowTracing(TracingWorkflowInboundInterceptor):
    def __init__(self, next: worker.WorkflowInboundInterceptor) -> None:  # noqa: A002
        super().__init__(_ParentsInbound(next))


class _ParentsInbound(worker.WorkflowInboundInterceptor):
    """The SDK's interceptor calls it next, so its outbound interceptor is called before the SDK's."""

    def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
        super().init(_ParentsOutbound(outbound))


class _ParentsOutbound(worker.WorkflowOutboundInterceptor):
    def start_activity(self, input: worker.StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002
        parent = find_activity_parent(workflow.instance(), _first(input.args))
        token = attach(workflow.extern_functions()[_CONTEXT_OF](parent))
        try:
            return super().start_activity(input)
        finally:
            detach(token)


def _first(args: Sequence[Any]) -> Any:
    return args[0] if args else None


def _nanoseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000) * 1_000
