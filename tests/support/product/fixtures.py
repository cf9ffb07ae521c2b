"""Fixtures with real components. The `conftest.py` of each folder imports those that its tests use.

- `shared_sandbox`: one sandbox for the run, which all xdist workers use.
- `product`: the shared sandbox with one running worker. Many tests use it at the same time.
- `sandbox`: a sandbox of this xdist worker alone.
- `own_product`: that sandbox for tests that start, stop and kill workers. No worker runs until a test starts one.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path

import pytest
import pytest_asyncio
from filelock import FileLock

from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Plan
from tests.support.product import settings
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct, InstalledProduct
from tests.support.product.shared_sandbox import SharedSandbox, sandbox_plan

KILL_WITHIN_SECONDS = (3.0, 25.0)
"""Seconds after the start of a scenario: from its first launches until most of its nodes are deleted."""


@pytest.fixture(scope="session")
def shared_sandbox(request: pytest.FixtureRequest, start_lock: FileLock) -> SharedSandbox:
    option = request.config.getoption
    with start_lock:
        return SharedSandbox.attach(
            Path(start_lock.lock_file).parent / "shared",
            owner=os.getppid() if hasattr(request.config, "workerinput") else os.getpid(),
            temporal=option("--temporal"),
            encrypted=option("--encrypted"),
        )


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest) -> Plan:
    option = request.config.getoption
    return sandbox_plan(option("--temporal"), encrypted=option("--encrypted"))


@pytest.fixture(scope="session")
def sandbox(plan: Plan, tmp_path_factory: pytest.TempPathFactory, start_lock: FileLock) -> Iterator[Sandbox]:
    with ExitStack() as stack:
        with start_lock:
            dedicated = stack.enter_context(Sandbox(tmp_path_factory.mktemp("sandbox"), plan=plan))
        yield dedicated
        dedicated.check()
        processes = dedicated.processes
    assert [process.name for process in processes if process.is_running] == []


@pytest_asyncio.fixture(scope="session")
async def own_product(sandbox: Sandbox) -> AsyncIterator[DedicatedProduct]:
    async with DedicatedProduct(sandbox) as product:
        yield product
        await product.assert_all_nodes_used()


@pytest_asyncio.fixture(scope="session")
async def shared_product(request: pytest.FixtureRequest) -> AsyncIterator[InstalledProduct]:
    """In a run with --kill-seed, a sandbox of this xdist worker, so that the kill affects no other test."""
    async with AsyncExitStack() as stack:
        if request.config.getoption("--kill-seed") is not None:
            dedicated = await stack.enter_async_context(DedicatedProduct(request.getfixturevalue("sandbox")))
            await dedicated.ensure_worker(**settings.KILLED)
            yield dedicated
            await dedicated.stop_workers()
            await dedicated.assert_all_nodes_used()
            return
        shared: SharedSandbox = request.getfixturevalue("shared_sandbox")
        request.getfixturevalue("exclusive_tests_done")
        worker = await asyncio.to_thread(shared.service.start_worker, settings.SHARED)
        product = await stack.enter_async_context(InstalledProduct(shared, worker))
        await wait_until(product.assert_nodeclass_ready)
        yield product
        await product.assert_all_nodes_used()


@pytest_asyncio.fixture
async def product(request: pytest.FixtureRequest, shared_product: InstalledProduct) -> AsyncIterator[InstalledProduct]:
    seed = request.config.getoption("--kill-seed")
    if seed is None:
        yield shared_product
        return
    assert isinstance(shared_product, DedicatedProduct)
    killing = asyncio.create_task(_kill_once(shared_product, random.Random(seed).uniform(*KILL_WITHIN_SECONDS)))
    yield shared_product
    if killing.done():
        await killing
    else:
        killing.cancel()
        with suppress(asyncio.CancelledError):
            await killing
        await shared_product.resume_worker()


async def _kill_once(product: DedicatedProduct, seconds: float) -> None:
    await asyncio.sleep(seconds)
    product.samples_before_kill = await product.metric_samples()
    await product.kill_worker()
    print(f"{seconds:6.1f} s  the worker is killed")
    await product.resume_worker()
