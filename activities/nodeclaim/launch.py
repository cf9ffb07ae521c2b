"""Launch: build a request, call CreateFleet with the group's client token, assign the instances
(`instance_assignment.py`).

The request is returned to the workflow before CreateFleet is called, so that a retry repeats the same call.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final

from temporalio import activity

from activities.nodeclaim.instance_assignment import InstanceAssigner, launched_from_status
from activities.ports.core import LaunchFacts, Ports, find_nodeclaim
from activities.runtime import background_heartbeat, call_for_each, map_faults
from tenure import metrics
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.errors import Fault, Forbidden, TryLater
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import (
    DELETED,
    REPEATED_FAILURES,
    FleetError,
    FleetResult,
    GroupOutcome,
    LaunchGroup,
    LaunchGroupMember,
    LaunchRejection,
    PreparedLaunchRequest,
    list_unavailable_offerings,
)
from tenure.model.nodeclaim.requests import (
    GroupLaunchRequest,
    GroupRejection,
    NodeClaimLaunchRequest,
    PreparationResult,
)
from tenure.model.signals import GroupResult, LaunchError

_MESSAGE_MAX_CHARS: Final = 300
_MAX_LISTED: Final = 5


def rejection_for(fleet_result: FleetResult) -> LaunchRejection:
    """The rejection of members without an instance. It is final if only capacity is missing: the NodeClaim launches
    with other offerings, or its pods are rescheduled. Other errors are retried."""
    worst = next((error for error in fleet_result.errors if not error.insufficient), None)
    if worst is None:
        return LaunchRejection(
            reason=labels.INSUFFICIENT_CAPACITY, message=_describe_missing_capacity(fleet_result.errors)
        )
    text = f"{worst.code}: {worst.message}"[:_MESSAGE_MAX_CHARS]
    message = f"{text}; {worst.remedy}" if worst.remedy else text
    return LaunchRejection(reason=worst.reason or labels.LAUNCH_FAILED, message=message, final=False)


def count_failures(errors: Sequence[FleetError], node_class: EC2NodeClass | None) -> None:
    """Count each error of the response by zone and capacity type, with EC2's code as reason."""
    zone_ids = _zone_ids(node_class)
    for error in errors:
        metrics.CLOUDPROVIDER_INSTANCE_LAUNCH_FAILURES.record(
            activity.metric_meter(),
            zone=error.zone,
            zone_id=zone_ids.get(error.zone, ""),
            capacity_type=error.capacity_type,
            reason=error.code,
        )


def _describe_missing_capacity(errors: Sequence[FleetError]) -> str:
    offerings = sorted({f"{error.code} {error.instance_type} {error.zone}".strip() for error in errors})
    if not offerings:
        return "EC2 returned fewer instances than requested"
    more = f"; and {len(offerings) - _MAX_LISTED} more" if len(offerings) > _MAX_LISTED else ""
    fix = next((f"; {error.remedy}" for error in errors if error.remedy), "")
    return f"{'; '.join(offerings[:_MAX_LISTED])}{more}{fix}"[:_MESSAGE_MAX_CHARS]


def _zone_ids(node_class: EC2NodeClass | None) -> Mapping[str, str]:
    return {subnet.zone: subnet.zone_id for subnet in node_class.status.subnets} if node_class else {}


ATTEMPTS_PER_CHECK = 3
"""Failed attempts of a call between reports of the error, and checks whether a member still exists."""
MAX_ATTEMPTS_WITHOUT_NODECLASS = 5
"""Attempts to read the EC2NodeClass of instances that were launched."""


class LaunchActivities:
    def __init__(self, ports: Ports) -> None:
        self._claims, self._node_classes, self._fleet = ports.claims, ports.node_classes, ports.fleet
        self._workflows = ports.workflows
        self._assigner = InstanceAssigner(ports)

    @activity.defn
    @map_faults
    async def prepare_launch(self, request: NodeClaimLaunchRequest) -> PreparationResult:
        """Prepare an individual launch. The finalizer is set first, since an instance may exist from here on.

        Prepares no request if the NodeClaim's status already has an instance.
        """
        ref = request.claim
        async with self._reporting([LaunchGroupMember(name=ref.name, uid=ref.uid)]):
            return await self._prepare_one(request)

    async def _prepare_one(self, request: NodeClaimLaunchRequest) -> PreparationResult:
        ref = request.claim
        exists = await self._claims.ensure_finalizer(ref.name, ref.uid)
        claim = await self._claims.get(ref.name) if exists else None
        if claim is None:
            return PreparationResult(preparation=_deleted_rejection(ref.name))
        return PreparationResult() if claim.status.provider_id else await self._prepare_request(claim, request)

    @activity.defn
    @map_faults
    async def prepare_launch_group(self, request: GroupLaunchRequest) -> PreparationResult:
        """Prepare a launch group from its first member that can launch, since all members have equal specs."""
        draft = request.draft
        async with self._reporting(draft.members, draft.failures):
            prepared = await self._prepare_group(request)
        if isinstance(prepared.preparation, LaunchRejection):
            await self._report_if_repeated(draft.members, prepared.preparation, draft.failures)
        return prepared

    async def _prepare_group(self, request: GroupLaunchRequest) -> PreparationResult:
        reads_all = request.retry or request.draft.joined
        found = (
            await self._assigner.find_nodeclaims(request.draft.members)
            if reads_all
            else await self._find_first_launchable(request)
        )
        launchable = [claim for claim in found if not claim.metadata.is_deleting and not claim.status.provider_id]
        if request.draft.joined:
            launchable = await self._with_finalizers(launchable)
        if not launchable:
            return PreparationResult(preparation=_deleted_rejection(request.draft.group_id), members=())
        prepared = await self._prepare_request(launchable[0], request)
        members = (
            tuple(LaunchGroupMember(name=one.name, uid=one.metadata.uid) for one in launchable) if reads_all else None
        )
        return prepared.model_copy(update={"members": members})

    async def _with_finalizers(self, claims: Sequence[NodeClaim]) -> list[NodeClaim]:
        """Set the finalizer, since each may have an instance from here on. Returns the NodeClaims that still exist."""
        existing = await call_for_each(
            claims, lambda one: self._claims.ensure_finalizer(one.metadata.name, one.metadata.uid)
        )
        return [one for one, exists in zip(claims, existing, strict=True) if exists]

    async def _find_first_launchable(self, request: GroupLaunchRequest) -> Sequence[NodeClaim]:
        """The first member that can launch. At the first attempt, all others are assumed to exist, since they were just
        created."""
        for member in request.draft.members:
            found = await self._assigner.find_nodeclaims([member])
            if found and not found[0].metadata.is_deleting:
                return found
        return []

    async def _prepare_request(
        self, claim: NodeClaim, request: NodeClaimLaunchRequest | GroupLaunchRequest
    ) -> PreparationResult:
        name = claim.spec.node_class_ref.name
        node_class = await self._node_classes.get(name)
        rejection = _nodeclass_rejection(name, node_class)
        if rejection or node_class is None:
            return PreparationResult(preparation=rejection or _deleted_rejection(name))
        now = utc_now()
        other_shards = _offerings_of_other_shards(claim, node_class, request, now)
        prepare = partial(
            self._fleet.prepare, claim, node_class, discovered=request.discovered, now=now, is_retry=request.retry
        )
        if other_shards:
            preparation = await prepare(unavailable=(*request.unavailable, *other_shards))
            if isinstance(preparation, PreparedLaunchRequest) and preparation.request.capacity_type == labels.SPOT:
                return PreparationResult(preparation=preparation)
        return PreparationResult(preparation=await prepare(unavailable=request.unavailable))

    @activity.defn
    @map_faults
    async def launch_one(self, group: LaunchGroup) -> GroupOutcome:
        """Call CreateFleet for one NodeClaim, whose workflow gets the result of the activity."""
        async with background_heartbeat():
            return await self._create_fleet(group, notify=False)

    @activity.defn
    @map_faults
    async def launch_group(self, group: LaunchGroup) -> GroupOutcome:
        """Call CreateFleet for all members and signal each member that gets an instance."""
        async with background_heartbeat():
            return await self._create_fleet(group, notify=True)

    @activity.defn
    @map_faults
    async def fail_launch_group(self, request: GroupRejection) -> None:
        """Signal the rejection to all members, or the instance to a member whose status has one."""
        rejection = LaunchRejection(reason=request.reason, message=request.message, final=request.final)
        async with background_heartbeat():
            members = [LaunchGroupMember(name=one.name, uid=one.uid) for one in request.members]
            found = {claim.uid: claim for claim in await self._assigner.find_nodeclaims(members)}
            for claim in found.values():
                result = launched_from_status(claim) if claim.status.provider_id else rejection
                await self._workflows.signal_launch_result(claim, GroupResult(group_id=request.group_id, result=result))
            for member in members:
                if request.reason == DELETED and member.uid not in found:
                    await self._workflows.notify_deleted(
                        member, GroupResult(group_id=request.group_id, result=rejection)
                    )

    async def _create_fleet(self, group: LaunchGroup, *, notify: bool) -> GroupOutcome:
        try:
            fleet_result = await self._fleet.create(group)
        except Fault as fault:
            fleet_result = await self._raise_while_awaited(group, fault)
        try:
            outcome = await self._assign_instances(group, fleet_result, notify=notify)
        except Fault as fault:
            if fault.retryable or not fleet_result.instances:
                raise
            # Giving up here would leave orphaned instances, and a new attempt would launch more.
            raise TryLater(f"instances run and could not be assigned: {fault.message}", code=fault.code) from fault
        if notify and outcome.rejection:
            await self._report_if_repeated(outcome.rejected, outcome.rejection, group.failures)
        return outcome

    async def _raise_while_awaited(self, group: LaunchGroup, fault: Fault) -> FleetResult:
        """Raise the fault, so that the call is repeated, and report it to the members. If all members are gone, find
        instances that the call may have launched."""
        if activity.info().attempt % ATTEMPTS_PER_CHECK:
            raise fault
        if not await self._find_first(group.members):
            return await self._fleet.find(group)
        await self._report_error(group.members, _failure_of(fault))
        raise fault

    @asynccontextmanager
    async def _reporting(self, members: Sequence[LaunchGroupMember], failures: int = 0) -> AsyncIterator[None]:
        """Report a fault that repeats to the members. `failures`: attempts of the launch that failed before. A denied
        call is reported at once, since an operator must allow it."""
        try:
            yield
        except Fault as fault:
            if activity.info().attempt % ATTEMPTS_PER_CHECK == 0 or isinstance(fault, Forbidden):
                await self._report_error(members, _failure_of(fault))
            else:
                await self._report_if_repeated(members, _failure_of(fault), failures)
            raise

    async def _report_if_repeated(
        self, members: Sequence[LaunchGroupMember], rejection: LaunchRejection, failures: int
    ) -> None:
        """Report the failure of an attempt after which another one follows. `failures`: attempts that failed before."""
        if not rejection.final and failures + 1 >= REPEATED_FAILURES:
            await self._report_error(members, rejection)

    async def _report_error(self, members: Sequence[LaunchGroupMember], rejection: LaunchRejection) -> None:
        error = LaunchError(message=rejection.describe())
        await call_for_each(members, lambda one: self._workflows.report_launch_error(one, error))

    async def _assign_instances(self, group: LaunchGroup, fleet_result: FleetResult, *, notify: bool) -> GroupOutcome:
        node_class = await self._node_classes.get(group.request.node_class)
        rejection = rejection_for(fleet_result)
        facts = await self._describe_instances(fleet_result, group, node_class)
        results = await self._assigner.assign_all(group, fleet_result, facts, rejection, notify=notify)
        count_failures(fleet_result.errors, node_class)
        rejected_uids = {uid for uid, result in results.items() if isinstance(result, LaunchRejection)}
        members = sorted(group.members, key=lambda member: member.uid)
        return GroupOutcome(
            group_id=group.group_id,
            results={} if notify else results,
            rejected=tuple(member for member in members if member.uid in rejected_uids),
            rejection=rejection if rejected_uids else None,
            unavailable=list_unavailable_offerings(fleet_result.errors, group.request.node_class, utc_now()),
        )

    async def _describe_instances(
        self, fleet_result: FleetResult, group: LaunchGroup, node_class: EC2NodeClass | None
    ) -> Sequence[LaunchFacts]:
        """Facts of the instances, from the first existing member, since all have equal specs. Empty without a
        member."""
        claim = await self._find_first(group.members) if fleet_result.instances else None
        if claim is None:
            return ()
        if node_class is None:
            if activity.info().attempt >= MAX_ATTEMPTS_WITHOUT_NODECLASS:
                return ()
            raise TryLater(f"EC2NodeClass {group.request.node_class} is gone while instances of it were launched")
        return await self._fleet.describe(fleet_result, node_class, claim, discovered=group.discovered)

    async def _find_first(self, members: Sequence[LaunchGroupMember]) -> NodeClaim | None:
        for member in members:
            claim = await find_nodeclaim(self._claims, member.name, member.uid)
            if claim is not None:
                return claim
        return None


def _nodeclass_rejection(name: str, node_class: EC2NodeClass | None) -> LaunchRejection | None:
    """The rejection for an EC2NodeClass that is missing or not ready (reference 3.2); None if it is ready."""
    if node_class is None or node_class.metadata.is_deleting:
        return LaunchRejection(reason="NodeClassNotReady", message=f"EC2NodeClass {name} is missing or being deleted")
    ready = next((one for one in node_class.status.conditions if one.type == labels.READY), None)
    if ready is not None and ready.is_true:
        if ready.observed_generation in (0, node_class.metadata.generation):
            return None
        current = node_class.metadata.generation
        reason = f"its status is of generation {ready.observed_generation}, not yet of {current}"
        return LaunchRejection(reason="NodeClassNotReady", message=f"EC2NodeClass {name}: {reason}", final=False)
    reason = f"{ready.reason} {ready.message}".strip() if ready else "its status is not known yet"
    final = ready is not None and ready.is_false
    return LaunchRejection(reason="NodeClassNotReady", message=f"EC2NodeClass {name}: {reason}", final=final)


def _offerings_of_other_shards(
    claim: NodeClaim, node_class: EC2NodeClass, request: NodeClaimLaunchRequest | GroupLaunchRequest, now: datetime
) -> tuple[UnavailableOffering, ...]:
    """Offerings that the first attempt of a launch group excludes after an interruption burst."""
    offering_shard = (
        request.draft.offering_shard if isinstance(request, GroupLaunchRequest) and not request.retry else None
    )
    if offering_shard is None:
        return ()
    named = (one.values for one in claim.spec.requirements if one.key == labels.INSTANCE_TYPE and one.operator == "In")
    return offering_shard.list_excluded_offerings(next(named, ()), {one.zone for one in node_class.status.subnets}, now)


def _failure_of(fault: Fault) -> LaunchRejection:
    return LaunchRejection(reason=labels.LAUNCH_FAILED, message=fault.code_and_message, final=False)


def _deleted_rejection(name: str) -> LaunchRejection:
    return LaunchRejection(reason="NodeClaimGone", message=f"{name} no longer exists")
