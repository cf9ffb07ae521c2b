"""Kills the worker with SIGKILL after random events, and starts it again each time."""

import asyncio
import os
import random
import signal
import time

from tenure.sandbox.processes import PartFailed
from tests.chaos.histories import HistoryFollower
from tests.support.product.product import DedicatedProduct
from tests.support.product.worker_harness import WorkerUnderTest

MAX_DELAY_SECONDS = 0.4
"""Maximum seconds between the event and the kill, so that the reaction to the event may have started."""
_POD_UID = "b5f8a1f0-0d5e-4a4f-9d39-3c1f6a1b7c11"
"""Like a container that its kubelet restarts, each worker continues to hold the Lease of the one before."""


class WorkerKiller:
    """Kills `kills` times, each after at most `max_events_between` more events. It does not wait until a worker is
    ready: a worker may be killed during its start.
    """

    def __init__(
        self, product: DedicatedProduct, histories: HistoryFollower, *, kills: int, max_events_between: int, seed: int
    ) -> None:
        self._product, self._histories, self._max_events_between = product, histories, max_events_between
        self._dice = random.Random(seed)
        self._began = time.monotonic()
        self.kills_remaining = kills
        self.kill_log: list[str] = []

    async def run_kills(self, **settings: str) -> None:
        """Run all kills, then start a worker that stays."""
        while self.kills_remaining:
            worker = self._product.add_worker(POD_UID=_POD_UID, **settings)
            starting = asyncio.create_task(worker.start())
            waiting = asyncio.create_task(self._wait_for_kill_time())
            done, _ = await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if starting in done:
                await starting
            await waiting
            self._kill_worker(worker, "at work" if starting.done() else "starting")
            await asyncio.gather(asyncio.to_thread(worker.wait), _wait_until_failed(starting))
            self.kills_remaining -= 1
        await self._product.ensure_worker(POD_UID=_POD_UID, **settings)

    async def _wait_for_kill_time(self) -> None:
        histories = self._histories
        # Log-uniform: many workers are killed early, and some get work done.
        await histories.wait_until_count(histories.count + round(self._max_events_between ** self._dice.random()))
        await asyncio.sleep(self._dice.uniform(0, MAX_DELAY_SECONDS))

    def _kill_worker(self, worker: WorkerUnderTest, stage: str) -> None:
        os.kill(worker.pid, signal.SIGKILL)
        after = time.monotonic() - self._began
        self.kill_log.append(f"{after:6.1f} s  {stage}  event {self._histories.count}, {self._histories.last}")
        print(f"kill {len(self.kill_log):3}  {self.kill_log[-1]}", flush=True)


async def _wait_until_failed(starting: "asyncio.Task[None]") -> None:
    """The start of a worker fails if it is killed meanwhile."""
    try:
        await starting
    except PartFailed as failed:
        if "SIGKILL" not in failed.why:
            raise
