"""Two workers share the work, and one of them hosts the watch; when that one is killed, the other takes it over."""

from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct
from tests.support.product.worker_harness import WorkerHarness


async def test_the_watch_moves_from_a_killed_worker_to_the_other(product: OwnProduct) -> None:
    await product.work()
    first, second = product.worker, product.hire()
    await second.start()
    await eventually(lambda: _told_apart(product, first, second))
    async with product.scene("two") as scene:
        await scene.run(1)
        watcher, other = await eventually(lambda: _told_apart(product, first, second))
        await product.kill(watcher)
        await scene.scale(2)
        await eventually(lambda: _watches(product, other))
        await eventually(lambda: scene.pods_run(2))
        await eventually(lambda: scene.nodes_are_initialized(2))
        await scene.nodes_were_bought(2)
        await scene.scale(0)
        await eventually(lambda: scene.nothing_runs())
    await product.rest()


async def _told_apart(product: OwnProduct, *both: WorkerHarness) -> tuple[WorkerHarness, WorkerHarness]:
    """The one that hosts the watch at this moment, and the other."""
    host = await product.watching()
    watcher, other = sorted(both, key=lambda one: not _is(host, one))
    assert _is(host, watcher) and not _is(host, other), f"{host} hosts the watch"
    return watcher, other


async def _watches(product: OwnProduct, worker: WorkerHarness) -> None:
    host = await product.watching()
    assert _is(host, worker), f"{host} hosts the watch, not {worker.pid}"


def _is(identity: str, worker: WorkerHarness) -> bool:
    """Temporal knows a worker as `pid@host`."""
    return identity.partition("@")[0] == str(worker.pid)
