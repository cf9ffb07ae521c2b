"""The process that hosts watch and planner, for workflows: implements `activities.planner_host.PlannerHost`."""

import asyncio
from dataclasses import dataclass, field

from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlanOutcome, PlanRequest
from tests.support.fakes.disruption_host import FakeDisruption
from tests.support.fakes.faulty import FaultInjectable


@dataclass
class FakeHost(FaultInjectable):
    disruption: FakeDisruption = field(default_factory=FakeDisruption)
    outcomes: list[PlanOutcome] = field(default_factory=list)
    """Returned one after the other; afterwards passes have nothing to do."""
    planned: list[PlanRequest] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """If set, planning waits for it."""

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        return DisruptionStatus(messages=(f"asked for {request.name or 'everything'}",))

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        return await self.disruption.compute_disruption(request)

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult:
        return await self.disruption.create_replacements(replace_request)

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        self.planned.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if not self.outcomes:
            return PlanOutcome(plan_id=request.plan_id)
        return self.outcomes.pop(0).model_copy(update={"plan_id": request.plan_id})
