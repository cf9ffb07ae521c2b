"""The instance profile of nodes: an existing one that the class names, or one that Tenure creates for the role.

The name of a created profile contains a hash of region, class and role. A class with a new role gets a new profile, and
running instances keep theirs until the class is deleted.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from cachetools import TTLCache

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import ALREADY_EXISTS
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import as_dict, as_list, cluster_tag, profile_tags
from tenure.model.base import Value
from tenure.model.errors import Conflict, Fault, Forbidden, NotFound

_FRESH_SECONDS: Final = 15 * 60.0
_NAME_LIMIT: Final = 128
_HASH_LENGTH: Final = 20
_MISSING_SECONDS: Final = 50.0
"""Shorter than the check interval of a class that is not ready."""
_NAME: Final = re.compile(r"[\w+=,.@-]{1,128}", re.ASCII)
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


class ProfileInUse(Value):
    name: str
    there: bool
    """Whether the profile exists; otherwise it would be created."""
    whose: Literal["the class's own", "Karpenter's", "Tenure's"]


class Profiles:
    """Raises model.faults."""

    def __init__(self, clients: AwsClients, settings: AwsSettings) -> None:
        self._clients, self._settings = clients, settings
        self._known: TTLCache[tuple[str, str], str] = TTLCache(MAX_ENTRIES, _FRESH_SECONDS)
        self._missing: TTLCache[str, bool] = TTLCache(MAX_ENTRIES, _MISSING_SECONDS)

    async def resolve(self, node_class: EC2NodeClass) -> str:
        """The name of the profile, which is created if missing. Raises NotFound if the role does not exist."""
        if node_class.spec.instance_profile:
            return node_class.spec.instance_profile
        role = _role_of(node_class)
        if self._missing.get(role):
            raise _no_role(role, "")
        return await get_or_load(self._known, (node_class.uid, role), lambda: self._find_or_create(node_class, role))

    async def _find_or_create(self, node_class: EC2NodeClass, role: str) -> str:
        if await self._is_usable(node_class, role):
            return node_class.status.instance_profile
        name = self.name_of(node_class, role)
        await self._ensure_profile(node_class, name, role)
        return name

    async def in_use(self, node_class: EC2NodeClass) -> ProfileInUse:
        """Like `resolve`, but without creating it. Raises NotFound if the class has neither role nor profile."""
        if own := node_class.spec.instance_profile:
            return ProfileInUse(name=own, there=await self._get_profile(own) is not None, whose="the class's own")
        role = _role_of(node_class)
        if await self._is_usable(node_class, role):
            return ProfileInUse(name=node_class.status.instance_profile, there=True, whose="Karpenter's")
        name = self.name_of(node_class, role)
        return ProfileInUse(name=name, there=await self._get_profile(name) is not None, whose="Tenure's")

    async def _is_usable(self, node_class: EC2NodeClass, role: str) -> bool:
        """Whether the status has a profile of another controller for this class that contains the role."""
        name = node_class.status.instance_profile
        if not name or name == self.name_of(node_class, role):
            return False
        found = await self._get_profile(name)
        return found is not None and found["Path"] == self.path_of(node_class) and _role_names(found) == [role]

    def name_of(self, node_class: EC2NodeClass, role: str) -> str:
        identity = "\n".join((self._settings.region, node_class.uid, role))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_LENGTH]
        return f"{self._settings.cluster_name[: _NAME_LIMIT - _HASH_LENGTH - 1]}_{digest}"

    def path_of(self, node_class: EC2NodeClass) -> str:
        return f"/karpenter/{self._settings.region}/{self._settings.cluster_name}/{node_class.uid}/"

    async def clean_up(self, node_class: EC2NodeClass) -> None:
        if self._settings.isolated_vpc:
            return
        found = await self._clients.paginate(
            self._clients.iam.list_instance_profiles, "InstanceProfiles", dict, PathPrefix=self.path_of(node_class)
        )
        old = await self._find_legacy(node_class)
        for profile in [*found, *([old] if old else [])]:
            await self.delete(profile["InstanceProfileName"], _role_names(profile))

    async def _find_legacy(self, node_class: EC2NodeClass) -> Mapping[str, Any] | None:
        """A profile that Karpenter created for the class before it used paths; its tags identify the class."""
        name = legacy_name(self._settings.cluster_name, self._settings.region, node_class.name)
        found = await self._get_profile(name) if _NAME.fullmatch(name) else None
        ours = profile_tags(self._settings, node_class)
        tags = as_dict(found.get("Tags")) if found else {}
        return (
            found
            if all(tags.get(key) == ours[key] for key in (cluster_tag(self._settings), labels.TAG_NODECLASS))
            else None
        )

    async def delete(self, name: str, roles: Sequence[str]) -> None:
        """Remove the listed roles from the profile, then delete it."""
        try:
            for role in roles:
                await self._remove_role(name, role)
            with suppress(NotFound):
                await self._clients.call(self._clients.iam.delete_instance_profile, InstanceProfileName=name)
        except Forbidden:
            # A policy with tag conditions denies a missing resource, as after a lost response of an earlier attempt.
            if await self._roles_of(name) is not None:
                raise
        # The cache is keyed by class and role, not by name.
        self.forget()

    def forget(self) -> None:
        self._known.clear()

    async def _ensure_profile(self, node_class: EC2NodeClass, name: str, role: str) -> None:
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
        """None if the profile does not exist."""
        found = await self._get_profile(name)
        return None if found is None else _role_names(found)

    async def _get_profile(self, name: str) -> Mapping[str, Any] | None:
        try:
            response = await self._clients.call(self._clients.iam.get_instance_profile, InstanceProfileName=name)
        except NotFound:
            return None
        return response["InstanceProfile"]

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
            self._missing[role] = True
            raise _no_role(role, fault.code) from fault
        except Forbidden as fault:
            # IAM also denies a role that does not exist, if the policy lists the roles that may be passed.
            raise Forbidden(f"role {role!r} (spec.role): {fault.message}", code=fault.code) from fault
        except Conflict as fault:
            # Another worker was faster, or the profile has another role.
            if role not in (await self._roles_of(name) or []):
                raise Conflict(f"instance profile {name} has another role than {role}", code=fault.code) from fault

    async def _forget_empty(self, name: str) -> None:
        try:
            await self._clients.call(self._clients.iam.delete_instance_profile, InstanceProfileName=name)
        except Fault:
            # The profile has the class's path and is deleted with the class.
            return

    async def _remove_role(self, name: str, role: str) -> None:
        try:
            await self._clients.call(
                self._clients.iam.remove_role_from_instance_profile, InstanceProfileName=name, RoleName=role
            )
        except NotFound:
            return


def legacy_name(cluster: str, region: str, node_class: str) -> str:
    """The name with Karpenter's former hash, 64-bit FNV-1. For a long cluster name it exceeds IAM's limit."""
    found = _FNV_OFFSET
    for byte in f"{region}{node_class}".encode():
        found = (found * _FNV_PRIME % 2**64) ^ byte
    return f"{cluster}_{found}"


def _role_of(node_class: EC2NodeClass) -> str:
    """The role without its path, as IAM expects it. Raises NotFound if the class has no role."""
    role = node_class.spec.role.rpartition("/")[2]
    if not role:
        raise NotFound("spec.role and spec.instanceProfile are both empty, expected one of them")
    return role


def _role_names(profile: Mapping[str, Any]) -> list[str]:
    return [role["RoleName"] for role in profile.get("Roles", ())]


def _no_role(role: str, code: str) -> NotFound:
    return NotFound(f"role {role!r} (spec.role) does not exist", code=code)
