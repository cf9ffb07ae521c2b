"""The planner process, alive, up to date, and asked for one thing at a time.

`planning.py` plans pods that wait with it, `disrupting.py` what could go: both hold `lock` while they ask, the latter
with `patience`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from activities.ports import Events, Offerings
from controller.caches import Caches
from controller.catalogue import CatalogueFeed
from controller.learning import Learning
from controller.overlays import OverlayVerdicts
from controller.planner import PlannerProcess
from controller.shifts import Shifts
from model.catalogue import ReservationRoom, UnavailableOffering
from model.faults import Fault
from model.learnt import Learnt
from scheduling.facts import Change
from scheduling.settings import PlanSettings

log = structlog.get_logger(__name__)


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
