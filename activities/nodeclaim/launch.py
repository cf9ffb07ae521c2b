"""Launching: freeze a request, call CreateFleet with the group's token, hand out what came.

The request is returned to a workflow before anything is bought, so that a repeated call says the same. Who gets which
instance is in `handing_out.py`.

What CreateFleet's errors come to for a NodeClaim, and how failed launches are counted. Pure but for the counter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from temporalio import activity

from activities.nodeclaim.instance_assignment import HandingOut, launch_shown
from activities.ports.core import Claims, Events, Fleet, Instances, LaunchFacts, Machines, NodeClasses, claim_of
from activities.runtime import each, faults_mapped, heartbeating
from activities.workflow_client import Lives
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import Fault, TryLater
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import (
    DELETED,
    FleetAnswer,
    FleetError,
    GroupOutcome,
    LaunchGroup,
    LaunchPrepared,
    LaunchRefused,
    Member,
    marks_of,
)
from tenure.model.nodeclaim_requests import GroupAsked, GroupRefused, LaunchAsked, Prepared
from tenure.model.signals import GroupAnswered

FAILURES: Final = "karpenter_cloudprovider_instance_launch_failures_total"
_LIMIT: Final = 300
"""Characters of a message."""
_PLACES: Final = 5


def refusal_of(answer: FleetAnswer) -> LaunchRefused:
    """Only capacity is missing: to be had elsewhere, or planned anew. Anything else may pass, and is tried again."""
    worst = next((error for error in answer.errors if not error.insufficient), None)
    if worst is None:
        return LaunchRefused(reason=labels.INSUFFICIENT_CAPACITY, message=_missing(answer.errors))
    said = f"{worst.code}: {worst.message}"[:_LIMIT]
    message = f"{said}; {worst.mend}" if worst.mend else said
    return LaunchRefused(reason=worst.reason or labels.LAUNCH_FAILED, message=message, final=False)


def count_failures(errors: Sequence[FleetError], node_class: EC2NodeClass | None) -> None:
    """One for each error of the answer, by its place; the reason is EC2's code."""
    if not errors:
        return
    counter = activity.metric_meter().create_counter(FAILURES, "Launches that EC2 answered with an error")
    zone_ids = _zone_ids(node_class)
    for error in errors:
        place = {"zone": error.zone, "zone_id": zone_ids.get(error.zone, ""), "capacity_type": error.capacity_type}
        counter.add(1, {**place, "reason": error.code})


def _missing(errors: Sequence[FleetError]) -> str:
    places = sorted({f"{error.code} {error.instance_type} {error.zone}".strip() for error in errors})
    if not places:
        return "EC2 gave fewer instances than asked"
    more = f"; and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
    mend = next((f"; {error.mend}" for error in errors if error.mend), "")
    return f"{'; '.join(places[:_PLACES])}{more}{mend}"[:_LIMIT]


def _zone_ids(node_class: EC2NodeClass | None) -> Mapping[str, str]:
    return {subnet.zone: subnet.zone_id for subnet in node_class.status.subnets} if node_class else {}


LOOK_EVERY = 5
"""Tries of a call that goes wrong between looks whether anybody still waits for it."""


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
        self._claims, self._node_classes, self._fleet = claims, node_classes, fleet
        self._lives, self._machines = lives, machines
        self._handing_out = HandingOut(claims=claims, instances=instances, events=events, lives=lives)

    @activity.defn
    @faults_mapped
    async def prepare_launch(self, asked: LaunchAsked) -> Prepared:
        """For a NodeClaim that launches itself. The finalizer comes first: from here on there may be an instance.

        Nothing is prepared for one whose status has an instance already."""
        ref = asked.claim
        if not await self._claims.ensure_finalizer(ref.name, ref.uid):
            return Prepared(preparation=_gone(ref.name))
        claim = await self._claims.get(ref.name)
        if claim is None:
            return Prepared(preparation=_gone(ref.name))
        return Prepared() if claim.status.provider_id else await self._prepare(claim, asked)

    @activity.defn
    @faults_mapped
    async def prepare_group(self, asked: GroupAsked) -> Prepared:
        """For a launch group: its members ask for the same thing, so the first that still wants it speaks for all."""
        everyone = asked.again or asked.draft.joined
        found = await self._handing_out.found(asked.draft.members) if everyone else await self._first(asked)
        alive = [claim for claim in found if not claim.metadata.deleting and not claim.status.provider_id]
        if asked.draft.joined:
            alive = await self._with_finalizers(alive)
        if not alive:
            return Prepared(preparation=_gone(asked.draft.group_id), members=())
        prepared = await self._prepare(alive[0], asked)
        members = tuple(Member(name=one.name, uid=one.metadata.uid) for one in alive) if everyone else None
        return prepared.model_copy(update={"members": members})

    async def _with_finalizers(self, claims: Sequence[NodeClaim]) -> list[NodeClaim]:
        """Those that are there still: from here on there may be an instance for each."""
        there = await each(claims, lambda one: self._claims.ensure_finalizer(one.metadata.name, one.metadata.uid))
        return [one for one, stays in zip(claims, there, strict=True) if stays]

    async def _first(self, asked: GroupAsked) -> Sequence[NodeClaim]:
        """At the first attempt all are taken to be there: they were made a moment ago."""
        for member in asked.draft.members:
            found = await self._handing_out.found([member])
            if found and not found[0].metadata.deleting:
                return found
        return []

    async def _prepare(self, claim: NodeClaim, asked: LaunchAsked | GroupAsked) -> Prepared:
        name = claim.spec.node_class_ref.name
        node_class = await self._node_classes.get(name)
        refused = _refuse(name, node_class)
        if refused or node_class is None:
            return Prepared(preparation=refused or _gone(name))
        now = datetime.now(UTC)
        left_out = _not_in_slice(claim, node_class, asked, now)
        prepare = partial(
            self._fleet.prepare, claim, node_class, learnt=await self._machines.learnt(), now=now, again=asked.again
        )
        if left_out:
            preparation = await prepare(unavailable=(*asked.unavailable, *left_out))
            if isinstance(preparation, LaunchPrepared) and preparation.request.capacity_type == labels.SPOT:
                return Prepared(preparation=preparation)
        return Prepared(preparation=await prepare(unavailable=asked.unavailable))

    @activity.defn
    @faults_mapped
    async def launch_alone(self, group: LaunchGroup) -> GroupOutcome:
        """CreateFleet for one; its workflow gets the answer as the activity's result."""
        async with heartbeating():
            return await self._launch(group, tell=False)

    @activity.defn
    @faults_mapped
    async def launch_group(self, group: LaunchGroup) -> GroupOutcome:
        """CreateFleet for all members; each that gets an instance is told by signal."""
        async with heartbeating():
            return await self._launch(group, tell=True)

    @activity.defn
    @faults_mapped
    async def refuse_group(self, refused: GroupRefused) -> None:
        """The group's last word to members that get nothing: each is told why. One that shows an instance is told
        of that."""
        nothing = LaunchRefused(reason=refused.reason, message=refused.message, final=refused.final)
        async with heartbeating():
            members = [Member(name=one.name, uid=one.uid) for one in refused.members]
            found = {claim.uid: claim for claim in await self._handing_out.found(members)}
            for claim in found.values():
                result = launch_shown(claim) if claim.status.provider_id else nothing
                await self._lives.answered(claim, GroupAnswered(group_id=refused.group_id, result=result))
            for member in members:
                if refused.reason == DELETED and member.uid not in found:
                    await self._lives.bereft(member, GroupAnswered(group_id=refused.group_id, result=nothing))

    async def _launch(self, group: LaunchGroup, *, tell: bool) -> GroupOutcome:
        try:
            answer = await self._fleet.create(group)
        except Fault as fault:
            answer = await self._unless_nobody_waits(group, fault)
        try:
            return await self._hand_out(group, answer, tell=tell)
        except Fault as fault:
            if fault.retryable or not answer.instances:
                raise
            # Giving up here would leave instances that nobody knows of, and a new attempt would buy them again.
            raise TryLater(f"instances run and cannot be handed out: {fault.message}", code=fault.code) from fault

    async def _unless_nobody_waits(self, group: LaunchGroup, fault: Fault) -> FleetAnswer:
        """Raise the fault, so that the call is repeated; with all members gone, what it may have made is looked up."""
        if activity.info().attempt % LOOK_EVERY or await self._first_of(group.members):
            raise fault
        return await self._fleet.find(group)

    async def _hand_out(self, group: LaunchGroup, answer: FleetAnswer, *, tell: bool) -> GroupOutcome:
        node_class = await self._node_classes.get(group.request.node_class)
        refused = refusal_of(answer)
        facts = await self._facts(answer, group, node_class)
        results = await self._handing_out.all(group, answer, facts, refused, tell=tell)
        count_failures(answer.errors, node_class)
        without = {uid for uid, result in results.items() if isinstance(result, LaunchRefused)}
        members = sorted(group.members, key=lambda member: member.uid)
        return GroupOutcome(
            group_id=group.group_id,
            results={} if tell else results,
            refused=tuple(member for member in members if member.uid in without),
            refusal=refused if without else None,
            unavailable=_with_zones(marks_of(answer.errors, group.request.node_class, datetime.now(UTC)), node_class),
        )

    async def _facts(
        self, answer: FleetAnswer, group: LaunchGroup, node_class: EC2NodeClass | None
    ) -> Sequence[LaunchFacts]:
        """One claim speaks for all: they asked for the same thing. With none left, there is nothing to show."""
        claim = await self._first_of(group.members) if answer.instances else None
        if claim is None:
            return ()
        if node_class is None:
            if activity.info().attempt >= LOOK_EVERY:
                return ()
            raise TryLater(f"EC2NodeClass {group.request.node_class} is gone while instances of it were launched")
        learnt = await self._machines.learnt()
        return await self._fleet.describe(answer, node_class, claim, learnt=learnt)

    async def _first_of(self, members: Sequence[Member]) -> NodeClaim | None:
        for member in members:
            claim = await claim_of(self._claims, member.name, member.uid)
            if claim is not None:
                return claim
        return None


def _refuse(name: str, node_class: EC2NodeClass | None) -> LaunchRefused | None:
    """A NodeClass that is not there or says it is not ready ends the launch (reference 3.2)."""
    if node_class is None or node_class.metadata.deleting:
        return LaunchRefused(reason="NodeClassNotReady", message=f"EC2NodeClass {name} is not there or is going")
    ready = next((one for one in node_class.status.conditions if one.type == labels.READY), None)
    if ready is not None and ready.is_true:
        if ready.observed_generation in (0, node_class.metadata.generation):
            return None
        now = node_class.metadata.generation
        said = f"its status is that of generation {ready.observed_generation}, not yet of {now}"
        return LaunchRefused(reason="NodeClassNotReady", message=f"EC2NodeClass {name}: {said}", final=False)
    said = f"{ready.reason} {ready.message}".strip() if ready else "its status is not known yet"
    final = ready is not None and ready.is_false
    return LaunchRefused(reason="NodeClassNotReady", message=f"EC2NodeClass {name}: {said}", final=final)


def _not_in_slice(
    claim: NodeClaim, node_class: EC2NodeClass, asked: LaunchAsked | GroupAsked, now: datetime
) -> tuple[UnavailableOffering, ...]:
    """What a storm's launch group leaves to others at its first attempt."""
    pool_slice = asked.draft.pool_slice if isinstance(asked, GroupAsked) and not asked.again else None
    if pool_slice is None:
        return ()
    named = (one.values for one in claim.spec.requirements if one.key == labels.INSTANCE_TYPE and one.operator == "In")
    return pool_slice.leaves_out(next(named, ()), {one.zone for one in node_class.status.subnets}, now)


def _with_zones(
    marks: Sequence[UnavailableOffering], node_class: EC2NodeClass | None
) -> tuple[UnavailableOffering, ...]:
    """Where a full subnet is its class's only one in a zone, plans leave out the zone: they know of no subnets."""
    zones = Counter(subnet.zone for subnet in node_class.status.subnets) if node_class else Counter[str]()
    alone = [mark for mark in marks if mark.subnet_id and zones[mark.zone] == 1]
    return (*marks, *(mark.model_copy(update={"subnet_id": ""}) for mark in alone))


def _gone(name: str) -> LaunchRefused:
    return LaunchRefused(reason="NodeClaimGone", message=f"{name} is not there any more")
