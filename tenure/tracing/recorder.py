"""Records spans if tracing is enabled in this process; otherwise its methods do nothing."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tenure.tracing.spans import FinishedSpan


class SpanRecorder(Protocol):
    def record(self, span: "FinishedSpan") -> None: ...

    def start_call(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[None]: ...


class Traces:
    def __init__(self) -> None:
        self.recorder: SpanRecorder | None = None
        """None: tracing is off."""

    def record(self, span: "FinishedSpan") -> None:
        """Not in replayed code: workflows use `tenure.tracing.workflow_spans`."""
        if self.recorder is not None:
            self.recorder.record(span)

    def start_call(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[None]:
        """The span of a call to another service, if a span is current."""
        return nullcontext() if self.recorder is None else self.recorder.start_call(name, attributes)


TRACES: Final = Traces()
"""Global, like OpenTelemetry's own provider: a process has one."""
