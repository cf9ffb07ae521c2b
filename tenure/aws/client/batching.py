"""Joins the calls of many callers into one: asked for within a short window, answered together.

A window closes when nobody has asked for `idle` seconds, at the latest after `longest` seconds or at `size` items.

Answers that may be used again for a while. Only speed rests on it: what is gone is asked for again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Batcher(Generic[K, R]):
    """`run` answers for many keys at once; a key that it leaves out is answered with None."""

    def __init__(
        self,
        run: Callable[[Sequence[K]], Awaitable[Mapping[K, R]]],
        *,
        idle: float,
        longest: float,
        size: int,
    ) -> None:
        self._run, self._idle, self._longest, self._size = run, idle, longest, size
        self._waiting: dict[K, asyncio.Future[R | None]] = {}
        self._opened = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, key: K) -> R | None:
        """The answer for one key. Callers with the same key in one window share it; one who leaves disturbs nobody."""
        loop = asyncio.get_running_loop()
        answer = self._waiting.get(key)
        if answer is None:
            if not self._waiting:
                self._opened = loop.time()
            answer = self._waiting[key] = loop.create_future()
        self._set_timer(loop)
        return await asyncio.shield(answer)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if len(self._waiting) >= self._size:
            self._close_window()
            return
        due = min(loop.time() + self._idle, self._opened + self._longest)
        self._timer = loop.call_at(due, self._close_window)

    def _close_window(self) -> None:
        self._timer = None
        batch, self._waiting = self._waiting, {}
        task = asyncio.get_running_loop().create_task(self._answer(batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, batch: Mapping[K, asyncio.Future[R | None]]) -> None:
        try:
            answers = await self._run(list(batch))
        except BaseException as error:
            for future in batch.values():
                if not future.done():
                    future.set_exception(error)
                    # Whoever asked may have left; the fault is then nobody's to hear.
                    future.exception()
            if isinstance(error, Exception):
                return
            raise
        for key, future in batch.items():
            if not future.done():
                future.set_result(answers.get(key))


V = TypeVar("V")


class Expiring(Generic[V]):
    """Values by key, each for `seconds`; with `sliding` a use counts as new."""

    def __init__(
        self, seconds: float, *, sliding: bool = False, clock: Callable[[], float] = time.monotonic, limit: int = 4096
    ) -> None:
        self._seconds, self._sliding, self._clock, self._limit = seconds, sliding, clock, limit
        self._held: dict[Hashable, tuple[float, V]] = {}

    def get(self, key: Hashable) -> V | None:
        held = self._held.get(key)
        if held is None or held[0] <= self._clock():
            self._held.pop(key, None)
            return None
        if self._sliding:
            self.put(key, held[1])
        return held[1]

    def put(self, key: Hashable, value: V) -> None:
        if len(self._held) >= self._limit:
            self._sweep()
        self._held[key] = (self._clock() + self._seconds, value)

    def forget(self, key: Hashable) -> None:
        self._held.pop(key, None)

    def clear(self) -> None:
        self._held.clear()

    async def get_or(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        """What is held, or what `ask` answers, which is then held."""
        held = self.get(key)
        if held is None:
            held = await ask()
            self.put(key, held)
        return held

    def _sweep(self) -> None:
        now = self._clock()
        self._held = {key: held for key, held in self._held.items() if held[0] > now}
        if len(self._held) >= self._limit:
            self._held.clear()
