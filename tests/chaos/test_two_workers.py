"""Two workers share the work, and one hosts the watch; when it is killed, the other takes over."""

from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct
from tests.support.product.worker_harness import WorkerUnderTest


async def test_watch_moves_from_a_killed_worker_to_the_other(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    first, second = product.worker, product.add_worker()
    await second.start()
    await wait_until(lambda: _find_watcher(product, first, second))
    async with product.scope("two") as scope:
        await scope.run_pods(1)
        watcher, other = await wait_until(lambda: _find_watcher(product, first, second))
        await product.kill_worker(watcher)
        await scope.scale_deployment(2)
        await wait_until(lambda: _assert_watches(product, other))
        await wait_until(lambda: scope.assert_pods_running(2))
        await wait_until(lambda: scope.assert_nodes_initialized(2))
        await scope.wait_until_nodes_launched(2)
        await scope.scale_deployment(0)
        await wait_until(lambda: scope.assert_no_nodes())
    await product.stop_workers()


async def _find_watcher(
    product: DedicatedProduct, *workers: WorkerUnderTest
) -> tuple[WorkerUnderTest, WorkerUnderTest]:
    """Returns the worker that hosts the watch now, and the other."""
    host = await product.watch_host()
    watcher, other = sorted(workers, key=lambda one: not _is_worker(host, one))
    assert _is_worker(host, watcher) and not _is_worker(host, other), f"{host} hosts the watch"
    return watcher, other


async def _assert_watches(product: DedicatedProduct, worker: WorkerUnderTest) -> None:
    host = await product.watch_host()
    assert _is_worker(host, worker), f"{host} hosts the watch, not {worker.pid}"


def _is_worker(identity: str, worker: WorkerUnderTest) -> bool:
    """Temporal identifies a worker as `pid@host`."""
    return identity.partition("@")[0] == str(worker.pid)
