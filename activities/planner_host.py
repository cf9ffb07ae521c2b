"""Activities of the process that hosts the watch, which polls the plan queue: plans from its cache."""

from typing import Protocol

from temporalio import activity

from activities.runtime import background_heartbeat, map_faults
from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlanOutcome, PlanRequest


class PlannerHost(Protocol):
    async def plan(self, request: PlanRequest) -> PlanOutcome: ...

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision: ...

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult: ...

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus: ...


class PlannerHostActivities:
    def __init__(self, host: PlannerHost) -> None:
        self._host = host

    @activity.defn
    @map_faults
    async def plan_capacity(self, request: PlanRequest) -> PlanOutcome:
        """Run one pass: plan, and create the NodeClaims. Returns names and counts."""
        async with background_heartbeat():
            return await self._host.plan(request)

    @activity.defn
    @map_faults
    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        """The candidates and the proposed commands of one pass. Changes nothing."""
        async with background_heartbeat():
            return await self._host.compute_disruption(request)

    @activity.defn
    @map_faults
    async def create_replacements(self, request: ReplacementRequest) -> ReplacementResult:
        """Validate a proposal again and create its replacements. A retry creates them under the same names."""
        async with background_heartbeat():
            return await self._host.create_replacements(request)

    @activity.defn
    @map_faults
    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        """The commands of a pass made for this request, or the verdict on one node. Changes nothing."""
        async with background_heartbeat():
            return await self._host.preview_disruption(request)
