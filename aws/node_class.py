"""The port `NodeClassResolver`: what an EC2NodeClass's selectors mean now, and its conditions with Karpenter's reasons.

What cannot be asked at the moment keeps its last value and condition: only an empty answer makes a class not ready.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from aws.cluster import Clusters
from aws.families import family_of
from aws.image_aliases import AliasError
from aws.images import Images
from aws.launch_templates import LaunchTemplates
from aws.network import Networks
from aws.placement import PlacementGroups
from aws.profiles import Profiles
from aws.validation import why_invalid
from model import labels
from model.faults import BadInput, Conflict, Forbidden, NotFound
from model.kinds import EC2NodeClass
from model.kinds.meta import KubeModel
from model.outcomes import ConditionPatch, Resolved


class AwsNodeClasses:
    """Raises model.faults when AWS does not answer, so that status and conditions stay as they were."""

    def __init__(
        self,
        *,
        images: Images,
        networks: Networks,
        profiles: Profiles,
        templates: LaunchTemplates,
        clusters: Clusters,
        placement: PlacementGroups,
    ) -> None:
        self._images, self._networks, self._profiles = images, networks, profiles
        self._templates, self._clusters, self._placement = templates, clusters, placement

    async def resolve(self, node_class: EC2NodeClass) -> Resolved:
        parts = await asyncio.gather(
            self._amis(node_class), self._subnets(node_class), self._groups(node_class), self._profile(node_class)
        )
        status = {key: value for part, _ in parts for key, value in part.items()}
        if node_class.status.capacity_reservations:
            # Nothing launches into them: what an earlier controller left there must not look as if something did.
            status["capacityReservations"] = []
        conditions = [condition for _, condition in parts]
        conditions.append(await self._validation(node_class, conditions))
        conditions.append(await self._placement_group(node_class))
        return Resolved(status=status, conditions=tuple(conditions))

    async def clean_up(self, node_class: EC2NodeClass) -> None:
        await asyncio.gather(self._profiles.clean_up(node_class), self._templates.delete_of(node_class))

    async def _amis(self, node_class: EC2NodeClass) -> "_Part":
        try:
            found = await self._images.resolve(node_class)
        except AliasError as error:
            return {"amis": []}, _false(labels.AMIS_READY, labels.UNSUPPORTED_ALIAS, str(error))
        return _listed("amis", found, labels.AMIS_READY, labels.AMI_NOT_FOUND, "amiSelectorTerms match no image")

    async def _subnets(self, node_class: EC2NodeClass) -> "_Part":
        found = [subnet.resolved() for subnet in await self._networks.subnets(node_class)]
        missing = "subnetSelectorTerms match no subnet"
        return _listed("subnets", found, labels.SUBNETS_READY, labels.SUBNETS_NOT_FOUND, missing)

    async def _groups(self, node_class: EC2NodeClass) -> "_Part":
        found = await self._networks.groups(node_class)
        missing = "securityGroupSelectorTerms match no security group"
        return _listed("securityGroups", found, labels.SECURITY_GROUPS_READY, labels.SECURITY_GROUPS_NOT_FOUND, missing)

    async def _profile(self, node_class: EC2NodeClass) -> "_Part":
        """A role or a permission that is missing may come: the condition is unknown until it does."""
        try:
            name = await self._profiles.resolve(node_class)
        except (NotFound, Forbidden, Conflict) as fault:
            reason = labels.AWAITING_RECONCILIATION
            return {}, ConditionPatch(
                type=labels.INSTANCE_PROFILE_READY, status="Unknown", reason=reason, message=fault.message
            )
        return {"instanceProfile": name}, ConditionPatch(type=labels.INSTANCE_PROFILE_READY, status="True")

    async def _placement_group(self, node_class: EC2NodeClass) -> ConditionPatch:
        try:
            await self._placement.resolve(node_class)
        except NotFound as fault:
            return _false(labels.PLACEMENT_GROUP_READY, labels.PLACEMENT_GROUP_NOT_FOUND, fault.message)
        except (Forbidden, BadInput) as fault:
            return _false(labels.PLACEMENT_GROUP_READY, labels.PLACEMENT_GROUP_RESOLUTION_FAILED, fault.message)
        return ConditionPatch(type=labels.PLACEMENT_GROUP_READY, status="True")

    async def _validation(self, node_class: EC2NodeClass, before: Sequence[ConditionPatch]) -> ConditionPatch:
        """Karpenter's order: what the class itself says, then what it depends on."""
        cluster = await self._clusters.facts()
        wrong = why_invalid(node_class, family_of(node_class), cluster)
        if wrong:
            return _false(labels.VALIDATION_SUCCEEDED, *wrong)
        for status in ("False", "Unknown"):
            bad = [one.type for one in before if one.status == status]
            if bad:
                return ConditionPatch(
                    type=labels.VALIDATION_SUCCEEDED,
                    status=status,
                    reason=labels.DEPENDENCIES_NOT_READY,
                    message="waiting for " + ", ".join(bad),
                )
        return ConditionPatch(type=labels.VALIDATION_SUCCEEDED, status="True")


_Part = tuple[dict[str, Any], ConditionPatch]


def _listed(key: str, found: Sequence[KubeModel], condition: str, reason: str, missing: str) -> _Part:
    status = {key: [one.to_object() for one in found]}
    if not found:
        return status, _false(condition, reason, missing)
    return status, ConditionPatch(type=condition, status="True")


def _false(condition: str, reason: str, message: str) -> ConditionPatch:
    return ConditionPatch(type=condition, status="False", reason=reason, message=message)
