"""Temporal's dev server in memory, with the workflows' search attributes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tenure.sandbox.temporal.dev_server import temporal_binary
from tests.support.workflows.lost_calls import RepeatLostQueries
from workflows.search_attributes import DEADLINE, KEYWORDS, OVERDUE, PAUSED, PHASE_SINCE, PRICE


@asynccontextmanager
async def served_by_temporal() -> AsyncIterator[WorkflowEnvironment]:
    """A server whose time is real time."""
    async with await WorkflowEnvironment.start_local(
        interceptors=[RepeatLostQueries()],
        data_converter=pydantic_data_converter,
        dev_server_existing_path=str(temporal_binary()),
        dev_server_startup_timeout=timedelta(seconds=60),
        search_attributes=[*KEYWORDS, OVERDUE, PAUSED, PHASE_SINCE, DEADLINE, PRICE],
    ) as environment:
        yield environment
