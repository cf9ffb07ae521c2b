"""Plans of waves for approval, the target of a rollout, and the images of a rollback."""

from datetime import datetime

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodepool_hash
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.model.rollout import (
    Approval,
    ApproveRollout,
    GateResult,
    Image,
    RejectRollout,
    RolloutHalt,
    RolloutPlan,
    RolloutState,
    RolloutTarget,
    short_digest,
)
from tenure.policy.disruption.budgets import share_of
from tenure.policy.rollout.rules import Rules


def plan_wave(
    pool: str, state: RolloutState, target: RolloutTarget, rules: Rules, size: int, now: datetime
) -> RolloutPlan:
    """The plan of the current wave. A plan that has expired, or whose number of nodes has changed too much, is replaced
    and its approvals are void."""
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


def plan_id(pool: str, state: RolloutState, target: RolloutTarget) -> str:
    """Derived from the NodePool, the target, the wave and the number of plans, so it is the same for the same state."""
    return f"{pool}-{short_digest([pool, target.id, state.wave, state.plans])[:6]}"


def target_of(pool: NodePool, node_class: EC2NodeClass | None) -> RolloutTarget | None:
    """None until the current generation of the EC2NodeClass is resolved, since its status is outdated until then.

    Raises DurationError for an invalid duration in the NodePool's template.
    """
    if node_class is None or node_class.metadata.is_deleting or not node_class.status.amis:
        return None
    ready, stamps = node_class.condition(labels.READY), node_class.metadata.annotations
    if ready is None or ready.observed_generation != node_class.metadata.generation:
        return None
    if stamps.get(labels.NODECLASS_HASH_VERSION) != HASH_VERSION:
        return None
    images = (
        Image(id=one.id, requirements=" ".join(sorted(short_digest(need.to_object()) for need in one.requirements)))
        for one in node_class.status.amis
    )
    return RolloutTarget(
        pool=nodepool_hash(pool),
        requirements=short_digest(
            sorted(short_digest(one.to_object()) for one in pool.spec.template.spec.requirements)
        ),
        node_class=node_class.name,
        class_hash=stamps.get(labels.NODECLASS_HASH, ""),
        images=tuple(sorted(images, key=lambda one: (one.requirements, one.id))),
        groups=tuple(sorted(one.id for one in node_class.status.security_groups)),
    )


def is_made_of(claim: NodeClaim, target: RolloutTarget) -> bool:
    """Compare hash annotations and image. A missing hash, or one of another version, is no difference."""
    stamps = claim.metadata.annotations
    for value, version, expected in (
        (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION, target.pool),
        (labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION, target.class_hash),
    ):
        if stamps.get(version) == HASH_VERSION and stamps.get(value, expected) != expected:
            return False
    image = claim.status.image_id
    return not image or image in {one.id for one in target.images}


def images_back(state: RolloutState) -> tuple[dict[str, str], str]:
    """By current image, the last good image; or without images, why a rollback is not possible."""
    if state.good is None or state.target is None:
        return {}, "the last good state is unknown"
    changed = state.target.changed_from(state.good)
    if changed != ("the image",):
        return {}, f"more than the image has changed: {' and '.join(changed) or 'nothing'}"
    good = {one.requirements: one.id for one in state.good.images}
    back = {
        one.id: good[one.requirements] for one in state.target.images if good.get(one.requirements, one.id) != one.id
    }
    return back, "" if back else "these nodes had no earlier image"


def record_grants(state: RolloutState, uids: tuple[str, ...], now: datetime) -> RolloutState:
    if state.target is None or state.finished or not uids:
        return state
    moving = tuple(dict.fromkeys((*state.moving, *uids)))
    return state.model_copy(update={"moving": moving, "granted_at": now})


def record_gate_results(state: RolloutState, results: tuple[GateResult, ...]) -> RolloutState:
    new = {one.gate for one in results}
    retained = tuple(one for one in state.gate_results if one.gate not in new)
    return state.model_copy(update={"gate_results": (*retained, *results)})


def rejection_reason(state: RolloutState, request: ApproveRollout | RejectRollout, now: datetime) -> str:
    if not request.by.strip():
        return "by: empty, expected the name of the requester"
    plan, halted = state.plan, state.halted
    current = halted.plan if halted else plan.id if plan and not state.finished else ""
    if request.plan != current:
        listed = "no rollout is in progress; `tenure stuck` lists pending approvals"
        waits = f"the current plan is {current}" if current else listed
        return f"plan {request.plan!r} is unknown or outdated: {waits}"
    if halted is None and plan is not None and plan.approvers and now >= plan.until:
        expired = f"plan {request.plan} expired at {plan.until.isoformat(timespec='minutes')}"
        return f"{expired}: an event of its NodePool names the new plan"
    if isinstance(request, RejectRollout) and request.roll_back:
        back, no_way = images_back(state)
        return "" if back else f"plan {request.plan} cannot be rolled back: {no_way}; restore the earlier spec"
    return ""


def approve(state: RolloutState, request: ApproveRollout, now: datetime) -> RolloutState:
    changes: dict[str, object] = {}
    if state.halted is not None:
        changes = {
            "halted": None,
            "failing_since": None,
            "soaking_since": None,
            "counted_from": now,
            "gate_results": (),
        }
    plan = state.plan
    if plan is not None and plan.id == request.plan and plan.approvers:
        others = tuple(one for one in plan.approvals if one.by != request.by)
        agreed = plan.model_copy(
            update={"approvals": (*others, Approval(by=request.by.strip(), at=now, reason=request.reason))}
        )
        changes["plan"] = agreed.model_copy(update={"until": now + plan.lasts}) if agreed.is_approved else agreed
    return state.model_copy(update=changes)


def reject(state: RolloutState, request: RejectRollout, now: datetime) -> RolloutState:
    halted = RolloutHalt(
        why=request.reason, since=now, plan=request.plan, by=request.by.strip(), rolling_back=request.roll_back
    )
    plan = state.plan and state.plan.model_copy(update={"approvals": ()})
    return state.model_copy(update={"halted": halted, "plan": plan, "failing_since": None})
