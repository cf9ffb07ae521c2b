"""Health of a rollout by spec.rollout.health, and its description.

Unknown health is not a failure, but until it is known no node is disrupted and no wave ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tenure.model.rollout import (
    GateResult,
    HealthGate,
    ObservedRollout,
    RolloutHalt,
    RolloutPlan,
    RolloutState,
    RolloutTarget,
)
from tenure.policy.rollout.plan import images_back
from tenure.policy.rollout.rules import Rules


@dataclass(frozen=True, slots=True)
class HealthStatus:
    failing: str = ""
    unknown: str = ""
    gates_to_query: tuple[HealthGate, ...] = ()


def health_of(rules: Rules, state: RolloutState, observed: ObservedRollout, now: datetime) -> HealthStatus:
    known = {one.gate: one for one in state.gate_results}
    results = [(gate, one) for gate in rules.gates if (one := known.get(gate.id))]
    failing = [*_node_problems(rules, observed), *(one.why for _, one in results if one.outcome == "failed")]
    unknown = [f"{gate.name}: {one.why}" for gate, one in results if one.outcome == "unknown"]
    fresh = {gate.id for gate, one in results if _is_fresh(one, rules, now)}
    return HealthStatus(
        "; ".join(failing), "; ".join(unknown), tuple(one for one in rules.gates if one.id not in fresh)
    )


def _is_fresh(result: GateResult, rules: Rules, now: datetime) -> bool:
    return result.at is not None and now - result.at < rules.every


def _node_problems(rules: Rules, observed: ObservedRollout) -> Iterator[str]:
    if observed.updated_nodes and observed.ready * 100 < rules.nodes_ready * observed.updated_nodes:
        yield f"{observed.ready} of {observed.updated_nodes} new nodes are Ready, expected {rules.nodes_ready}%"
    if rules.pods_ready is not None and observed.pods and observed.pods_ready * 100 < rules.pods_ready * observed.pods:
        yield f"{observed.pods_ready} of {observed.pods} pods on new nodes are Ready, expected {rules.pods_ready}%"
    if observed.failed_starts >= rules.failed_starts:
        yield f"{observed.failed_starts} new NodeClaims failed to start, expected fewer than {rules.failed_starts}"


@dataclass(frozen=True, slots=True)
class RolloutText:
    state: RolloutState
    target: RolloutTarget
    rules: Rules
    size: int

    @property
    def subject(self) -> str:
        """The rollout, named after the change since the last good target."""
        known = self.state.target or self.target
        changed = known.changed_from(self.state.good) if self.state.good else ()
        return f"the rollout of {' and '.join(changed) or 'the template'} {known.id}"

    @property
    def current_wave(self) -> str:
        waves = len(self.rules.waves)
        return f"wave {min(self.state.wave + 1, waves)} of {waves} of {self.subject}"

    @property
    def wave_progress(self) -> str:
        return f"{self.state.done} of {self.size} nodes replaced, {len(self.state.moving)} in progress"

    def proceeding(self, goal: int, plan: RolloutPlan) -> str:
        return (
            f"{self.current_wave}: {goal} of {self.size} nodes, {self.wave_progress}; tenure reject {plan.id} stops it"
        )

    def describe_waiting(self, plan: RolloutPlan, nodes: int) -> str:
        """`nodes`: number of nodes that the wave has yet to replace."""
        approvers = "approval" if plan.approvers == 1 else f"{plan.approvers} approvals"
        approved_by = ", ".join(sorted({one.by for one in plan.approvals}))
        has = f" (approved by {approved_by})" if approved_by else ""
        return (
            f"{self.current_wave}, {nodes} of {self.size} nodes, waits for {approvers}{has} until "
            f"{format_timestamp(plan.until)}: "
            f"tenure approve {plan.id}, or tenure reject {plan.id}"
        )

    def describe_halt(self, halted: RolloutHalt) -> str:
        outcome = f"rejected by {halted.by}" if halted.by else "halted"
        why = f": {halted.why}" if halted.why else ""
        head = f"{self.subject} was {outcome} at {format_timestamp(halted.since)}, {self.wave_progress}{why}"
        back, no_way = images_back(self.state)
        images = " ".join(sorted({*back.values()}))
        if halted.rolling_back and back:
            return f"{head}. EC2NodeClass {self.target.node_class} returns to {images}"
        returns = (
            f"tenure reject {halted.plan} --roll-back returns to {images}"
            if back
            else f"there is no automatic rollback ({no_way})"
        )
        return f"{head}. To decide: tenure approve {halted.plan} continues it, {returns}, and a newer spec restarts it"


def format_timestamp(when: datetime) -> str:
    return when.isoformat(timespec="minutes").replace("+00:00", "Z")
