"""Assignment of a launch group's instances: each is first written to its NodeClaim, then signaled to its workflow.

Members are sorted by UID, and instances are in EC2's order, so a retry makes the same assignments. A NodeClaim keeps an
instance that is already in its status, also if a repeated response has another order.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from temporalio import activity

from activities.ports.core import Claims, ConditionPatch, LaunchFacts, Ports, find_nodeclaim, publish_event_on
from activities.runtime import call_for_each
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import format_resources
from tenure.clock import utc_now
from tenure.model.base import instance_id_of
from tenure.model.launch import (
    FleetInstance,
    FleetResult,
    LaunchedInstance,
    LaunchGroup,
    LaunchGroupMember,
    LaunchRejection,
    LaunchResult,
)
from tenure.model.signals import GroupResult

LAUNCHED = (
    ConditionPatch(type=labels.LAUNCHED, status="True"),
    ConditionPatch(type=labels.REGISTERED_CONDITION, status="Unknown", reason=labels.NODE_NOT_FOUND),
    ConditionPatch(type=labels.INITIALIZED_CONDITION, status="Unknown", reason=labels.NODE_NOT_FOUND),
)


async def write_launched(claims: Claims, name: str, uid: str, facts: LaunchFacts, *, now: datetime) -> NodeClaim | None:
    """Write labels, status and conditions (reference 3.2 to 3.4). Existing labels are kept. None if the NodeClaim is
    gone."""
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


def launched_from_status(claim: NodeClaim) -> LaunchedInstance:
    """For a NodeClaim with an instance in its status."""
    return LaunchedInstance(
        claim_uid=claim.uid,
        provider_id=claim.status.provider_id,
        instance_type=claim.instance_type,
        zone=claim.zone,
        capacity_type=claim.capacity_type,
        image_id=claim.status.image_id,
    )


_Assignment = tuple[FleetInstance, LaunchFacts]


class InstanceAssigner:
    def __init__(self, ports: Ports) -> None:
        self._claims, self._instances, self._events = ports.claims, ports.instances, ports.events
        self._workflows = ports.workflows

    async def assign_all(
        self,
        group: LaunchGroup,
        fleet_result: FleetResult,
        facts: Sequence[LaunchFacts],
        rejection: LaunchRejection,
        *,
        notify: bool,
    ) -> dict[str, LaunchResult]:
        """Assign instances to the existing members. Returns results by UID.

        `facts`: empty if no member exists. `rejection`: for members without an instance. Their workflows receive no
        signal, since another attempt may follow.
        """
        members = sorted(group.members, key=lambda member: member.uid)
        assigned = await self._find_assigned(members) if _may_be_repeated(group) else {}
        assignments = _assign_instances(
            members, list(zip(fleet_result.instances, facts, strict=True)) if facts else [], assigned
        )

        async def assign_instance(member: LaunchGroupMember) -> LaunchResult | None:
            """None if the NodeClaim is gone; its instance is terminated immediately."""
            assignment = assignments.get(member.uid)
            result: LaunchResult = _build_launched(group, member, *assignment) if assignment else rejection
            facts = assignment[1] if assignment else None
            claim = assigned.get(member.uid) or await self._write_result(group, member, rejection, facts)
            if claim is None:
                await self._terminate_instances({assignment[0].instance_id} if assignment else ())
                return None
            result = result if assignment or not claim.status.provider_id else launched_from_status(claim)
            if isinstance(result, LaunchRejection):
                await self._publish_rejection(claim, result)
            elif notify:
                message = GroupResult(group_id=group.group_id, token=group.client_token(), result=result)
                await self._workflows.signal_launch_result(claim, message)
            return result

        results = await call_for_each(members, assign_instance)
        await self._terminate_instances(
            {one.instance_id for one in fleet_result.instances} - {one.instance_id for one, _ in assignments.values()}
        )
        return {member.uid: one for member, one in zip(members, results, strict=True) if one is not None}

    async def find_nodeclaims(self, members: Sequence[LaunchGroupMember]) -> Sequence[NodeClaim]:
        """NodeClaims of the existing members, including terminating ones, in the same order."""
        found = await call_for_each(members, lambda member: find_nodeclaim(self._claims, member.name, member.uid))
        return [claim for claim in found if claim is not None]

    async def _find_assigned(self, members: Sequence[LaunchGroupMember]) -> Mapping[str, NodeClaim]:
        """NodeClaims to which an earlier attempt of this launch assigned an instance, by UID."""
        return {one.metadata.uid: one for one in await self.find_nodeclaims(members) if one.status.provider_id}

    async def _publish_rejection(self, claim: NodeClaim, rejection: LaunchRejection) -> None:
        reason, text = rejection.reason, rejection.message
        if reason == labels.INSUFFICIENT_CAPACITY:
            reason, text = "InsufficientCapacityError", f"NodeClaim {claim.name} event: {text}"
        await publish_event_on(self._events, "NodeClaim", claim, reason, text, warning=True)

    async def _write_result(
        self, group: LaunchGroup, member: LaunchGroupMember, rejection: LaunchRejection, facts: LaunchFacts | None
    ) -> NodeClaim | None:
        """Write the instance or the rejection; None if the NodeClaim is gone. An instance is written only once, since
        the Node may have joined after an earlier attempt."""
        now = utc_now()
        if _may_be_repeated(group):
            claim = await find_nodeclaim(self._claims, member.name, member.uid)
            if claim is not None and claim.status.provider_id:
                return claim
        if facts is not None:
            return await write_launched(self._claims, member.name, member.uid, facts, now=now)
        failed = ConditionPatch(
            type=labels.LAUNCHED, status="Unknown", reason=rejection.reason, message=rejection.message
        )
        return await self._claims.patch(member.name, member.uid, conditions=(failed,), now=now)

    async def _terminate_instances(self, instance_ids: set[str] | tuple[()]) -> None:
        """Concurrent terminations share one call."""
        await asyncio.gather(*(self._instances.terminate(one) for one in sorted(instance_ids)))


def _may_be_repeated(group: LaunchGroup) -> bool:
    """Whether an earlier attempt may have assigned instances. A first attempt does not read each NodeClaim."""
    return group.resumed or activity.info().attempt > 1


def _assign_instances(
    members: Sequence[LaunchGroupMember], available: Sequence[_Assignment], assigned: Mapping[str, NodeClaim]
) -> dict[str, _Assignment]:
    """Assignments by UID: those of an earlier attempt first, then the remaining instances in order."""
    by_id = {instance.instance_id: (instance, facts) for instance, facts in available}
    instance_ids = {uid: instance_id_of(assigned[uid].status.provider_id) for uid in sorted(assigned)}
    assignments = {uid: by_id.pop(one) for uid, one in instance_ids.items() if one in by_id}
    waiting = [member.uid for member in members if member.uid not in assignments and member.uid not in assigned]
    return {**assignments, **dict(zip(waiting, by_id.values(), strict=False))}


def _build_launched(
    group: LaunchGroup, member: LaunchGroupMember, instance: FleetInstance, facts: LaunchFacts
) -> LaunchedInstance:
    return LaunchedInstance(
        claim_uid=member.uid,
        provider_id=facts.provider_id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        image_id=facts.image_id,
        price=_override_price(group, instance),
    )


def _override_price(group: LaunchGroup, instance: FleetInstance) -> float:
    """The price of the override that EC2 chose; 0 if none matches."""
    key = (instance.instance_type, instance.zone, instance.reservation_id)
    found = (one for one in group.request.overrides if (one.instance_type, one.zone, one.reservation_id) == key)
    return next((round(one.priority, 6) for one in found), 0.0)
