"""The planner: `scheduling.state.ClusterState` in a process of its own, so that planning never holds up workflows.

`planning.py` keeps it filled and asks it for plans. A planner that dies is replaced, and filled again from the caches.
"""

import asyncio
import multiprocessing
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import structlog

from model.catalogue import Catalogue, ReservationRoom, UnavailableOffering
from model.disruption import Decision, DisruptionRequest
from model.faults import TryLater
from model.learnt import Learnt
from model.plans import Plan, PlannedClaim
from scheduling.facts import Change
from scheduling.overlays import Verdict
from scheduling.settings import PlanSettings

log = structlog.get_logger(__name__)

LONGEST_PLAN: Final = 60.0
"""Seconds; a planner that takes longer is ended and replaced."""


class PlannerProcess:
    """One child. Every call is one message and one answer, one after the other; a fault means: make a new one."""

    def __init__(self, settings: PlanSettings) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_child, args=(child, settings), name="tenure-planner", daemon=True
        )
        self._process.start()
        child.close()
        # One thread per child: pipes block, and a dead one must not hold up its successor.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planner-pipe")
        self._lock = asyncio.Lock()
        self._broken = False

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can still be talked to."""
        return not self._broken and self._process.is_alive()

    async def apply(self, changes: Sequence[Change]) -> None:
        await self._ask("apply", changes)

    async def set_catalogue(self, catalogue: Catalogue) -> None:
        await self._ask("set_catalogue", catalogue)

    async def heed(self, learnt: Learnt, specs: Mapping[str, str]) -> None:
        await self._ask("heed", learnt, specs)

    async def overlays(self) -> Mapping[str, Verdict]:
        """Which NodeOverlays are heeded, by name."""
        verdicts, _ = await self._ask("overlays")
        found: Mapping[str, Verdict] = verdicts
        return found

    async def commit(self, claims: Mapping[str, PlannedClaim], *, now: datetime) -> None:
        await self._ask("commit", claims, now=now)

    async def provision(
        self,
        *,
        now: datetime,
        unavailable: Sequence[UnavailableOffering],
        not_ready_grace: timedelta,
        pool_graces: Mapping[str, timedelta],
        reservations: Mapping[str, ReservationRoom],
    ) -> Plan:
        """The plan, with how long it took."""
        plan, seconds = await self._ask(
            "provision",
            now=now,
            unavailable=unavailable,
            not_ready_grace=not_ready_grace,
            pool_graces=pool_graces,
            reservations=reservations,
        )
        return Plan.model_validate(plan).model_copy(update={"seconds": seconds})

    async def disrupt(self, request: DisruptionRequest) -> tuple[Decision, float]:
        """One pass of voluntary disruption, and the seconds it took."""
        decision, seconds = await self._ask("disrupt", request)
        return Decision.model_validate(decision), seconds

    async def stop(self) -> None:
        """End the child, whatever it is doing."""
        self._process.kill()
        self._pipe.close()
        self._thread.shutdown(wait=False)
        await asyncio.to_thread(self._process.join, 2.0)

    async def _ask(self, method: str, *args: Any, **kwargs: Any) -> tuple[Any, float]:
        async with self._lock:
            loop = asyncio.get_running_loop()
            try:
                answering = loop.run_in_executor(self._thread, self._exchange, (method, args, kwargs))
                answer, seconds, error = await asyncio.wait_for(answering, LONGEST_PLAN)
            except (TimeoutError, EOFError, OSError, RuntimeError) as cause:
                self._broken = True
                raise TryLater(f"the planner process does not answer to {method}: {cause!r}") from cause
        if error:
            raise TryLater(f"the planner failed in {method}: {error}")
        return answer, seconds

    def _exchange(self, message: tuple[str, tuple[Any, ...], dict[str, Any]]) -> tuple[Any, float, str]:
        """In the thread of the pipe: to write down a catalogue of ten classes takes seconds, in which others work."""
        self._pipe.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
        answer: tuple[Any, float, str] = pickle.loads(self._pipe.recv_bytes())
        return answer


def _child(pipe: Connection, settings: PlanSettings) -> None:
    from controller.planner_child import serve  # noqa: PLC0415 - what it plans with takes 15 MB, and is the child's alone

    serve(pipe, settings)
