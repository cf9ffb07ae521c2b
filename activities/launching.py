"""Launching: freeze a request, call CreateFleet with the group's token, write down whose instance is whose.

The request is returned to a workflow before anything is bought, so that a repeated call says the same. Hand-out is
in a recorded order: members by UID, instances as EC2 listed them.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from activities.lives import Lives
from activities.ports import Claims, ConditionPatch, Events, Fleet, Instances, LaunchFacts, Machines, NodeClasses
from activities.writing import show_launched
from model import labels
from model.catalogue import UnavailableOffering
from model.faults import Fault, TryLater
from model.kinds import EC2NodeClass, NodeClaim
from model.launches import (
    FleetAnswer,
    FleetError,
    GroupOutcome,
    Launched,
    LaunchGroup,
    LaunchRefused,
    LaunchResult,
    Member,
)
from model.messages import GroupAnswered
from model.plans import LaunchDraft
from model.steps import ClaimRef, GroupRefused, Prepared

UNAVAILABLE_FOR = timedelta(minutes=3)
"""How long an offering that EC2 could not fill is not asked for again (reference 2.3)."""
AT_ONCE = 16
"""Status writes under way together."""


class LaunchActivities:
    def __init__(
        self,
        *,
        claims: Claims,
        node_classes: NodeClasses,
        fleet: Fleet,
        instances: Instances,
        events: Events,
        lives: Lives,
        machines: Machines,
    ) -> None:
        self._machines = machines
        self._claims, self._node_classes, self._fleet = claims, node_classes, fleet
        self._instances, self._events, self._lives = instances, events, lives

    @activity.defn
    @faults_mapped
    async def prepare_launch(self, ref: ClaimRef) -> Prepared:
        """For a NodeClaim that launches itself. The finalizer comes first: from here on there may be an instance.

        Nothing is prepared for one whose status has an instance already."""
        if not await self._claims.ensure_finalizer(ref.name, ref.uid):
            return Prepared(preparation=_gone(ref.name))
        claim = await self._claims.get(ref.name)
        if claim is None:
            return Prepared(preparation=_gone(ref.name))
        return Prepared() if claim.status.provider_id else await self._prepare(claim)

    @activity.defn
    @faults_mapped
    async def prepare_group(self, draft: LaunchDraft) -> Prepared:
        """For a launch group: its members ask for the same thing, so the first that is still there speaks for all."""
        claim = await self._first_of(draft.members)
        return Prepared(preparation=_gone(draft.group_id)) if claim is None else await self._prepare(claim)

    async def _prepare(self, claim: NodeClaim) -> Prepared:
        name = claim.spec.node_class_ref.name
        node_class = await self._node_classes.get(name)
        refused = _refuse(name, node_class)
        if refused or node_class is None:
            return Prepared(preparation=refused or _gone(name))
        learnt = await self._machines.learnt()
        now = datetime.now(UTC)
        return Prepared(preparation=await self._fleet.prepare(claim, node_class, learnt=learnt, now=now))

    @activity.defn
    @faults_mapped
    async def launch_alone(self, group: LaunchGroup) -> GroupOutcome:
        """CreateFleet for one; its workflow gets the answer as the activity's result."""
        async with heartbeating():
            return await self._launch(group, tell=False)

    @activity.defn
    @faults_mapped
    async def launch_group(self, group: LaunchGroup) -> GroupOutcome:
        """CreateFleet for all members; each member's workflow is told by signal."""
        async with heartbeating():
            return await self._launch(group, tell=True)

    @activity.defn
    @faults_mapped
    async def refuse_group(self, refused: GroupRefused) -> None:
        """No request could be made: tell each member why."""
        result = LaunchRefused(reason=refused.reason, message=refused.message, final=refused.final)
        async with heartbeating():
            for member in refused.members:
                claim = await self._claims.get(member.name)
                if claim is not None and claim.metadata.uid == member.uid:
                    await self._lives.answered(claim, GroupAnswered(group_id=refused.group_id, result=result))

    async def _launch(self, group: LaunchGroup, *, tell: bool) -> GroupOutcome:
        answer = await self._fleet.create(group)
        try:
            return await self._hand_out(group, answer, tell=tell)
        except Fault as fault:
            if fault.retryable or not answer.instances:
                raise
            # Giving up here would leave instances that nobody knows of, and a new attempt would buy them again.
            raise TryLater(f"instances run and cannot be handed out: {fault.message}", code=fault.code) from fault

    async def _hand_out(self, group: LaunchGroup, answer: FleetAnswer, *, tell: bool) -> GroupOutcome:
        members = sorted(group.members, key=lambda member: member.uid)
        facts = await self._facts(answer, group)
        room = asyncio.Semaphore(AT_ONCE)

        async def hand(index: int, member: Member) -> LaunchResult:
            async with room:
                found = facts[index] if index < len(facts) else None
                result = _launched(answer, index, member, found) if found else _refused(answer)
                await self._write_down(group, member, result, found, tell=tell)
                return result

        results = await asyncio.gather(*(hand(index, member) for index, member in enumerate(members)))
        for spare in answer.instances[len(members) if facts else 0 :]:
            await self._instances.terminate(spare.instance_id)
        return GroupOutcome(
            group_id=group.group_id,
            results={member.uid: result for member, result in zip(members, results, strict=True)},
            unavailable=_unavailable(answer.errors, datetime.now(UTC)),
        )

    async def _facts(self, answer: FleetAnswer, group: LaunchGroup) -> Sequence[LaunchFacts]:
        """One claim speaks for all: they asked for the same thing. With none left, there is nothing to show."""
        if not answer.instances:
            return ()
        claim = await self._first_of(group.members)
        if claim is None:
            return ()
        node_class = await self._node_classes.get(group.request.node_class)
        if node_class is None:
            raise TryLater(f"EC2NodeClass {group.request.node_class} is gone while instances of it were launched")
        learnt = await self._machines.learnt()
        return await self._fleet.describe(answer, node_class, claim, learnt=learnt)

    async def _first_of(self, members: Sequence[Member]) -> NodeClaim | None:
        for member in members:
            claim = await self._claims.get(member.name)
            if claim is not None and claim.metadata.uid == member.uid:
                return claim
        return None

    async def _write_down(
        self, group: LaunchGroup, member: Member, result: LaunchResult, facts: LaunchFacts | None, *, tell: bool
    ) -> None:
        """The NodeClaim first, its workflow second; an instance whose NodeClaim is gone is ended at once."""
        claim = await self._show(member, result, facts)
        if claim is None:
            if isinstance(result, Launched):
                await self._instances.terminate(result.provider_id.rpartition("/")[2])
            return
        if isinstance(result, LaunchRefused):
            await self._say_refused(claim, result)
        if tell:
            answer = GroupAnswered(group_id=group.group_id, token=group.token(), result=result)
            await self._lives.answered(claim, answer)

    async def _show(self, member: Member, result: LaunchResult, facts: LaunchFacts | None) -> NodeClaim | None:
        """Write the answer onto the NodeClaim; None when it is gone.

        Once: its Node may have joined since an earlier try wrote it."""
        now = datetime.now(UTC)
        if activity.info().attempt > 1 and (known := await self._first_of((member,))) and known.status.provider_id:
            return known
        if facts is None or isinstance(result, LaunchRefused):
            return await self._claims.patch(member.name, member.uid, conditions=(_not_launched(result),), now=now)
        return await show_launched(self._claims, member.name, member.uid, facts, now=now)

    async def _say_refused(self, claim: NodeClaim, result: LaunchRefused) -> None:
        await self._events.publish(
            kind="NodeClaim",
            name=claim.metadata.name,
            uid=claim.metadata.uid,
            reason="InsufficientCapacityError" if result.reason == "InsufficientCapacity" else result.reason,
            message=result.message,
            warning=True,
        )


def _not_launched(result: LaunchResult) -> ConditionPatch:
    said = result if isinstance(result, LaunchRefused) else LaunchRefused(reason=labels.LAUNCH_FAILED)
    return ConditionPatch(type=labels.LAUNCHED, status="Unknown", reason=said.reason, message=said.message)


def _launched(answer: FleetAnswer, index: int, member: Member, facts: LaunchFacts) -> Launched:
    instance = answer.instances[index]
    return Launched(
        claim_uid=member.uid,
        provider_id=facts.provider_id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        image_id=facts.image_id,
    )


def _refused(answer: FleetAnswer) -> LaunchRefused:
    """Only capacity is missing: plan anew elsewhere. Anything else may pass: the workflow tries again."""
    if not answer.errors or all(error.insufficient for error in answer.errors):
        message = "; ".join(
            sorted({f"{error.code} {error.instance_type} {error.zone}".strip() for error in answer.errors})
        )
        return LaunchRefused(
            reason="InsufficientCapacity", message=message[:300] or "EC2 gave fewer instances than asked"
        )
    worst = next(error for error in answer.errors if not error.insufficient)
    return LaunchRefused(reason=labels.LAUNCH_FAILED, message=f"{worst.code}: {worst.message}"[:300], final=False)


def _refuse(name: str, node_class: EC2NodeClass | None) -> LaunchRefused | None:
    """A NodeClass that is not there or says it is not ready ends the launch (reference 3.2)."""
    if node_class is None or node_class.metadata.deleting:
        return LaunchRefused(reason="NodeClassNotReady", message=f"EC2NodeClass {name} is not there or is going")
    ready = next((one for one in node_class.status.conditions if one.type == labels.READY), None)
    if ready is not None and ready.is_true:
        return None
    said = f"{ready.reason} {ready.message}".strip() if ready else "its status is not known yet"
    final = ready is not None and ready.is_false
    return LaunchRefused(reason="NodeClassNotReady", message=f"EC2NodeClass {name}: {said}", final=final)


def _gone(name: str) -> LaunchRefused:
    return LaunchRefused(reason="NodeClaimGone", message=f"{name} is not there any more")


def _unavailable(errors: Sequence[FleetError], now: datetime) -> tuple[UnavailableOffering, ...]:
    marks = {
        (error.instance_type or "*", error.zone or "*", error.capacity_type): error.code
        for error in errors
        if error.insufficient and error.capacity_type
    }
    return tuple(
        UnavailableOffering(
            instance_type=type_, zone=zone, capacity_type=capacity, until=now + UNAVAILABLE_FOR, reason=code
        )
        for (type_, zone, capacity), code in sorted(marks.items())
    )
