"""The form of the worker's log: JSON lines with Karpenter's keys, or lines for a terminal."""

import asyncio
import logging
import sys
import threading
from types import TracebackType
from typing import Any, Final, Literal

import structlog
from structlog.typing import EventDict, Processor
from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError, CancelledError

from tenure.model.errors import Fault
from workflows import ids

log = structlog.get_logger(__name__)

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}
_OWN_LOGGERS: Final = ("activities", "temporalio.workflow", "tenure", "worker")
_EXPECTED: Final = (ApplicationError, Fault, asyncio.CancelledError, CancelledError)
"""Exceptions whose text is enough. `map_faults` raises ApplicationError; other exceptions of an activity are bugs."""


def configure_logging(level: Literal["debug", "info", "error"], form: Literal["json", "console"]) -> None:
    """Write all lines of the process to stdout in one form, with Karpenter's keys: also those of libraries, Temporal
    Core, warnings and uncaught exceptions. Libraries log only warnings and errors."""
    least = _LEVELS[level]
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(build_formatter(form))
    logging.basicConfig(level=max(least, logging.WARNING), handlers=[handler], force=True)
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(least)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = sys.unraisablehook = _log_ignored
    workflow.logger.workflow_info_on_message = activity.logger.activity_info_on_message = False
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.stdlib.LoggerFactory(),
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_nodeclaim,
            *_ADDED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
    )


def build_formatter(form: Literal["json", "console"]) -> logging.Formatter:
    """The formatter of the worker's lines, also for records of libraries."""
    ending: list[Processor] = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    if form == "json":
        ending = [structlog.processors.format_exc_info, _rename_keys, structlog.processors.JSONRenderer()]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            _flatten_temporal_details,
            *_ADDED,
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
    )


def _log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    log.error("uncaught exception", exc_info=(kind, error, trace))


def _log_ignored(found: Any) -> None:
    """An exception that ended a thread, or that a finalizer raised."""
    _log_uncaught(found.exc_type, found.exc_value, found.exc_traceback)


def _omit_expected_traceback(_: Any, __: str, line: EventDict) -> EventDict:
    """Replace the traceback of a fault or a cancellation with its text."""
    info = line.get("exc_info")
    error = info if isinstance(info, BaseException) else info[1] if isinstance(info, tuple) else sys.exc_info()[1]
    if info and isinstance(error, _EXPECTED):
        del line["exc_info"]
        line.setdefault("error", f"{type(error).__name__}: {error}")
    return line


def _flatten_temporal_details(_: Any, __: str, line: EventDict) -> EventDict:
    """Keep the workflow, the activity and its attempt of an SDK line, and the fields of a line of Temporal Core."""
    details = {**(line.pop("temporal_workflow", None) or {}), **(line.pop("temporal_activity", None) or {})}
    line.pop("__temporal_error_identifier", None)
    core = line.pop("temporal_log", None)
    keys = {"workflow_id": "workflow", "activity_type": "activity", "attempt": "attempt"}
    fields = {key: details[name] for name, key in keys.items() if name in details}
    return {**(core.fields if core else {}), **fields, **line}


def _add_nodeclaim(_: Any, __: str, line: EventDict) -> EventDict:
    """Name the NodeClaim whose workflow runs this activity."""
    name = ids.nodeclaim_name(activity.info().workflow_id or "") if activity.in_activity() else ""
    if name:
        line.setdefault("NodeClaim", {"name": name})
    return line


def _rename_keys(_: Any, __: str, line: EventDict) -> EventDict:
    """Karpenter's keys and levels, in its order."""
    level, time, message = (line.pop(key) for key in ("level", "time", "event"))
    return {"level": level.upper(), "time": time, "message": message, **line}


_ADDED: Final[list[Processor]] = [
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", key="time"),
    _omit_expected_traceback,
]
"""Processors of each line."""
