"""What a roll-out hears between two looks: permits, answers of Prometheus, and what people say of its plans. Pure.

People name `RolloutPlan.id` and `Halted.plan`: what they say of a plan that is no more is refused.
"""

from datetime import datetime

from model.rollouts import Approval, ApproveRollout, GateAnswer, Halted, RejectRollout, RolloutState
from policy.rollout_back import images_back


def granted(state: RolloutState, uids: tuple[str, ...], now: datetime) -> RolloutState:
    """These NodeClaims got permits to go for drift."""
    if state.target is None or state.finished or not uids:
        return state
    moving = tuple(dict.fromkeys((*state.moving, *uids)))
    return state.model_copy(update={"moving": moving, "granted_at": now})


def heard(state: RolloutState, answers: tuple[GateAnswer, ...]) -> RolloutState:
    """What Prometheus said, each in the place of what it said before."""
    new = {one.gate for one in answers}
    kept = tuple(one for one in state.answers if one.gate not in new)
    return state.model_copy(update={"answers": (*kept, *answers)})


def refusal_of(state: RolloutState, said: ApproveRollout | RejectRollout, now: datetime) -> str:
    """Why this cannot be done; empty when it can."""
    if not said.by.strip():
        return "by: nobody is named; write who says so"
    plan, halted = state.plan, state.halted
    current = halted.plan if halted else plan.id if plan and not state.finished else ""
    if said.plan != current:
        listed = "no roll-out goes on there; `tenure stuck` lists what waits for a person"
        waits = f"{current} is the one that counts now; name that one" if current else listed
        return f"plan {said.plan!r} is stale or was never there: {waits}"
    if halted is None and plan is not None and plan.approvers and now >= plan.until:
        expired = f"plan {said.plan} has expired at {plan.until.isoformat(timespec='minutes')}"
        return f"{expired}: another one is made, and an event of its NodePool names it"
    if isinstance(said, RejectRollout) and said.roll_back:
        back, no_way = images_back(state)
        return "" if back else f"plan {said.plan} cannot be rolled back: {no_way}; write the spec as it was"
    return ""


def approve(state: RolloutState, said: ApproveRollout, now: datetime) -> RolloutState:
    """What is not refused. What had failed counts anew from now on."""
    changes: dict[str, object] = {}
    if state.halted is not None:
        changes = {"halted": None, "failing_since": None, "soaking_since": None, "counted_from": now, "answers": ()}
    plan = state.plan
    if plan is not None and plan.id == said.plan and plan.approvers:
        others = tuple(one for one in plan.approvals if one.by != said.by)
        agreed = plan.model_copy(
            update={"approvals": (*others, Approval(by=said.by.strip(), at=now, reason=said.reason))}
        )
        changes["plan"] = agreed.model_copy(update={"until": now + plan.lasts}) if agreed.approved else agreed
    return state.model_copy(update=changes)


def reject(state: RolloutState, said: RejectRollout, now: datetime) -> RolloutState:
    """What is not refused. Nodes that are on their way arrive; no further one goes."""
    halted = Halted(why=said.reason, since=now, plan=said.plan, by=said.by.strip(), rolling_back=said.roll_back)
    plan = state.plan and state.plan.model_copy(update={"approvals": ()})
    return state.model_copy(update={"halted": halted, "plan": plan, "failing_since": None})
