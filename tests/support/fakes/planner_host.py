"""The process that hosts the watch, with its planner, as the workflows see it: `activities.watch.WatchHost`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from activities.planner_host import WatchProgress
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlanOutcome, PlanRequest
from tests.support.fakes.faulty import FaultInjectable


@dataclass
class FakeHost(FaultInjectable):
    outcomes: list[PlanOutcome] = field(default_factory=list)
    """Answered one after the other; after that, passes have nothing to do."""
    planned: list[PlanRequest] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """Where set, planning waits for it."""
    carried: list[WatchProgress | None] = field(default_factory=list)
    """One entry for every time the watch was started here: what its predecessor left."""
    ends: int = 0
    """How often the watch returns at once before it stays."""
    silent: bool = False
    """The process hangs: no heartbeat comes any more."""

    async def run(self, carried: WatchProgress | None, heartbeat: Callable[[WatchProgress], None]) -> None:
        self.carried.append(carried)
        if self.ends:
            self.ends -= 1
            return
        if self.silent:
            await asyncio.Event().wait()
        while True:
            heartbeat(WatchProgress(digests={"a-workflow": "a-digest"}))
            await asyncio.sleep(0.2)

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        return DisruptionStatus(messages=(f"asked for {request.name or 'everything'}",))

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        self.planned.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if not self.outcomes:
            return PlanOutcome(plan_id=request.plan_id)
        return self.outcomes.pop(0).model_copy(update={"plan_id": request.plan_id})
