"""Tracing of the worker process, if OTEL_EXPORTER_OTLP_ENDPOINT is set."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from temporalio.client import Interceptor

from tenure.settings import Settings
from tenure.tracing.recorder import TRACES


@asynccontextmanager
async def tracing(settings: Settings) -> AsyncIterator[Sequence[Interceptor]]:
    """The interceptors of the Temporal client; none if tracing is off."""
    if not settings.otel_exporter_otlp_endpoint:
        yield ()
        return
    from tenure.controller.temporal.tracing import StartupTracing, export_to_collector  # noqa: PLC0415 - the import takes 0.2 s

    recorder = export_to_collector(settings.cluster_name, settings.otel_exporter_otlp_endpoint)
    TRACES.recorder = recorder
    try:
        yield (StartupTracing(recorder),)
    finally:
        TRACES.recorder = None
        await asyncio.to_thread(recorder.shut_down)
