"""A replacement's own life tells the disruption that waits for it."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis.labels import REPLACES
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.commands import Command, command, deleted, granting, in_step, nodes, proposal, untouched
from tests.support.workflows.eventually import eventually, in_phase, scheduled
from tests.support.workflows.lives import BUSY, JOINED, born
from workflows.disruption.command import DisruptionWorkflow


@pytest.fixture
async def host(fake: World) -> AsyncIterator[World]:
    nodes(fake, "old")
    await granting(fake)
    async with fake.planning():
        yield fake


async def waiting(fake: World) -> tuple[Command, str]:
    """A command, and the name of the replacement that it waits for."""
    handle = await command(fake, proposal("old"))
    await eventually(lambda: in_step(handle, "Wait"))
    (name,) = (await handle.query(DisruptionWorkflow.state)).claims
    assert fake.claims.found[name]["metadata"]["annotations"][REPLACES] == handle.id
    return handle, name


async def test_nodes_go_once_their_replacement_is_initialized(host: World) -> None:
    handle, name = await waiting(host)
    claim = await host.claims.get(name)
    assert claim
    life = await host.start(claim)
    await in_phase(life, Phase.REGISTRATION)
    host.nodes.join("node-a", host.claims.found[name]["status"]["providerID"], ready=True)
    host.claims.found[name]["status"]["nodeName"] = "node-a"
    await host.see(life, **JOINED)
    await in_phase(life, Phase.INITIALIZATION)
    assert not deleted(host, "old")
    await host.see(life, **BUSY)
    assert (await handle.result()).ending == "done"
    assert deleted(host, "old")


async def test_a_replacement_that_is_deleted_before_leaves_the_nodes(
    host: World, skipping: WorkflowEnvironment
) -> None:
    handle, name = await waiting(host)
    claim = await host.claims.get(name)
    assert claim
    life = await host.start(claim)
    await in_phase(life, Phase.REGISTRATION)
    await host.claims.delete(name, f"uid-{name}")
    await host.see(life, deleting=True)
    over = await handle.result()
    assert (over.ending, over.why) == ("not replaced", f"replacement {name}: Deleted")
    assert untouched(host, "old")
    assert await scheduled(handle, "finish_command") == 0


async def test_a_replacement_whose_disruption_is_over_lives_all_the_same(
    host: World, skipping: WorkflowEnvironment
) -> None:
    life = await host.start(await born(host, skipping, annotations={REPLACES: "nobody"}))
    await in_phase(life, Phase.REGISTRATION)
    host.nodes.join("node-a", host.claims.found["a"]["status"]["providerID"], ready=True)
    await host.see(life, **JOINED)
    await in_phase(life, Phase.INITIALIZATION)
    await host.see(life, **BUSY)
    await in_phase(life, Phase.READY)
