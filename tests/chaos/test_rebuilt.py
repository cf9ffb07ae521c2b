"""Temporal's database is lost, and an empty one takes its place beside a worker that is at work: `tenure rebuild`.

In a world of its own, since nothing else could be told of what was before.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from temporalio.service import RPCError

from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.nodeclaim_state import Phase
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Plan
from tests.support.product.drains import protect
from tests.support.product.eventually import eventually, throughout
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, names
from workflows import ids

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def own_world(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("rebuilt"), plan=plan) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def forgotten(own_world: Sandbox) -> AsyncIterator[OwnProduct]:
    async with OwnProduct(own_world) as product:
        yield product


async def test_lives_go_on_from_the_cluster_and_nothing_is_bought_twice(forgotten: OwnProduct) -> None:
    product = forgotten
    await product.work()
    async with product.scene("steady", after="Never") as steady, product.scene("drains", after="Never") as drains:
        await asyncio.gather(steady.run(1), drains.run(1))
        await protect(drains, "true")
        (kept,), (going,) = names(await steady.claims()), names(await drains.claims())
        await product.delete(NODE_CLAIMS.path(going))
        await eventually(lambda: drains.says(going, "do-not-disrupt"))
        await _lose(product.own_sandbox)
        await _only_told(product, kept, steady.name)
        code, found = await product.tenure("rebuild")
        assert code == 0 and ("NodeClaim", kept) in _listed(found) and {one["done"] for one in found}, found
        await eventually(lambda: _nothing_is_missing(product))
        await eventually(lambda: _is(steady, kept, Phase.READY))
        await eventually(lambda: _is(drains, going, Phase.DRAIN))
        await eventually(product.watching)
        await throughout(lambda: drains.pods_run(1), seconds=3)
        await protect(drains, "false")
        await eventually(lambda: drains.claims_are_gone([going]))
        await steady.scale(2)
        await eventually(lambda: steady.pods_run(2))
        await eventually(lambda: drains.pods_run(1))
        await eventually(lambda: steady.nodes_are_initialized(2))
        for scene in (steady, drains):
            await scene.nodes_were_bought(2)
        assert kept in names(await steady.claims())
        assert await product.failed_workflows() == []


async def _lose(sandbox: Sandbox) -> None:
    if sandbox.plan.temporal == "postgres":
        await asyncio.to_thread(sandbox.run, sandbox.temporal_server.lose())
        return
    await asyncio.to_thread(sandbox.stop_part, "temporal")
    files = list((sandbox.directory / "temporal").glob("temporal.db*"))
    assert files
    for file in files:
        file.unlink()
    await asyncio.to_thread(sandbox.start_part, "temporal")


async def _only_told(product: OwnProduct, claim: str, pool: str) -> None:
    """The dry run names what is missing, by its exit code too, and starts nothing of it."""
    code, found = await product.tenure("rebuild", "--dry-run")
    assert code == 1
    assert _listed(found) >= {("NodeClaim", claim), ("NodePool", pool), ("Cluster", "watch"), ("Schedule", "instances")}
    assert {one["done"] for one in found} == {None}
    with pytest.raises(RPCError, match="not found"):
        await product.temporal.get_workflow_handle(ids.watch(product.own_sandbox.plan.cluster_name)).describe()


async def _nothing_is_missing(product: OwnProduct) -> None:
    """Visibility comes a moment later; what was started is not started again."""
    found = await product.tenure("rebuild")
    assert found == (0, []), found


def _listed(found: list[dict[str, str]]) -> set[tuple[str, str]]:
    return {(one["kind"], one["name"]) for one in found}


async def _is(scene: Scene, claim: str, phase: Phase) -> None:
    life = await scene.life(claim)
    assert life.open and life.phase == phase.value, life
