"""Voluntary disruption by the planner's host, for `FakeHost`."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from tenure.apis.labels import NODEPOOL, PLAN, REPLACES
from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    ReplacementRequest,
    ReplacementResult,
)
from tests.support.fakes.faulty import FaultInjectable
from tests.support.fakes.kubernetes import FakeNodeClaims


@dataclass
class FakeDisruption(FaultInjectable):
    claims: FakeNodeClaims = field(default_factory=FakeNodeClaims)
    results: list[DisruptionDecision] = field(default_factory=list)
    """Returned one after the other; afterwards there is nothing to do."""
    decide_requests: list[DisruptionDecisionRequest] = field(default_factory=list)
    replace_rejections: list[ReplacementResult] = field(default_factory=list)
    """Returned before replacements are created."""
    replace_requests: list[ReplacementRequest] = field(default_factory=list)

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        self.decide_requests.append(request)
        return self.results.pop(0) if self.results else DisruptionDecision()

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult:
        """Names derive from the plan's id; an existing NodeClaim stays."""
        self.replace_requests.append(replace_request)
        if self.replace_rejections:
            return self.replace_rejections.pop(0)
        pools = replace_request.proposal.replacement_pools or ("default",)
        names = [f"new-{replace_request.plan_id}-{index}" for index in range(replace_request.proposal.replacements)]
        for name in names:
            if name not in self.claims.found:
                annotations = {PLAN: replace_request.plan_id, REPLACES: replace_request.workflow_id}
                self.claims.add(name, born=datetime.now(UTC), labels={NODEPOOL: pools[0]}, annotations=annotations)
        return ReplacementResult(outcome="made", claims=tuple(names))
