"""Whether a roll-out's new nodes, their pods and the world around them are well, as spec.rollout.health asks for.

What nobody can tell is no failure, and holds all the same: no node goes, and no wave ends, until it is known again.

What is said of a roll-out: on the NodePool's events, in its workflow's details, to a node that waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tenure.model.rollout import Gate, GateAnswer, Halted, RolloutPlan, RolloutSeen, RolloutState, Target
from tenure.policy.rollout.plan import images_back
from tenure.policy.rollout.rules import Rules


@dataclass(frozen=True, slots=True)
class Health:
    failing: str = ""
    """What is not well, by the last that was heard; empty when all is."""
    unknown: str = ""
    """What was asked last and not answered."""
    ask: tuple[Gate, ...] = ()
    """What was not asked lately."""


def health_of(rules: Rules, state: RolloutState, seen: RolloutSeen, now: datetime) -> Health:
    """As it is now."""
    known = {one.gate: one for one in state.answers}
    said = [(gate, one) for gate in rules.gates if (one := known.get(gate.id))]
    failing = [*_of_nodes(rules, seen), *(one.why for _, one in said if one.outcome == "failed")]
    unknown = [f"{gate.name}: {one.why}" for gate, one in said if one.outcome == "unknown"]
    asked = {gate.id for gate, one in said if _is_fresh(one, rules, now)}
    return Health("; ".join(failing), "; ".join(unknown), tuple(one for one in rules.gates if one.id not in asked))


def _is_fresh(answer: GateAnswer, rules: Rules, now: datetime) -> bool:
    return answer.at is not None and now - answer.at < rules.every


def _of_nodes(rules: Rules, seen: RolloutSeen) -> Iterator[str]:
    if seen.new and seen.ready * 100 < rules.nodes_ready * seen.new:
        yield f"{seen.ready} of {seen.new} new nodes are Ready, {rules.nodes_ready}% have to be"
    if rules.pods_ready is not None and seen.pods and seen.pods_ready * 100 < rules.pods_ready * seen.pods:
        yield f"{seen.pods_ready} of {seen.pods} pods on new nodes are Ready, {rules.pods_ready}% have to be"
    if seen.failed_starts >= rules.failed_starts:
        yield f"{seen.failed_starts} new NodeClaims did not come to be nodes, {rules.failed_starts} are too many"


@dataclass(frozen=True, slots=True)
class Words:
    """Of one state."""

    state: RolloutState
    target: Target
    rules: Rules
    size: int

    @property
    def what(self) -> str:
        """By what has changed since the last good one."""
        known = self.state.target or self.target
        changed = known.changed_from(self.state.good) if self.state.good else ()
        return f"the roll-out of {' and '.join(changed) or 'what is asked for'} {known.id}"

    @property
    def wave(self) -> str:
        waves = len(self.rules.waves)
        return f"wave {min(self.state.wave + 1, waves)} of {waves} of {self.what}"

    @property
    def progress(self) -> str:
        return f"{self.state.done} of {self.size} nodes replaced, {len(self.state.moving)} on their way"

    def goes(self, goal: int, plan: RolloutPlan) -> str:
        return f"{self.wave}: {goal} of {self.size} nodes, {self.progress}; tenure reject {plan.id} stops it"

    def waits_for(self, plan: RolloutPlan, nodes: int) -> str:
        """`nodes`: how many are still to go in the wave."""
        asked = "a person" if plan.approvers == 1 else f"{plan.approvers} people"
        said = ", ".join(sorted({one.by for one in plan.approvals}))
        has = f" ({said} said yes)" if said else ""
        return (
            f"{self.wave}, {nodes} of {self.size} nodes, waits for {asked}{has} until {moment(plan.until)}: "
            f"tenure approve {plan.id}, or tenure reject {plan.id}"
        )

    def halted(self, halted: Halted) -> str:
        said = f"rejected by {halted.by}" if halted.by else "halted"
        why = f": {halted.why}" if halted.why else ""
        head = f"{self.what} is {said} since {moment(halted.since)}, {self.progress}{why}"
        back, no_way = images_back(self.state)
        images = " ".join(sorted({*back.values()}))
        if halted.rolling_back and back:
            return f"{head}. EC2NodeClass {self.target.node_class} takes {images} again"
        returns = (
            f"tenure reject {halted.plan} --roll-back takes {images} again"
            if back
            else f"there is no way back by itself ({no_way})"
        )
        return (
            f"{head}. It waits for a person: tenure approve {halted.plan} goes on, {returns}, a newer spec starts over"
        )


def moment(when: datetime) -> str:
    return when.isoformat(timespec="minutes").replace("+00:00", "Z")
