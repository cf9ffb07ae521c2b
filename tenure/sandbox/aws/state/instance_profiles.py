"""moto's instance profiles, for launches, authorization and ListInstanceProfiles."""

from __future__ import annotations

from typing import Any

from moto.iam.models import iam_backends


def instance_profiles(account: str) -> list[Any]:
    """moto's objects: name, arn, id, path, tags (a list of Key and Value), roles."""
    return list(iam_backends[account]["aws"].instance_profiles.values())


def profile_named(account: str, name: str) -> Any | None:
    return next((profile for profile in instance_profiles(account) if profile.name == name), None)


def profile_at(account: str, arn: str) -> Any | None:
    return next((profile for profile in instance_profiles(account) if profile.arn == arn), None)


def role_arn(account: str, name: str) -> str | None:
    """The ARN with the path of the role. None if the role does not exist."""
    roles = iam_backends[account]["aws"].roles.values()
    return next((str(role.arn) for role in roles if role.name == name), None)
