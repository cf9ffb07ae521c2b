"""CreateFleet itself: called with the group's token, and what became of it as a value wherever that is known.

A call that EC2 refuses as a whole is an answer too: no instance and the reason. Only where it cannot be known whether
instances were made a fault is raised, and the same call is to be repeated.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from aws.client import AwsClients
from aws.errors import INSUFFICIENT, LAUNCH_TEMPLATE_NOT_FOUND, TOKEN_MISMATCH
from aws.fleet_request import create_fleet_request, fleet_answer, refusal
from aws.instances import AwsInstances
from aws.launch_templates import LaunchTemplates
from aws.network import FreeAddresses
from aws.reservation_counts import Counts
from aws.tags import TAG_LAUNCH_TOKEN
from aws.unavailable import Unavailable
from model.faults import BadInput, Fault, Forbidden, NotFound, Throttled
from model.launches import FleetAnswer, FleetInstance, LaunchGroup
from model.marks import marks_of
from model.outcomes import InstanceFacts

_REFUSED = (Forbidden, BadInput, NotFound)
"""EC2 looked at the call and will not do it; nothing was made by this one."""
_TURNS: Final = 5


class FleetCalls:
    """Raises model.faults."""

    def __init__(
        self,
        clients: AwsClients,
        *,
        templates: LaunchTemplates,
        instances: AwsInstances,
        unavailable: Unavailable,
        free: FreeAddresses,
        counts: Counts,
    ) -> None:
        self._clients, self._templates, self._instances = clients, templates, instances
        self._unavailable, self._free, self._counts = unavailable, free, counts

    async def create(self, group: LaunchGroup) -> FleetAnswer:
        """A refused call is answered with the instances that an earlier one with this token made, if it made any."""
        try:
            raw = await self._call(group)
        except Fault as fault:
            if fault.code not in INSUFFICIENT and not isinstance(fault, _REFUSED):
                raise
            answer = await self._made_before(group) or _refused(group, fault)
        else:
            answer = fleet_answer(group, raw)
        self._learn(group, answer)
        return answer

    async def find(self, group: LaunchGroup) -> FleetAnswer:
        """The instances that carry this token and run, by id: for when no answer is to be had any more."""
        found = await self._instances.tagged(TAG_LAUNCH_TOKEN, group.token())
        return FleetAnswer(instances=_instances(found, group))

    async def _call(self, group: LaunchGroup) -> Mapping[str, Any]:
        """A template that is missing is made again where this process knows it, and the call repeated once."""
        request = create_fleet_request(group)
        try:
            return await self._in_turn(request)
        except NotFound as fault:
            names = sorted({one.launch_template for one in group.request.overrides})
            if fault.code not in LAUNCH_TEMPLATE_NOT_FOUND or not await self._templates.again(names):
                raise
        return await self._in_turn(request)

    async def _in_turn(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One that is throttled waits for its next turn here; a fault would send it to the end of a longer queue."""
        for _ in range(_TURNS - 1):
            try:
                return await self._clients.call(self._clients.launching.create_fleet, **request)
            except Throttled:
                continue
        return await self._clients.call(self._clients.launching.create_fleet, **request)

    async def _made_before(self, group: LaunchGroup) -> FleetAnswer | None:
        """Permissions, templates and words may have changed since a call whose answer was lost."""
        found = await self.find(group)
        return found if found.instances else None

    def _learn(self, group: LaunchGroup, answer: FleetAnswer) -> None:
        now = datetime.now(UTC)
        self._unavailable.learn(marks_of(answer.errors, group.request.node_class, now), now)
        self._counts.learn(answer)
        for instance in answer.instances:
            self._free.taken(instance.subnet_id, 1)
        missing = {error.code for error in answer.errors} & LAUNCH_TEMPLATE_NOT_FOUND
        if missing:
            self._templates.forget(one.launch_template for one in group.request.overrides)


def _refused(group: LaunchGroup, fault: Fault) -> FleetAnswer:
    said = fault.message
    if fault.code in TOKEN_MISMATCH:
        said = f"{said} (token {group.token()} of {group.group_id})"
    return FleetAnswer(errors=(refusal(fault.code, said, group.request.capacity_type),))


def _instances(found: Sequence[InstanceFacts], group: LaunchGroup) -> tuple[FleetInstance, ...]:
    return tuple(
        FleetInstance(
            instance_id=one.instance_id,
            instance_type=one.instance_type,
            zone=one.zone,
            subnet_id=one.subnet_id,
            image_id=one.image_id,
            capacity_type=one.capacity_type,
            reservation_id=one.reservation_id,
            market=one.market,
            placement_group=one.placement_group,
            partition=one.partition,
            instance_profile=group.request.instance_profile,
            node_class_stamp=group.request.node_class_stamp,
        )
        for one in sorted(found, key=lambda one: one.instance_id)
    )
