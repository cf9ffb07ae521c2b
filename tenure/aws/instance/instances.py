"""The port `Instances`: describes and terminates instances, in batches across all NodeClaims.

An instance is gone if EC2 lists it as terminated or does not list it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.client.client import AwsClients
from tenure.aws.client.request_batcher import Batcher
from tenure.aws.instancetype.capacity_reservations import Reservations
from tenure.aws.interruption.zonal_shift import ZonalShifts
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import as_dict
from tenure.model.errors import Fault, Forbidden, NotFound, Throttled, TryLater
from tenure.model.provider_results import InstanceFacts

_ALIVE: Final = ("pending", "running", "stopping", "stopped", "shutting-down")
_TERMINATED: Final = "terminated"
_ALL: Final = "all of this cluster"
_ENDING: Final = ("shutting-down", _TERMINATED)
_FILTER_VALUES: Final = 200
"""Maximum number of values in a filter of EC2."""
_PAGE: Final = {"PageSize": 250}
"""Smaller than EC2's maximum of 1,000, which takes 17 MB as XML and dicts until it is parsed."""
_ONLY_RESERVATIONS: Final = "capacity-reservations-only"


class AwsInstances:
    """Raises model.faults."""

    def __init__(
        self, clients: AwsClients, settings: AwsSettings, zones: ZonalShifts, reservations: Reservations
    ) -> None:
        self._clients, self._settings, self._zones = clients, settings, zones
        self._counts = reservations.counts
        self._reserved = settings.is_gate_enabled(FeatureGate.RESERVED_CAPACITY)
        self._gets: Batcher[str, InstanceFacts] = Batcher(self._describe_batch, idle=0.1, longest=1.0, size=500)
        self._lists: Batcher[str, Sequence[InstanceFacts]] = Batcher(self._list, idle=0.05, longest=0.5, size=1_000)
        self._names: Batcher[str, Sequence[InstanceFacts]] = Batcher(
            self._list_named, idle=0.1, longest=1.0, size=_FILTER_VALUES
        )
        self._ends: Batcher[str, bool | Fault] = Batcher(self._terminate, idle=0.05, longest=1.0, size=500)

    async def get(self, instance_id: str) -> InstanceFacts | None:
        """The live instance; None once it is terminated or no longer listed.

        Raises TryLater for a missing instance during a zonal shift, because EC2 may omit instances of that zone and the
        node's termination depends on the result.
        """
        found = await self._gets.fetch(instance_id)
        if found is None and (shifted_zones := await self._zones.fetch_shifted_zones()):
            zones = ", ".join(sorted(shifted_zones))
            raise TryLater(
                f"EC2 does not list {instance_id}: not considered terminated during a zonal shift of {zones}"
            )
        if found is None or found.state == _TERMINATED:
            self._counts.record_termination(instance_id)
            return None
        self._counts.record_running(instance_id, found.reservation_id)
        return found

    async def list_managed(self) -> Sequence[InstanceFacts]:
        """Instances that are not terminated. Concurrent callers share one list call, which starts after they call."""
        return await self._lists.fetch(_ALL) or ()

    async def _list(self, keys: Sequence[str]) -> Mapping[str, Sequence[InstanceFacts]]:
        found = await self._describe_filtered(
            {"Name": "tag-key", "Values": [labels.TAG_NODEPOOL]},
            {"Name": "tag-key", "Values": [labels.TAG_NODECLASS]},
            {"Name": f"tag:{labels.TAG_EKS_CLUSTER_NAME}", "Values": [self._settings.cluster_name]},
            {"Name": "instance-state-name", "Values": list(_ALIVE)},
        )
        return dict.fromkeys(keys, found)

    async def find_by_nodeclaim(self, claim: str) -> Sequence[InstanceFacts]:
        """Pending and running instances with this NodeClaim's name.

        Hundreds of NodeClaims may call this, and few have an instance. EC2 filters, because parsing a list of all
        instances takes seconds per thousand.
        """
        return await self._names.fetch(claim) or ()

    async def _list_named(self, claims: Sequence[str]) -> Mapping[str, Sequence[InstanceFacts]]:
        found: dict[str, list[InstanceFacts]] = {}
        for one in await self._find_running({"Name": f"tag:{labels.TAG_NODECLAIM}", "Values": list(claims)}):
            found.setdefault(one.tags[labels.TAG_NODECLAIM], []).append(one)
        return found

    async def find_by_tag(self, key: str, value: str) -> Sequence[InstanceFacts]:
        """Running and pending instances of this cluster with the tag."""
        return await self._find_running({"Name": f"tag:{key}", "Values": [value]})

    async def _find_running(self, tags: Mapping[str, Any]) -> Sequence[InstanceFacts]:
        return await self._describe_filtered(
            {"Name": f"tag:{labels.TAG_EKS_CLUSTER_NAME}", "Values": [self._settings.cluster_name]},
            tags,
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        )

    async def terminate(self, instance_id: str) -> bool:
        """False if the instance is already gone; True also if it is already shutting down."""
        try:
            result = await self._ends.fetch(instance_id)
            if isinstance(result, Fault):
                raise result
        except Forbidden:
            # EC2 removes the tags of a terminated instance, so a policy with tag conditions denies the call.
            if await self.get(instance_id) is not None:
                raise
            return False
        return bool(result)

    async def reboot(self, instance_id: str) -> bool:
        return await self._call_for_instance(self._clients.ec2.reboot_instances, instance_id)

    async def is_zone_shifted(self, zone_id: str) -> bool:
        return zone_id in await self._zones.fetch_shifted_zones()

    async def stop(self, instance_id: str) -> bool:
        return await self._call_for_instance(self._clients.ec2.stop_instances, instance_id)

    async def start(self, instance_id: str) -> bool:
        """Raises a Fault with EC2's code if EC2 has no capacity for the instance."""
        return await self._call_for_instance(self._clients.ec2.start_instances, instance_id)

    async def _call_for_instance(self, method: Callable[..., Any], instance_id: str) -> bool:
        """Not batched: these calls are rare, and a rejection must not affect others. False if the instance is gone."""
        try:
            await self._clients.call(method, InstanceIds=[instance_id])
        except NotFound:
            return False
        return True

    async def _describe_batch(self, ids: Sequence[str]) -> Mapping[str, InstanceFacts]:
        """Describe with a filter, which omits unknown IDs. Each omitted ID is described once more by itself."""
        chunks = [ids[start : start + _FILTER_VALUES] for start in range(0, len(ids), _FILTER_VALUES)]
        chunk_results = await asyncio.gather(
            *(self._describe_filtered({"Name": "instance-id", "Values": list(c)}) for c in chunks)
        )
        found = {one.instance_id: one for instances in chunk_results for one in instances}
        missing = [one for one in ids if one not in found]
        retried = await asyncio.gather(*(self._describe_one(one) for one in missing))
        return found | {one.instance_id: one for one in retried if one}

    async def _describe_one(self, instance_id: str) -> InstanceFacts | None:
        try:
            response = await self._clients.call(self._clients.ec2.describe_instances, InstanceIds=[instance_id])
        except NotFound:
            return None
        return next((one for item in response.get("Reservations", ()) for one in self._of_reservation(item)), None)

    async def _describe_filtered(self, *filters: Any) -> list[InstanceFacts]:
        reservations = await self._clients.paginate(
            self._clients.ec2.describe_instances,
            "Reservations",
            self._of_reservation,
            Filters=list(filters),
            PaginationConfig=_PAGE,
        )
        return [one for reservation in reservations for one in reservation]

    async def _terminate(self, ids: Sequence[str]) -> Mapping[str, bool | Fault]:
        """Terminate in one call. If EC2 rejects it, terminate the existing instances one by one.

        Single calls separate the faults: an instance that may not be terminated does not block others.
        """
        try:
            return await self._terminate_batch(ids)
        except NotFound:
            found = await self._describe_filtered({"Name": "instance-id", "Values": list(ids)}) if len(ids) > 1 else []
            there = [one.instance_id for one in found if one.state != _TERMINATED]
            return await self._terminate_each(there)
        except (Throttled, TryLater):
            raise
        except Fault:
            if len(ids) == 1:
                raise
            return await self._terminate_each(ids)

    async def _terminate_batch(self, ids: Sequence[str]) -> Mapping[str, bool | Fault]:
        response = await self._clients.call(self._clients.ec2.terminate_instances, InstanceIds=list(ids))
        changes = response.get("TerminatingInstances", [])
        ended = {one["InstanceId"]: one for one in changes if one["CurrentState"]["Name"] in _ENDING}
        remaining = [one for one in ids if one not in ended]
        rest = await self._terminate_each(remaining) if remaining and len(ids) > 1 else {}
        outcomes = {key: one["PreviousState"]["Name"] != _TERMINATED for key, one in ended.items()}
        return {**outcomes, **rest}

    async def _terminate_each(self, ids: Sequence[str]) -> Mapping[str, bool | Fault]:
        results = await asyncio.gather(*(self._terminate_one(one) for one in ids))
        return dict(zip(ids, results, strict=True))

    async def _terminate_one(self, instance_id: str) -> bool | Fault:
        try:
            return (await self._terminate_batch([instance_id])).get(instance_id, False)
        except NotFound:
            return False
        except Fault as fault:
            return fault

    def _of_reservation(self, reservation: Mapping[str, Any]) -> list[InstanceFacts]:
        return [instance_facts(one, reserved=self._reserved) for one in reservation.get("Instances", ())]


def instance_facts(raw: Mapping[str, Any], *, reserved: bool) -> InstanceFacts:
    """`reserved`: the gate ReservedCapacity is enabled; otherwise reservations are ignored."""
    placement, capacity_type = raw.get("Placement") or {}, capacity_type_of(raw, reserved=reserved)
    return InstanceFacts(
        instance_id=raw["InstanceId"],
        state=(raw.get("State") or {}).get("Name", ""),
        instance_type=raw.get("InstanceType", ""),
        zone=placement.get("AvailabilityZone", ""),
        image_id=raw.get("ImageId", ""),
        subnet_id=raw.get("SubnetId", ""),
        security_group_ids=tuple(sorted(one["GroupId"] for one in raw.get("SecurityGroups") or ())),
        capacity_type=capacity_type,
        **(_reservation_facts(raw) if capacity_type == labels.RESERVED else {}),
        placement_group=placement.get("GroupId", ""),
        partition=str(placement.get("PartitionNumber") or ""),
        tags=as_dict(raw.get("Tags")),
        launched_at=raw.get("LaunchTime"),
        root=raw.get("RootDeviceType", ""),
        state_reason=_format_state_reason(raw.get("StateReason") or {}),
        instance_profile=(raw.get("IamInstanceProfile") or {}).get("Arn", "").rpartition("/")[2],
    )


def _format_state_reason(reason: Mapping[str, Any]) -> str:
    """EC2's message mostly begins with the code."""
    code, message = reason.get("Code", ""), reason.get("Message", "")
    return message if message.startswith(code) else f"{code}: {message}"


def _reservation_facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The reservation of an instance that counts as reserved; its lifecycle determines the kind."""
    lifecycle = raw.get("InstanceLifecycle")
    return {
        "reservation_id": raw["CapacityReservationId"],
        "reservation_type": "capacity-block" if lifecycle == "capacity-block" else "default",
        "interruptible": lifecycle == "interruptible-capacity-reservation",
    }


def capacity_type_of(raw: Mapping[str, Any], *, reserved: bool) -> str:
    """An instance counts as reserved only if its launch was restricted to reservations."""
    if raw.get("SpotInstanceRequestId") or raw.get("InstanceLifecycle") == "spot":
        return labels.SPOT
    preference = (raw.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference")
    if reserved and raw.get("CapacityReservationId") and preference == _ONLY_RESERVATIONS:
        return labels.RESERVED
    return labels.ON_DEMAND
