"""An event loop whose clock moves only while nothing can run, so that a busy machine changes no measured time."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

STEP_SECONDS = 1e-6
"""Of each turn of the loop, so that a timer that is due within the clock's resolution becomes due."""


class _AdvancingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timeout, it adds the timeout to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        self.seconds += max(0.0 if ready else timeout or 0.0, STEP_SECONDS)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For coroutines that wait only for each other and for time: without a timer, a wait never ends."""

    def __init__(self) -> None:
        self._advancing = _AdvancingSelector()
        super().__init__(self._advancing)

    def time(self) -> float:
        return self._advancing.seconds


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run an async test on such a loop."""

    @wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test())

    return run
