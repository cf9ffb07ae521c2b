"""SIGKILL to the worker after events that a seed chooses, and another worker each time."""

import asyncio
import os
import random
import signal
import time

from tenure.sandbox.processes import PartFailed
from tests.chaos.histories import Histories
from tests.support.product.product import OwnProduct
from tests.support.product.worker_harness import WorkerHarness

HESITATION = 0.4
"""Seconds, at most, between the event and the kill: what follows from the event may have begun by then."""


class Killer:
    """Kills so many times, each after at most `apart` events more. No worker is waited for: it may die as it starts."""

    def __init__(self, product: OwnProduct, histories: Histories, *, kills: int, apart: int, seed: int) -> None:
        self._product, self._histories, self._apart = product, histories, apart
        self._dice = random.Random(seed)
        self._began = time.monotonic()
        self.left = kills
        self.moments: list[str] = []

    async def work(self, **settings: str) -> None:
        """Until all kills are done and a worker is there again that stays."""
        while self.left:
            worker = self._product.hire(**settings)
            starting = asyncio.create_task(worker.start())
            moment = asyncio.create_task(self._moment())
            done, _ = await asyncio.wait({starting, moment}, return_when=asyncio.FIRST_COMPLETED)
            if starting in done:
                await starting
            await moment
            self._strike(worker, "at work" if starting.done() else "starting")
            await asyncio.gather(asyncio.to_thread(worker.wait), _ended(starting))
            self.left -= 1
        await self._product.work(**settings)

    async def _moment(self) -> None:
        histories = self._histories
        # As often early as late, measured by the power: many workers die young, and some get something done.
        await histories.reach(histories.count + round(self._apart ** self._dice.random()))
        await asyncio.sleep(self._dice.uniform(0, HESITATION))

    def _strike(self, worker: WorkerHarness, stage: str) -> None:
        os.kill(worker.pid, signal.SIGKILL)
        after = time.monotonic() - self._began
        self.moments.append(f"{after:6.1f} s  {stage}  event {self._histories.count}, {self._histories.last}")
        print(f"kill {len(self.moments):3}  {self.moments[-1]}", flush=True)


async def _ended(starting: "asyncio.Task[None]") -> None:
    """A worker that is killed while it starts has failed to."""
    try:
        await starting
    except PartFailed as failed:
        if "SIGKILL" not in failed.why:
            raise
