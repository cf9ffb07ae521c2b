"""Leader election in a thread with an event loop of its own.

The event loop of a worker is busy for seconds when it lists thousands of objects on a loaded machine. If it also
renewed the Lease, the leader would lose it, list all objects again, and never finish.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tenure.kube.adapters.cluster import KubeLeases
from tenure.kube.client.client import connect
from tenure.kube.leader_election import LeaderElector

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


class LeaderElection:
    """`identity`: of `holder_identity`. `is_leader_lost`: as of `LeaderElector`; it runs in the loop of `run`."""

    def __init__(self, kubeconfig: str, namespace: str, identity: str, *, is_leader_lost: Work[bool]) -> None:
        self._kubeconfig, self._namespace, self._identity = kubeconfig, namespace, identity
        self._is_leader_lost = is_leader_lost
        self._elector: LeaderElector | None = None

    @property
    def is_valid(self) -> bool:
        """Whether this process certainly holds the Lease now."""
        return self._elector is not None and self._elector.is_valid

    async def run(self, lead: Work[None]) -> None:
        """Until cancelled: run `lead` in this event loop while this process holds the Lease."""
        loop = asyncio.get_running_loop()

        async def elect() -> None:
            client = await connect(self._kubeconfig)
            try:
                self._elector = LeaderElector(
                    KubeLeases(client),
                    self._namespace,
                    self._identity,
                    is_leader_lost=lambda: run_in_loop(loop, self._is_leader_lost),
                )
                await self._elector.run(lambda: run_in_loop(loop, lead))
            finally:
                await client.close()

        async with thread_with_event_loop("leader-election") as other:
            await run_in_loop(other, elect)


def holder_identity(process: str, *, pod_uid: str, process_uid: str) -> str:
    """Unique among processes, except those of one pod: a container starts after its previous process has ended.

    `process`: `PID@HOST`.
    """
    return f"{process.partition('@')[2]}_{pod_uid}" if pod_uid else f"{process}_{process_uid[:8]}"


@asynccontextmanager
async def thread_with_event_loop(name: str) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """The loop runs until the end of the block."""
    runner = asyncio.Runner()

    def run() -> None:
        with runner:
            runner.get_loop().call_soon(started.set)
            runner.get_loop().run_forever()

    started = threading.Event()
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    await asyncio.to_thread(started.wait)
    try:
        yield runner.get_loop()
    finally:
        runner.get_loop().call_soon_threadsafe(runner.get_loop().stop)
        await asyncio.to_thread(thread.join)


async def run_in_loop(loop: asyncio.AbstractEventLoop, work: Work[T]) -> T:
    """Run a coroutine in the event loop of another thread. Its result or error is that of this call. If this call is
    cancelled, the coroutine is cancelled, and this call ends when the coroutine has ended. The future of
    `asyncio.run_coroutine_threadsafe` does not wait for that."""
    own, tasks = asyncio.get_running_loop(), list[asyncio.Task[T]]()
    ended = asyncio.Event()

    def start() -> None:
        tasks.append(loop.create_task(work()))
        tasks[0].add_done_callback(lambda _: own.call_soon_threadsafe(ended.set))

    loop.call_soon_threadsafe(start)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        await ended.wait()
        raise
    return tasks[0].result()
