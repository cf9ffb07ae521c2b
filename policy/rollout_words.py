"""What is said of a roll-out: on the NodePool's events, in its workflow's details, to a node that waits."""

from dataclasses import dataclass
from datetime import datetime

from model.rollouts import Halted, RolloutPlan, RolloutState, Target
from policy.rollout_back import images_back
from policy.rollout_rules import Rules


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
