"""The workflow of a replacement signals the disruption command that waits for it."""

from collections.abc import AsyncIterator

import pytest

from tenure.apis.labels import REPLACES
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.commands import (
    CommandHandle,
    add_nodes,
    is_deleted,
    is_in_step,
    is_undisturbed,
    make_proposal,
    start_command,
    start_permit_granter,
)
from tests.support.workflows.eventually import count_scheduled, wait_until, wait_until_phase
from tests.support.workflows.nodeclaim_workflows import BUSY, JOINED, create_nodeclaim
from workflows.disruption.command import DisruptionWorkflow


@pytest.fixture
async def host(fake: WorkerHarness) -> AsyncIterator[WorkerHarness]:
    add_nodes(fake, "old")
    await start_permit_granter(fake)
    async with fake.running_planner():
        yield fake


async def start_waiting_command(fake: WorkerHarness) -> tuple[CommandHandle, str]:
    """Start a command; return its handle and the name of its replacement."""
    handle = await start_command(fake, make_proposal("old"))
    await wait_until(lambda: is_in_step(handle, "Wait"))
    (name,) = (await handle.query(DisruptionWorkflow.state)).claims
    assert fake.claims.found[name]["metadata"]["annotations"][REPLACES] == handle.id
    return handle, name


async def test_nodes_are_deleted_once_replacement_is_initialized(host: WorkerHarness) -> None:
    handle, name = await start_waiting_command(host)
    claim = await host.claims.get(name)
    assert claim
    nodeclaim_handle = await host.start(claim)
    await wait_until_phase(nodeclaim_handle, Phase.REGISTRATION)
    host.nodes.join("node-a", host.claims.found[name]["status"]["providerID"], ready=True)
    host.claims.found[name]["status"]["nodeName"] = "node-a"
    await host.signal_observed(nodeclaim_handle, **JOINED)
    await wait_until_phase(nodeclaim_handle, Phase.INITIALIZATION)
    assert not is_deleted(host, "old")
    await host.signal_observed(nodeclaim_handle, **BUSY)
    assert (await handle.result()).ending == "done"
    assert is_deleted(host, "old")


async def test_deleted_replacement_keeps_nodes(host: WorkerHarness) -> None:
    handle, name = await start_waiting_command(host)
    claim = await host.claims.get(name)
    assert claim
    nodeclaim_handle = await host.start(claim)
    await wait_until_phase(nodeclaim_handle, Phase.REGISTRATION)
    await host.claims.delete(name, f"uid-{name}")
    await host.signal_observed(nodeclaim_handle, deleting=True)
    over = await handle.result()
    assert (over.ending, over.why) == ("not replaced", f"replacement {name}: Deleted")
    assert is_undisturbed(host, "old")
    assert await count_scheduled(handle, "finish_command") == 0


async def test_replacement_survives_its_closed_command(host: WorkerHarness) -> None:
    handle = await host.start(await create_nodeclaim(host, annotations={REPLACES: "nobody"}))
    await wait_until_phase(handle, Phase.REGISTRATION)
    host.nodes.join("node-a", host.claims.found["a"]["status"]["providerID"], ready=True)
    await host.signal_observed(handle, **JOINED)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    await host.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
