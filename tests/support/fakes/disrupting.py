"""The planner's host as workflows of voluntary disruption see it: `activities.disrupting_ports.DisruptionHost`."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from tenure.apis.labels import NODEPOOL, PLAN, REPLACES
from tenure.model.disruption.commands import DecideAsked, Decided, ReplaceAsked, Replaced
from tests.support.fakes.faulty import Faulty
from tests.support.fakes.kubernetes import FakeClaims


@dataclass
class FakeDisruption(Faulty):
    claims: FakeClaims
    decisions: list[Decided] = field(default_factory=list)
    """Answered one after the other; after that, there is nothing to do."""
    decided: list[DecideAsked] = field(default_factory=list)
    refusals: list[Replaced] = field(default_factory=list)
    """Answered before replacements are made."""
    replaced: list[ReplaceAsked] = field(default_factory=list)

    async def decide(self, asked: DecideAsked) -> Decided:
        self.decided.append(asked)
        return self.decisions.pop(0) if self.decisions else Decided()

    async def replace(self, asked: ReplaceAsked) -> Replaced:
        """Names come of the plan's id, and what is there already stays."""
        self.replaced.append(asked)
        if self.refusals:
            return self.refusals.pop(0)
        pools = asked.proposal.replacement_pools or ("default",)
        names = [f"new-{asked.plan_id}-{place}" for place in range(asked.proposal.replacements)]
        for name in names:
            if name not in self.claims.found:
                marks = {PLAN: asked.plan_id, REPLACES: asked.workflow_id}
                self.claims.add(name, born=datetime.now(UTC), labels={NODEPOOL: pools[0]}, annotations=marks)
        return Replaced(outcome="made", claims=tuple(names))
