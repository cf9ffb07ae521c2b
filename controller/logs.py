"""The worker's logs: one JSON object a line, or lines for people, on stdout."""

import logging
import sys
from typing import Literal

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}


def configure(level: Literal["debug", "info", "error"], form: Literal["json", "console"]) -> None:
    """Libraries are heard from warnings upwards only."""
    least = _LEVELS[level]
    logging.basicConfig(
        level=max(least, logging.WARNING), stream=sys.stdout, format="%(levelname)s %(name)s %(message)s"
    )
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(least),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="time"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if form == "console" else structlog.processors.JSONRenderer(),
        ],
    )
