"""CreateTags, DeleteTags and DescribeTags for our own and moto's resources, and the rules for tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenure.sandbox.aws.ec2.call import ERROR_NAMES, HEX_ID, Call, not_found
from tenure.sandbox.aws.ec2.filters import compile_filters, matches_filters, paginate
from tenure.sandbox.aws.ec2.state import Environment
from tenure.sandbox.aws.wire.responses import AwsError, dry_run_ok, invalid_value, missing_parameter

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
    """Tags by resource type. Raises InvalidParameterValue for a repeated type."""
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


KINDS = {
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "lt": "launch-template",
    "ami": "image",
    "fleet": "fleet",
    "cr": "capacity-reservation",
    "pg": "placement-group",
    "subnet": "subnet",
    "sg": "security-group",
    "vpc": "vpc",
}
NOUNS = {"i": "instance", "vol": "volume", "eni": "networkInterface", "subnet": "subnet", "sg": "security group"}
FILTERS = frozenset({"key", "value", "resource-id", "resource-type"})


def own_tags(environment: Environment) -> dict[str, dict[str, str]]:
    """The mutable tags of all our own resources, by ID."""
    found: dict[str, dict[str, str]] = {}
    for instance in environment.instances.values():
        found[instance.id] = instance.tags
        found |= {volume.id: volume.tags for volume in instance.volumes}
        found |= {interface.id: interface.tags for interface in instance.interfaces}
    for table in (
        environment.templates,
        environment.images,
        environment.fleets,
        environment.reservations,
        environment.placement_groups,
    ):
        found |= {key: record.tags for key, record in table.items()}
    return found


def create_tags(call: Call) -> dict[str, Any]:
    tags = read_tags(call.params.get("Tags"))
    if not tags:
        raise missing_parameter("Tag")
    targets = _tag_targets(call)
    call.permit_tagging("CreateTags", targets, tags)
    if call.params.get("DryRun"):
        raise dry_run_ok()
    for resource_id, present in targets.items():
        user_keys = {key for key in {**present, **tags} if not key.startswith("aws:")}
        if len(user_keys) > MAX_TAGS:
            raise AwsError(
                "TagLimitExceeded", f"The maximum number of Tags for a resource is {MAX_TAGS}: {resource_id}"
            )
    for resource_id in targets:
        _write(call.environment, resource_id, tags)
    return {"Return": True}


def delete_tags(call: Call) -> dict[str, Any]:
    targets = _tag_targets(call)
    requested = call.params.get("Tags")
    call.permit_tagging("DeleteTags", targets, {tag["Key"]: tag.get("Value", "") for tag in requested or ()})
    for resource_id, present in targets.items():
        doomed = requested if requested is not None else [{"Key": key} for key in present if not key.startswith("aws:")]
        for tag in doomed:
            if "Value" not in tag or present.get(tag["Key"]) == tag["Value"]:
                _remove(call.environment, resource_id, tag["Key"])
    return {"Return": True}


def _tag_targets(call: Call) -> dict[str, dict[str, str]]:
    ids = call.params.get("Resources")
    if not ids:
        raise missing_parameter("resourceIdSet")
    own = own_tags(call.environment)
    unseen = [
        i
        for i in ids
        if i in call.environment.instances and call.environment.instances[i].visible_at > call.environment.clock.now()
    ]
    if unseen:
        raise not_found(unseen, "i", "instance")
    return {one: own[one] if one in own else _foreign_tags(call.environment, one) for one in dict.fromkeys(ids)}


def _foreign_tags(environment: Environment, resource_id: str) -> dict[str, str]:
    prefix = resource_id.split("-")[0]
    if not HEX_ID.match(resource_id):
        raise AwsError("InvalidID", f"The ID '{resource_id}' is not valid")
    network = environment.network
    known: dict[str, bool] = {
        "subnet": network.subnet(resource_id) is not None,
        "sg": network.group(resource_id) is not None,
        "vpc": resource_id in network.backend.vpcs,
    }
    if not known.get(prefix, prefix not in ERROR_NAMES and prefix not in KINDS):
        raise not_found([resource_id], prefix, NOUNS.get(prefix, KINDS.get(prefix, "resource")))
    return network.tags(resource_id)


def _write(environment: Environment, resource_id: str, tags: dict[str, str]) -> None:
    own = own_tags(environment).get(resource_id)
    if own is None:
        environment.network.backend.create_tags([resource_id], tags)
        return
    own.update(tags)
    if resource_id in environment.instances:
        environment.instances[resource_id].invalidate_view()


def _remove(environment: Environment, resource_id: str, key: str) -> None:
    own = own_tags(environment).get(resource_id)
    store = own if own is not None else environment.network.backend.tags.get(resource_id, {})
    store.pop(key, None)
    if resource_id in environment.instances:
        environment.instances[resource_id].invalidate_view()


def describe_tags(call: Call) -> dict[str, Any]:
    filters = compile_filters(call.params.get("Filters"), FILTERS)
    every = {**call.environment.network.backend.tags, **own_tags(call.environment)}
    rows = sorted((resource_id, key, value) for resource_id, tags in every.items() for key, value in tags.items())
    chosen = [row for row in rows if matches_filters(filters, _filter_facts(row))]
    page_items, token = paginate(chosen, call.params, tuple, low=5, high=1000, unpaged=1000)
    views = [{"ResourceId": r, "ResourceType": _resource_type(r), "Key": k, "Value": v} for r, k, v in page_items]
    return {"Tags": views, "NextToken": token}


def _filter_facts(row: tuple[str, str, str]) -> dict[str, list[str]]:
    return {"resource-id": [row[0]], "resource-type": [_resource_type(row[0])], "key": [row[1]], "value": [row[2]]}


def _resource_type(resource_id: str) -> str:
    return KINDS.get(resource_id.split("-")[0], "resource")
