"""The planner: `scheduling.state.ClusterState` in a process of its own, so that planning never holds up workflows.

`planning.py` keeps it filled and asks it for plans. A planner that dies is replaced, and filled again from the caches.

The planner process, alive, up to date, and asked for one thing at a time.

`planning.py` plans pods that wait with it, `disrupting.py` what could go: both hold `lock` while they ask, the latter
with `patience`.
"""

import asyncio
import multiprocessing
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import structlog

from activities.ports.core import Events, Offerings
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.disruption.status import OverlayVerdicts
from tenure.controller.planning.catalog import CatalogueFeed, Shifts
from tenure.controller.planning.discovered_capacity import Learning
from tenure.model.discovered_capacity import Learnt
from tenure.model.disruption.planning import Decision, DisruptionRequest
from tenure.model.errors import Fault, TryLater
from tenure.model.instance_types import Catalogue, ReservationRoom, UnavailableOffering
from tenure.model.provisioning import Plan, PlannedClaim
from tenure.scheduling.nodeoverlays import Verdict
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change

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
    from tenure.controller.planning.planner_child import serve  # noqa: PLC0415 - what it plans with takes 15 MB, and is the child's alone

    serve(pipe, settings)


@dataclass(frozen=True, slots=True)
class Goods:
    """What can be had at the moment beyond what the catalogue says."""

    unavailable: tuple[UnavailableOffering, ...]
    reservations: Mapping[str, ReservationRoom]


class Filling:
    def __init__(
        self,
        *,
        caches: Caches,
        offerings: Offerings,
        events: Events,
        settings: PlanSettings,
        now: Callable[[], datetime],
        verdicts: OverlayVerdicts | None = None,
    ) -> None:
        self._caches, self._offerings, self._settings = caches, offerings, settings
        self._shifts = Shifts(caches, offerings, events)
        self.catalogue = CatalogueFeed(caches, offerings, now)
        self.learning = Learning(caches)
        self.verdicts = verdicts
        self.lock = asyncio.Lock()
        self.patience = asyncio.Lock()
        """Taken first by whoever can wait: so only one of these is ever before pods that wait for a plan."""
        self.moved = False
        """The planner was told something since somebody set this back."""
        self.marks: tuple[UnavailableOffering, ...] = ()
        """What launches were refused, as Provisioning said it last."""
        self.taken: Callable[[datetime], Sequence[UnavailableOffering]] = lambda now: ()
        """What AWS took back lately, which Provisioning may not have heard of yet."""
        self.process: PlannerProcess | None = None
        self._heeded: tuple[Learnt, Mapping[str, str]] | None = None

    async def close(self) -> None:
        """What it was told may be lost half-way, so the next starts anew and is told all of it."""
        if self.process:
            await self.process.stop()
            self.process = None

    def doubt(self) -> str:
        """Why nothing can be decided yet; empty when it can."""
        unknown = self.catalogue.unknown()
        return f"the instance types of EC2NodeClass {', '.join(unknown)} are not known yet" if unknown else ""

    async def goods(self, now: datetime) -> Goods:
        marks = tuple(one for one in self.marks if now < one.until)
        rooms = await self._offerings.rooms(list(self._caches.node_classes.values()))
        return Goods((*marks, *self.taken(now), *await self._shifts.marks(now)), rooms)

    async def fill(self) -> PlannerProcess:
        """The planner, alive and up to date. Raises TryLater."""
        process = self.process
        if process is None or not process.alive:
            await self.close()
            process = self.process = await asyncio.to_thread(PlannerProcess, self._settings)
            self.catalogue.forget()
            self._heeded = None
            log.info("planner started", pid=process.pid)
            changes: Sequence[Change] = self._caches.snapshot()
        else:
            changes = self._caches.take_changes()
        self.learning.look_at(changes)
        try:
            await self._tell(process, changes)
        except Fault:
            await self.close()
            raise
        return process

    async def _tell(self, process: PlannerProcess, changes: Sequence[Change]) -> None:
        if changes:
            self.moved = True
            await process.apply(changes)
        known = (self.learning.learnt, self.learning.specs())
        if self._heeded is None or self._heeded[0] is not known[0] or self._heeded[1] != known[1]:
            await process.heed(*known)
            self._heeded = known
        if await self.catalogue.refresh():
            await process.set_catalogue(self.catalogue.catalogue)
            self.catalogue.delivered()
        if self.verdicts and self._caches.overlays and not self.catalogue.unknown():
            await self.verdicts.say(await process.overlays())
