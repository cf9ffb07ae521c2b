"""The instance profile that gives nodes their role: the user's own, or one that Tenure makes for the role.

A made profile's name is a hash of region, class and role: asking twice makes one, and a class that changes its role
gets a new one, while running instances keep theirs until the class is cleaned up.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from aws.cache import Expiring
from aws.client import AwsClients
from aws.errors import ALREADY_EXISTS
from aws.settings import AwsSettings
from aws.tags import as_list, profile_tags
from model.faults import Conflict, Fault, Forbidden, NotFound
from model.kinds import EC2NodeClass

_FRESH_SECONDS: Final = 15 * 60.0
_NAME_LIMIT: Final = 128
_HASH_LENGTH: Final = 20


class Profiles:
    """Raises model.faults."""

    def __init__(self, clients: AwsClients, settings: AwsSettings) -> None:
        self._clients, self._settings = clients, settings
        self._known: Expiring[bool] = Expiring(_FRESH_SECONDS)

    async def resolve(self, node_class: EC2NodeClass) -> str:
        """The profile's name; made when it is not there. Raises NotFound for the role."""
        if node_class.spec.instance_profile:
            return node_class.spec.instance_profile
        role = node_class.spec.role.rpartition("/")[2]
        name = self.name_of(node_class, role)
        if not self._known.get(name):
            await self._ensure(node_class, name, role)
            self._known.put(name, True)
        return name

    def name_of(self, node_class: EC2NodeClass, role: str) -> str:
        said = "\n".join((self._settings.region, node_class.uid, role))
        digest = hashlib.sha256(said.encode()).hexdigest()[:_HASH_LENGTH]
        return f"{self._settings.cluster_name[: _NAME_LIMIT - _HASH_LENGTH - 1]}_{digest}"

    def path_of(self, node_class: EC2NodeClass) -> str:
        return f"/karpenter/{self._settings.region}/{self._settings.cluster_name}/{node_class.uid}/"

    async def clean_up(self, node_class: EC2NodeClass) -> None:
        """Delete all that were made for this class."""
        if self._settings.isolated_vpc:
            return
        found = await self._clients.pages(
            self._clients.iam.list_instance_profiles, "InstanceProfiles", dict, PathPrefix=self.path_of(node_class)
        )
        for profile in found:
            await self.delete(profile["InstanceProfileName"], [one["RoleName"] for one in profile.get("Roles", [])])

    async def delete(self, name: str, roles: Sequence[str]) -> None:
        """Delete one, with the roles that it was listed with taken out of it first."""
        try:
            for role in roles:
                await self._remove_role(name, role)
            with suppress(NotFound):
                await self._clients.call(self._clients.iam.delete_instance_profile, InstanceProfileName=name)
        except Forbidden:
            # The answer of an earlier try was lost: a policy that goes by tags denies what is not there any more.
            if await self._roles_of(name) is not None:
                raise
        self._known.forget(name)

    async def _ensure(self, node_class: EC2NodeClass, name: str, role: str) -> None:
        roles = await self._roles_of(name)
        if roles is None:
            await self._create(node_class, name)
            roles = []
        if role in roles:
            return
        for other in roles:
            await self._remove_role(name, other)
        await self._add_role(name, role)

    async def _roles_of(self, name: str) -> list[str] | None:
        """None when there is no such profile."""
        try:
            answer = await self._clients.call(self._clients.iam.get_instance_profile, InstanceProfileName=name)
        except NotFound:
            return None
        return [role["RoleName"] for role in answer["InstanceProfile"].get("Roles", [])]

    async def _create(self, node_class: EC2NodeClass, name: str) -> None:
        try:
            await self._clients.call(
                self._clients.iam.create_instance_profile,
                InstanceProfileName=name,
                Path=self.path_of(node_class),
                Tags=as_list(profile_tags(self._settings, node_class)),
            )
        except Conflict as fault:
            if fault.code not in ALREADY_EXISTS:
                raise

    async def _add_role(self, name: str, role: str) -> None:
        try:
            await self._clients.call(
                self._clients.iam.add_role_to_instance_profile, InstanceProfileName=name, RoleName=role
            )
        except NotFound as fault:
            await self._forget_empty(name)
            raise NotFound(f"role {role!r} (spec.role) does not exist", code=fault.code) from fault
        except Conflict as fault:
            # Another worker was first, or a role is in it that must not be.
            if role not in (await self._roles_of(name) or []):
                raise Conflict(f"instance profile {name} holds another role than {role}", code=fault.code) from fault

    async def _forget_empty(self, name: str) -> None:
        try:
            await self._clients.call(self._clients.iam.delete_instance_profile, InstanceProfileName=name)
        except Fault:
            # It carries the class's path and is deleted with the class.
            return

    async def _remove_role(self, name: str, role: str) -> None:
        try:
            await self._clients.call(
                self._clients.iam.remove_role_from_instance_profile, InstanceProfileName=name, RoleName=role
            )
        except NotFound:
            return
