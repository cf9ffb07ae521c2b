"""The time-skipping server, with the workflows' search attributes."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.testing import WorkflowEnvironment

from tests.support.workflows.lost_calls import RepeatLostQueries, resume_broken_sleeps
from workflows import search_attributes

INDEXED_VALUE_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
    "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}


@asynccontextmanager
async def time_skipping(converter: DataConverter = pydantic_data_converter) -> AsyncIterator[WorkflowEnvironment]:
    """The server skips time while nothing is to be done: hours pass in milliseconds."""
    binary = Path(sys.executable).with_name("temporal-test-server")
    path = str(binary) if binary.exists() else shutil.which("temporal-test-server")
    async with await WorkflowEnvironment.start_time_skipping(
        data_converter=converter,
        interceptors=[RepeatLostQueries()],
        test_server_existing_path=path,
        test_server_startup_timeout=timedelta(seconds=60),
    ) as environment:
        search_attribute_types = {name: INDEXED_VALUE_TYPES[kind] for name, kind in search_attributes.ALL.items()}
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=environment.client.namespace, search_attributes=search_attribute_types)
        )
        resume_broken_sleeps(environment)
        yield environment
