"""Whether what an EC2NodeClass selects is there: subnets with room, security groups, images, the role."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aws.client import AwsClients
from aws.image_aliases import AliasError
from aws.images import Images
from aws.network import Networks
from model.faults import Fault, Forbidden, NotFound
from model.findings import Finding, advice, ok, problem, unknown
from model.kinds import EC2NodeClass

AREA: Final = "selectors"
_FEW_ADDRESSES: Final = 32


class Selectors:
    def __init__(self, clients: AwsClients, networks: Networks, images: Images) -> None:
        self._clients, self._networks, self._images = clients, networks, images

    async def check(self, node_class: EC2NodeClass) -> list[Finding]:
        """Each part by itself: one that cannot be looked at hides no other."""
        parts = (self._subnets, self._groups, self._amis, self._identity)
        found = await asyncio.gather(*(_guarded(part, node_class) for part in parts))
        return [one for part in found for one in part]

    async def _subnets(self, node_class: EC2NodeClass) -> list[Finding]:
        subject = f"EC2NodeClass {node_class.name} subnets"
        subnets = await self._networks.subnets(node_class)
        if not subnets:
            return [problem(AREA, subject, "none match", _tagging("spec.subnetSelectorTerms", "subnets"))]
        zones = sorted({one.zone for one in subnets})
        said = f"{len(subnets)} in {', '.join(zones)} with {sum(one.free for one in subnets)} free addresses"
        tight = [one.id for one in subnets if one.free < _FEW_ADDRESSES]
        if len(tight) == len(subnets):
            return [problem(AREA, subject, f"{said}: hardly any room", "add subnets or a secondary range")]
        if tight:
            todo = "add subnets or a secondary range, or free addresses"
            return [advice(AREA, subject, f"{said}; few are left in {', '.join(tight)}", todo)]
        if len(zones) == 1:
            return [advice(AREA, subject, said, "name subnets of another zone too: capacity differs by zone")]
        return [ok(AREA, subject, said)]

    async def _groups(self, node_class: EC2NodeClass) -> list[Finding]:
        subject = f"EC2NodeClass {node_class.name} security groups"
        groups = await self._networks.groups(node_class)
        if not groups:
            return [problem(AREA, subject, "none match", _tagging("spec.securityGroupSelectorTerms", "groups"))]
        return [ok(AREA, subject, ", ".join(one.id for one in groups))]

    async def _amis(self, node_class: EC2NodeClass) -> list[Finding]:
        subject = f"EC2NodeClass {node_class.name} images"
        try:
            images = await self._images.resolve(node_class)
        except AliasError as error:
            return [problem(AREA, subject, str(error), "correct the alias in spec.amiSelectorTerms")]
        if not images:
            return [problem(AREA, subject, "none match", "correct spec.amiSelectorTerms: owner, name, tags or alias")]
        old = [one.id for one in images if one.deprecated]
        if old:
            return [advice(AREA, subject, f"deprecated: {', '.join(old)}", "select a newer image")]
        return [ok(AREA, subject, f"{len(images)} found, newest {images[0].id}")]

    async def _identity(self, node_class: EC2NodeClass) -> list[Finding]:
        """The role is made by people; the profile too, where the class names one itself."""
        role, profile = node_class.spec.role.rpartition("/")[2], node_class.spec.instance_profile
        iam = self._clients.iam
        try:
            if profile:
                await self._clients.call(iam.get_instance_profile, InstanceProfileName=profile)
            elif role:
                await self._clients.call(iam.get_role, RoleName=role)
        except NotFound as fault:
            field = "instanceProfile" if profile else "role"
            todo = f"make it, or correct spec.{field}"
            return [problem(AREA, f"EC2NodeClass {node_class.name} {field}", fault.message, todo)]
        except Forbidden:
            todo = f"see with an administrator's credentials whether {profile or role} exists"
            return [unknown(AREA, f"EC2NodeClass {node_class.name} role", "these credentials may not look", todo)]
        return [ok(AREA, f"EC2NodeClass {node_class.name} role", profile or role)]


async def _guarded(part: Callable[[EC2NodeClass], Awaitable[list[Finding]]], node_class: EC2NodeClass) -> list[Finding]:
    try:
        return await part(node_class)
    except Fault as fault:
        todo = "allow the call to these credentials" if isinstance(fault, Forbidden) else "try again"
        return [unknown(AREA, f"EC2NodeClass {node_class.name}", fault.message, todo)]


def _tagging(field: str, what: str) -> str:
    return f"tag the {what} as {field} says, or correct {field}"
