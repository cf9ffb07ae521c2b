"""Who gets which instance of a launch group, and writing it down: the NodeClaim first, its workflow second.

In a recorded order, members by UID and instances as EC2 listed them, so that a repeated hand-out gives everyone the
same. What a NodeClaim shows already stands, whatever order a repeated answer has.

How a launched instance is written onto its NodeClaim, and read back: by a launch, or by a look back.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from temporalio import activity

from activities.ports.core import Claims, ConditionPatch, Events, Instances, LaunchFacts, claim_of
from activities.runtime import each
from activities.workflow_client import Lives
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import format_resources
from tenure.model.launch import FleetAnswer, FleetInstance, Launched, LaunchGroup, LaunchRefused, LaunchResult, Member
from tenure.model.signals import GroupAnswered

LAUNCHED = (
    ConditionPatch(type=labels.LAUNCHED, status="True"),
    ConditionPatch(type=labels.REGISTERED_CONDITION, status="Unknown", reason=labels.NODE_NOT_FOUND),
    ConditionPatch(type=labels.INITIALIZED_CONDITION, status="Unknown", reason=labels.NODE_NOT_FOUND),
)


async def show_launched(claims: Claims, name: str, uid: str, facts: LaunchFacts, *, now: datetime) -> NodeClaim | None:
    """Labels, status and conditions (reference 3.2 to 3.4); the NodeClaim's own labels win. None when it is gone."""
    return await claims.patch(
        name,
        uid,
        default_labels=facts.labels,
        annotations=facts.annotations,
        status={
            "providerID": facts.provider_id,
            "imageID": facts.image_id,
            "capacity": format_resources(facts.capacity),
            "allocatable": format_resources(facts.allocatable),
        },
        conditions=LAUNCHED,
        now=now,
    )


def launch_shown(claim: NodeClaim) -> Launched:
    """Of one that shows an instance."""
    return Launched(
        claim_uid=claim.uid,
        provider_id=claim.status.provider_id,
        instance_type=claim.instance_type,
        zone=claim.zone,
        capacity_type=claim.capacity_type,
        image_id=claim.status.image_id,
    )


_Gift = tuple[FleetInstance, LaunchFacts]


class HandingOut:
    def __init__(self, *, claims: Claims, instances: Instances, events: Events, lives: Lives) -> None:
        self._claims, self._instances, self._events, self._lives = claims, instances, events, lives

    async def all(
        self,
        group: LaunchGroup,
        answer: FleetAnswer,
        facts: Sequence[LaunchFacts],
        refused: LaunchRefused,
        *,
        tell: bool,
    ) -> dict[str, LaunchResult]:
        """By UID, those that are still there. Without facts there is nobody left to have the instances.

        `refused`: for those that get none; their workflows are not told, since another attempt may follow."""
        members = sorted(group.members, key=lambda member: member.uid)
        held = await self._held(members)
        given = _assigned(members, list(zip(answer.instances, facts, strict=True)) if facts else [], held)

        async def hand(member: Member) -> LaunchResult | None:
            gift = given.get(member.uid)
            return await self._hand(group, member, gift, refused, held=held.get(member.uid), tell=tell)

        results = await each(members, hand)
        await self._end({one.instance_id for one in answer.instances} - {one.instance_id for one, _ in given.values()})
        return {member.uid: one for member, one in zip(members, results, strict=True) if one is not None}

    async def found(self, members: Sequence[Member]) -> Sequence[NodeClaim]:
        """Those of the members that are there, be it on their way out; in their order."""
        found = await each(members, lambda member: claim_of(self._claims, member.name, member.uid))
        return [claim for claim in found if claim is not None]

    async def _held(self, members: Sequence[Member]) -> Mapping[str, NodeClaim]:
        """By UID, those that show an instance already: an earlier try of this hand-out wrote it down."""
        if activity.info().attempt == 1:
            return {}
        return {one.metadata.uid: one for one in await self.found(members) if one.status.provider_id}

    async def _hand(
        self,
        group: LaunchGroup,
        member: Member,
        gift: _Gift | None,
        refused: LaunchRefused,
        *,
        held: NodeClaim | None,
        tell: bool,
    ) -> LaunchResult | None:
        """None where the NodeClaim is gone; its instance is ended at once."""
        result: LaunchResult = _launched(group, member, *gift) if gift else refused
        claim = held or await self._show(member, result, gift[1] if gift else None)
        if claim is None:
            await self._end({gift[0].instance_id} if gift else ())
            return None
        result = result if gift or not claim.status.provider_id else launch_shown(claim)
        if isinstance(result, LaunchRefused):
            await self._say_refused(claim, result)
        elif tell:
            said = GroupAnswered(group_id=group.group_id, token=group.token(), result=result)
            await self._lives.answered(claim, said)
        return result

    async def _show(self, member: Member, result: LaunchResult, facts: LaunchFacts | None) -> NodeClaim | None:
        """Write the answer onto the NodeClaim; None when it is gone.

        Once: its Node may have joined since an earlier try wrote it."""
        now = datetime.now(UTC)
        if activity.info().attempt > 1:
            claim = await claim_of(self._claims, member.name, member.uid)
            if claim is not None and claim.status.provider_id:
                return claim
        if facts is None or isinstance(result, LaunchRefused):
            return await self._claims.patch(member.name, member.uid, conditions=(_not_launched(result),), now=now)
        return await show_launched(self._claims, member.name, member.uid, facts, now=now)

    async def _say_refused(self, claim: NodeClaim, result: LaunchRefused) -> None:
        await self._events.publish(
            kind="NodeClaim",
            name=claim.metadata.name,
            uid=claim.metadata.uid,
            reason="InsufficientCapacityError" if result.reason == labels.INSUFFICIENT_CAPACITY else result.reason,
            message=result.message,
            warning=True,
        )

    async def _end(self, instance_ids: set[str] | tuple[()]) -> None:
        """Asked for together, they are one call."""
        await asyncio.gather(*(self._instances.terminate(one) for one in sorted(instance_ids)))


def _assigned(members: Sequence[Member], gifts: Sequence[_Gift], held: Mapping[str, NodeClaim]) -> dict[str, _Gift]:
    """By UID. What was written down first, the rest in order."""
    by_id = {instance.instance_id: (instance, facts) for instance, facts in gifts}
    shown = {uid: _instance_id(held[uid].status.provider_id) for uid in sorted(held)}
    given = {uid: by_id.pop(one) for uid, one in shown.items() if one in by_id}
    waiting = [member.uid for member in members if member.uid not in given and member.uid not in held]
    return {**given, **dict(zip(waiting, by_id.values(), strict=False))}


def _not_launched(result: LaunchResult) -> ConditionPatch:
    said = result if isinstance(result, LaunchRefused) else LaunchRefused(reason=labels.LAUNCH_FAILED)
    return ConditionPatch(type=labels.LAUNCHED, status="Unknown", reason=said.reason, message=said.message)


def _launched(group: LaunchGroup, member: Member, instance: FleetInstance, facts: LaunchFacts) -> Launched:
    return Launched(
        claim_uid=member.uid,
        provider_id=facts.provider_id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        image_id=facts.image_id,
        price=_price(group, instance),
    )


def _price(group: LaunchGroup, instance: FleetInstance) -> float:
    """Of the override that EC2 chose; 0 where none is it."""
    key = (instance.instance_type, instance.zone, instance.reservation_id)
    found = (one for one in group.request.overrides if (one.instance_type, one.zone, one.reservation_id) == key)
    return next((round(one.priority, 6) for one in found), 0.0)


def _instance_id(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]
