"""Scenarios that play at the same time: an act. Its tests are separate, and each reports its own scenario.

Nodes take their time, and ten of them take no longer than one. A scenario that is an async generator meets the others
at each `yield`; between the meetings happens what the act is about: the worker is killed, say, and started again.
"""

import asyncio
import inspect
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.product.product import Product

Play = Callable[[Product], AsyncGenerator[None, None] | Awaitable[None]]
Between = Callable[[Product], Awaitable[object]]

KILL_WITHIN = (3.0, 25.0)
"""Seconds after an act's beginning: from the first launches until most of the nodes are gone."""


@dataclass(frozen=True)
class Act:
    """`settings` are those of the worker at its beginning. `between[n]` happens at the scenarios' n-th `yield`.

    An act with `patient` settings can also be played with the worker killed once, at a moment that a seed gives; they
    leave the time for it.
    """

    name: str
    settings: dict[str, str] = field(default_factory=dict)
    between: Sequence[Between] = ()
    patient: dict[str, str] = field(default_factory=dict)

    def scenario(self, play: Play) -> Callable[[Product, "Programme"], Awaitable[None]]:
        """A coroutine function or an async generator function, as a test of this act."""

        async def test(product: Product, programme: "Programme") -> None:
            await programme.report(self, play)

        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(test, name, getattr(play, name))
        setattr(test, "part", (self.stage(play), play))  # noqa: B010 -- a function has no such field of its own
        return pytest.mark.killable(test) if self.patient else test

    def stage(self, play: Play) -> str:
        """Those of one folder play together: more at once would only wait for each other."""
        return f"{self.name} in {getattr(play, '__module__').rpartition('.')[0]}"  # noqa: B009 -- Callable has none


class Programme:
    """What this run plays: the scenarios of the tests that were selected, by act. A `seed` kills a worker.

    With `times` a scenario that meets nobody is played so often, one time after the other.
    """

    def __init__(self, items: Sequence[pytest.Item], product: Product, seed: int | None, times: int = 1) -> None:
        self._product, self._seed, self._times = product, seed, times
        parts = [getattr(getattr(item, "obj", None), "part", None) for item in items]
        self._parts: list[tuple[str, Play]] = [part for part in parts if part]
        self._outcomes: dict[Play, Exception | None] = {}

    async def report(self, act: Act, play: Play) -> None:
        """Raise what the scenario raised. Whoever asks first has the whole act played."""
        if play not in self._outcomes:
            await self._perform(act, [other for stage, other in self._parts if stage == act.stage(play)])
        if error := self._outcomes[play]:
            raise error

    async def _perform(self, act: Act, plays: Sequence[Play]) -> None:
        running = {play: _begin(play, self._product, self._times) for play in plays}
        try:
            kill = self._seed if act.patient else None
            await self._product.work(**(act.settings if kill is None else act.patient))
            for between in act.between:
                await self._step(running)
                await between(self._product)
            await asyncio.gather(self._step(running), self._kill_once(kill))
            for play, rest in running.items():
                await rest.aclose()
                self._outcomes[play] = AssertionError(f"the act {act.name} has {len(act.between)} meetings, not more")
        except Exception as error:
            for play, rest in running.items():
                self._outcomes[play] = error
                await rest.aclose()

    async def _kill_once(self, seed: int | None) -> None:
        if seed is None:
            return
        moment = random.Random(seed).uniform(*KILL_WITHIN)
        await asyncio.sleep(moment)
        await self._product.kill()
        print(f"{moment:6.1f} s  the worker is killed")
        await self._product.go_on()

    async def _step(self, running: dict[Play, AsyncGenerator[None, None]]) -> None:
        """Each to its next `yield` or its end, together."""

        began = time.monotonic()

        async def advance(play: Play) -> None:
            try:
                await anext(running[play])
                print(f"{time.monotonic() - began:6.1f} s  {play.__name__} is there")
            except StopAsyncIteration:
                self._outcomes[play] = None
            except Exception as error:
                self._outcomes[play] = error
            if play in self._outcomes:
                print(f"{time.monotonic() - began:6.1f} s  {play.__name__} is over")
                del running[play]

        await asyncio.gather(*(advance(play) for play in list(running)))


async def _begin(play: Play, product: Product, times: int) -> AsyncGenerator[None, None]:
    """A coroutine is a generator that never yields."""
    begun: Any = play(product)
    if inspect.isasyncgen(begun):
        async for _ in begun:
            yield
        return
    await begun
    for number in range(2, times + 1):
        print(f"{play.__name__}: {number} of {times}", flush=True)
        begun = play(product)
        await begun
