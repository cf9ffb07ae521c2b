"""Temporal's dev server without workers, and workflows for tests that read visibility."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from benchmarks.cli_latency import start, wait_until_visible
from tenure.cli.temporal_client import Connection
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Plan


def temporal_server(folder: Path) -> Iterator[str]:
    """Yields the server's address."""
    with Sandbox(folder, plan=Plan(parts=("temporal",), manifests=())) as sandbox:
        yield sandbox.temporal_address


@asynccontextmanager
async def running_workflows(address: str, states: Sequence[NodeClaimState]) -> AsyncIterator[Connection]:
    """Workflows in these states, visible in visibility; terminated at exit."""
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    cluster = states[0].identity.cluster
    await start(client, states)
    await wait_until_visible(client, cluster, len(states))
    yield Connection(address, "default", cluster)
    async for one in client.list_workflows(f"WorkflowId STARTS_WITH '{cluster}/' AND ExecutionStatus = 'Running'"):
        await client.get_workflow_handle(one.id).terminate()
