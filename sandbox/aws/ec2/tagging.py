"""Tags: reading TagSpecifications, the rules for keys and values, and tags as a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.aws.wire.errors import AwsError, invalid_value

MAX_TAGS = 50


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def read_tags(tags: Iterable[dict[str, Any]] | None) -> dict[str, str]:
    """Raises InvalidParameterValue for reserved or overlong tags, TagLimitExceeded for more than 50."""
    found: dict[str, str] = {}
    for tag in tags or ():
        key, value = tag.get("Key"), tag.get("Value", "")
        if not key:
            raise invalid_value("Tag key cannot be empty")
        _check(key, value)
        found[key] = value
    if len(found) > MAX_TAGS:
        raise AwsError("TagLimitExceeded", f"The maximum number of Tags for a resource is {MAX_TAGS}")
    return found


def read_specifications(specifications: Iterable[dict[str, Any]] | None) -> dict[str, dict[str, str]]:
    """Tags by resource type. Raises InvalidParameterValue where one type is named twice."""
    found: dict[str, dict[str, str]] = {}
    for one in specifications or ():
        kind = one.get("ResourceType")
        if not kind:
            raise invalid_value("Tag specification resource type must have a value")
        if kind in found:
            raise invalid_value("The same resource type may not be specified more than once in tag specifications")
        found[kind] = read_tags(one.get("Tags"))
    return found


def _check(key: str, value: str) -> None:
    if key.lower().startswith("aws:"):
        raise invalid_value("Tag keys starting with 'aws:' are reserved for internal use")
    if len(key) > 128:
        raise invalid_value(f"Tag key exceeds the maximum length of 128 characters: {key}")
    if len(value) > 256:
        raise invalid_value(f"Tag value exceeds the maximum length of 256 characters: {value}")
