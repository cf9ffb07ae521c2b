"""The plan of a wave, which people approve or reject: when another one takes its place, and by which name it goes."""

from datetime import datetime

from model.rollouts import RolloutPlan, RolloutState, Target, digest
from policy.budgets import share_of
from policy.rollout_rules import Rules


def planned(pool: str, state: RolloutState, target: Target, rules: Rules, size: int, now: datetime) -> RolloutPlan:
    """The plan of the present wave. One that is too old, or for another number of nodes, is void: a new one is made,
    and an approval of the old one is an approval of nothing."""
    plan, needed = state.plan, rules.approvers
    if plan is not None and plan.wave == state.wave and plan.approvers == needed:
        moved = abs(size - plan.size) > share_of(rules.stale_after, plan.size)
        if not needed or (now < plan.until and not moved):
            return plan
    return RolloutPlan(
        id=plan_id(pool, state, target),
        wave=state.wave,
        size=size,
        until=now + rules.expires,
        lasts=rules.expires,
        approvers=needed,
    )


def plan_id(pool: str, state: RolloutState, target: Target) -> str:
    """Of the NodePool, what is rolled out, the wave, and how many plans there were: the same for the same state."""
    return f"{pool}-{digest([pool, target.id, state.wave, state.plans])[:6]}"
