"""The port `NodeClassResolver`: resolves the selectors of an EC2NodeClass, with conditions and Karpenter's reasons.

The parts are independent. A part that cannot be read keeps its last value and condition, and does not affect other
parts. Only an empty result makes a class not ready.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedAmi
from tenure.apis.meta import KubeModel
from tenure.apis.nodepool import NodePool
from tenure.aws.amifamily.families import AliasError
from tenure.aws.amifamily.images import Images
from tenure.aws.eks_cluster import Clusters
from tenure.aws.instance.launch_templates import LaunchTemplates
from tenure.aws.instancetype.capacity_reservations import Reservations
from tenure.aws.nodeclass.instance_profiles import ProfileInUse, Profiles
from tenure.aws.nodeclass.placement_groups import PlacementGroups
from tenure.aws.nodeclass.subnets_and_security_groups import Networks
from tenure.aws.nodeclass.validation import DEPENDENCIES, Validated, Validation
from tenure.clock import utc_now
from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound
from tenure.model.provider_results import ConditionPatch, ResolvedNodeClass
from tenure.model.rollout import ImagePin, active_image_pin


@dataclass(frozen=True, slots=True)
class Part:
    """Result of a part. Missing fields keep their value on the object."""

    status: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[ConditionPatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    images: Images
    networks: Networks
    profiles: Profiles
    placement: PlacementGroups
    reservations: Reservations

    async def resolve_amis(self, node_class: EC2NodeClass) -> Part:
        try:
            found = await self.images.resolve(node_class)
        except AliasError as error:
            return Part({"amis": []}, (false_condition(labels.AMIS_READY, labels.UNSUPPORTED_ALIAS, str(error)),))
        used, pin_conditions = await self._apply_pin(node_class, found)
        missing = "spec.amiSelectorTerms match no image"
        part = _list_part("amis", used, labels.AMIS_READY, labels.AMI_NOT_FOUND, missing)
        return replace(part, conditions=(*part.conditions, *pin_conditions))

    async def _apply_pin(
        self, node_class: EC2NodeClass, found: Sequence[ResolvedAmi]
    ) -> tuple[Sequence[ResolvedAmi], tuple[ConditionPatch, ...]]:
        """After the rollback of a rollout, replace its images with the last good images."""
        pin = active_image_pin(node_class, utc_now())
        if pin is None or not any(one.id in pin.images for one in found):
            had_condition = node_class.condition(labels.IMAGES_PINNED) is not None
            return found, (ConditionPatch(type=labels.IMAGES_PINNED, status=""),) if had_condition else ()
        used, missing = await self.images.apply_pin(pin, found)
        return used, (_images_pinned(pin, found, missing),)

    async def resolve_subnets(self, node_class: EC2NodeClass) -> Part:
        found = [subnet.to_resolved() for subnet in await self.networks.find_subnets(node_class)]
        missing = "spec.subnetSelectorTerms match no subnet"
        return _list_part("subnets", found, labels.SUBNETS_READY, labels.SUBNETS_NOT_FOUND, missing)

    async def resolve_security_groups(self, node_class: EC2NodeClass) -> Part:
        found = await self.networks.find_security_groups(node_class)
        missing = "spec.securityGroupSelectorTerms match no security group"
        return _list_part(
            "securityGroups", found, labels.SECURITY_GROUPS_READY, labels.SECURITY_GROUPS_NOT_FOUND, missing
        )

    async def resolve_profile(self, node_class: EC2NodeClass) -> Part:
        """The condition is Unknown while a role or a permission is missing, because it may be created soon."""
        try:
            name = await self.profiles.resolve(node_class)
        except (NotFound, Forbidden, Conflict, BadInput) as fault:
            unknown = ConditionPatch(
                type=labels.INSTANCE_PROFILE_READY,
                status="Unknown",
                reason=labels.AWAITING_RECONCILIATION,
                message=fault.message,
            )
            return Part(conditions=(unknown,))
        return Part({"instanceProfile": name}, (true_condition(labels.INSTANCE_PROFILE_READY),))

    async def resolve_reservations(self, node_class: EC2NodeClass) -> Part:
        """Without the gate, the condition and the status field are removed."""
        if not self.reservations.enabled:
            had_condition = node_class.condition(labels.CAPACITY_RESERVATIONS_READY) is not None
            off = (ConditionPatch(type=labels.CAPACITY_RESERVATIONS_READY, status=""),) if had_condition else ()
            return Part({"capacityReservations": []} if node_class.status.capacity_reservations else {}, off)
        found = [one.to_object() for one in await self.reservations.resolve(node_class)]
        return Part({"capacityReservations": found}, (true_condition(labels.CAPACITY_RESERVATIONS_READY),))

    async def resolve_placement_group(self, node_class: EC2NodeClass) -> Part:
        try:
            await self.placement.resolve(node_class)
        except (NotFound, Forbidden, BadInput) as fault:
            is_missing = isinstance(fault, NotFound)
            reason = labels.PLACEMENT_GROUP_NOT_FOUND if is_missing else labels.PLACEMENT_GROUP_RESOLUTION_FAILED
            message = f"spec.placementGroupSelector: {fault.message}"
            return Part(conditions=(false_condition(labels.PLACEMENT_GROUP_READY, reason, message),))
        return Part(conditions=(true_condition(labels.PLACEMENT_GROUP_READY),))


def true_condition(condition: str) -> ConditionPatch:
    return ConditionPatch(type=condition, status="True")


def false_condition(condition: str, reason: str, message: str) -> ConditionPatch:
    return ConditionPatch(type=condition, status="False", reason=reason, message=message)


def _images_pinned(pin: ImagePin, found: Sequence[ResolvedAmi], missing: Sequence[str]) -> ConditionPatch:
    pairs = ", ".join(
        f"{pin.images[one.id]} instead of {one.id}"
        for one in found
        if one.id in pin.images and pin.images[one.id] not in missing
    )
    rollback = f"rolled back by {pin.by} at {pin.since.isoformat(timespec='minutes')}: {pin.reason}" if pairs else ""
    lost = f"replacement {', '.join(missing)} no longer exists" if missing else ""
    until = (
        f"until {pin.until.isoformat(timespec='minutes')}, another image, other amiSelectorTerms, or the annotation "
        f"{labels.IMAGE_PIN} is removed"
    )
    message = "; ".join(part for part in (pairs, rollback, lost, until) if part)
    reason = labels.ROLLED_BACK if pairs else labels.IMAGE_DELETED
    return ConditionPatch(
        type=labels.IMAGES_PINNED, status="True" if pairs else "False", reason=reason, message=message
    )


def _list_part(key: str, found: Sequence[KubeModel], condition: str, reason: str, missing: str) -> Part:
    status = {key: [one.to_object() for one in found]}
    return Part(status, (true_condition(condition) if found else false_condition(condition, reason, missing),))


A = TypeVar("A")
_SOON: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _NoResponse:
    what: str
    """The condition that stays unchanged."""
    why: str
    kind: str


class AwsNodeClasses:
    """`resolve` and `preview` report AWS errors in their results; other methods raise model.faults."""

    def __init__(self, *, parts: Parts, validation: Validation, templates: LaunchTemplates, clusters: Clusters) -> None:
        self._parts, self._validation, self._templates, self._clusters = parts, validation, templates, clusters

    async def resolve(self, node_class: EC2NodeClass, pools: Sequence[NodePool] = ()) -> ResolvedNodeClass:
        """Conditions are in Karpenter's order."""
        profile = _resolve_part(labels.INSTANCE_PROFILE_READY, self._parts.resolve_profile(node_class))
        status, conditions, silent = await _gather_parts(*self._resolve_selectors(node_class), profile)
        validated, more = await self._validate(
            _with_status(node_class, status), _dependency_statuses(node_class, conditions), pools
        )
        silent += more
        if validated.retry_after is not None:
            # EC2 does not know a profile that IAM had: the next resolution queries IAM again.
            self._parts.profiles.forget()
        if validated.condition is not None:
            conditions.append(validated.condition)
        return ResolvedNodeClass(
            status=status,
            conditions=(*conditions, *_aws_response_condition(node_class, silent)),
            failed_lookups=tuple(f"{one.what}: {one.why}" for one in silent),
            warnings=validated.warnings,
            user_data_bytes=validated.user_data_bytes,
            ca_bundle=await self._ca_bundle(),
            retry_after=validated.retry_after or (_SOON if self._may_change(node_class) else None),
        )

    async def preview(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """Like `resolve`, but with reads only and without profile and validation."""
        status, conditions, silent = await _gather_parts(*self._resolve_selectors(node_class))
        return ResolvedNodeClass(
            status=status,
            conditions=tuple(conditions),
            failed_lookups=tuple(f"{one.what}: {one.why}" for one in silent),
            ca_bundle=await self._ca_bundle(),
        )

    async def profile_of(self, node_class: EC2NodeClass) -> ProfileInUse:
        """The profile of new nodes; only `resolve` creates it. Raises model.faults."""
        return await self._parts.profiles.in_use(node_class)

    def _resolve_selectors(self, node_class: EC2NodeClass) -> list[Coroutine[Any, Any, Part | _NoResponse]]:
        parts = self._parts
        return [
            _resolve_part(labels.AMIS_READY, parts.resolve_amis(node_class)),
            _resolve_part(labels.CAPACITY_RESERVATIONS_READY, parts.resolve_reservations(node_class)),
            _resolve_part(labels.PLACEMENT_GROUP_READY, parts.resolve_placement_group(node_class)),
            _resolve_part(labels.SUBNETS_READY, parts.resolve_subnets(node_class)),
            _resolve_part(labels.SECURITY_GROUPS_READY, parts.resolve_security_groups(node_class)),
        ]

    async def _ca_bundle(self) -> str | None:
        cluster = await _resolve_part("cluster", self._clusters.facts())
        return None if isinstance(cluster, _NoResponse) else cluster.ca_bundle

    async def clean_up(self, node_class: EC2NodeClass) -> None:
        self._validation.forget(node_class)
        await asyncio.gather(self._parts.profiles.clean_up(node_class), self._templates.delete_of(node_class))

    async def _validate(
        self, node_class: EC2NodeClass, dependencies: Mapping[str, str], pools: Sequence[NodePool]
    ) -> tuple[Validated, list[_NoResponse]]:
        result = await _resolve_part(
            labels.VALIDATION_SUCCEEDED, self._validation.validate(node_class, dependencies, pools)
        )
        if isinstance(result, _NoResponse):
            return Validated(None), [result]
        if not result.undecided:
            return result, []
        return result, [_NoResponse(labels.VALIDATION_SUCCEEDED, result.undecided, "Undecided")]

    @staticmethod
    def _may_change(node_class: EC2NodeClass) -> bool:
        """Whether to check again soon: no event announces changes of reservations or placement groups."""
        spec = node_class.spec
        return bool(spec.capacity_reservation_selector_terms or spec.placement_group_selector)


async def _resolve_part(what: str, awaitable: Awaitable[A]) -> A | _NoResponse:
    try:
        return await awaitable
    except Fault as fault:
        return _NoResponse(what, fault.code_and_message, type(fault).__name__)


async def _gather_parts(
    *parts: Awaitable[Part | _NoResponse],
) -> tuple[dict[str, Any], list[ConditionPatch], list[_NoResponse]]:
    results = await asyncio.gather(*parts)
    found = [one for one in results if isinstance(one, Part)]
    status = {key: value for part in found for key, value in part.status.items()}
    conditions = [one for part in found for one in part.conditions]
    return status, conditions, [one for one in results if isinstance(one, _NoResponse)]


def _with_status(node_class: EC2NodeClass, status: Mapping[str, object]) -> EC2NodeClass:
    """The object with the new status."""
    raw = node_class.to_object()
    return EC2NodeClass.from_object({**raw, "status": {**(raw.get("status") or {}), **status}})


def _dependency_statuses(node_class: EC2NodeClass, conditions: Iterable[ConditionPatch]) -> dict[str, str]:
    """Status by condition: the new one, else the one reported for this generation, else Unknown."""
    generation = node_class.metadata.generation
    before = {one.type: one.status for one in node_class.conditions if one.observed_generation == generation}
    now = {one.type: one.status for one in conditions}
    return {name: now.get(name) or before.get(name, "Unknown") for name in DEPENDENCIES}


def _aws_response_condition(node_class: EC2NodeClass, silent: Sequence[_NoResponse]) -> list[ConditionPatch]:
    """Condition while AWS cannot be queried; `Ready` does not depend on it."""
    if not silent:
        there = node_class.condition(labels.AWS_REACHABLE) is not None
        return [ConditionPatch(type=labels.AWS_REACHABLE, status="")] if there else []
    message = "; ".join(f"{one.what} is unchanged: {one.why}" for one in silent)
    return [ConditionPatch(type=labels.AWS_REACHABLE, status="False", reason=silent[0].kind, message=message)]
