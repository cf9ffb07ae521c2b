"""Instance types for `tenure simulate`: output of `tenure instance-types export`, or the portable format.

The portable format is a list of `{"name", "architecture", "operatingSystems", "resources", "overhead", "offerings"}`,
each offering `{"Price", "Available", "Requirements": [{"key", "operator", "values"}]}`. A reserved offering may have
`ReservationCapacity`: the number of nodes for which it has capacity.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.quantity import format_amount, parse_resources
from tenure.apis.resources import PODS
from tenure.cli.exit_codes import UsageError
from tenure.cli.simulate.manifests import raising_usage_error, read_text
from tenure.model.instance_types import InstanceType, Offering

EXPORTED: Final = "instanceTypes"
_FAMILY: Final = re.compile(r"(^[a-z]+)(-[0-9]+tb)?([0-9]+).*\.")
_MEBIBYTE: Final = 1 << 20
_SCALAR: Final = (labels.ZONE, labels.ZONE_ID, labels.CAPACITY_TYPE, *labels.RESERVATION_LABELS)
_PODS: Final = 110
"""The kubelet's default."""


def read_types(path: Path) -> tuple[tuple[InstanceType, ...], dict[str, int]]:
    """Also the number of nodes per capacity reservation. Raises `UsageError` with file, type and field."""
    try:
        raw = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    exported = isinstance(raw, dict) and EXPORTED in raw
    items = raw[EXPORTED] if exported else raw
    if not isinstance(items, list) or not items:
        raise UsageError(
            f"{path}: no instance types, expected a list of them or the output of `tenure instance-types export`"
        )
    found: dict[str, InstanceType] = {}
    for number, one in enumerate(items):
        name = one.get("name", f"number {number}") if isinstance(one, dict) else f"number {number}"
        with raising_usage_error(f"{path}: instance type {name}"):
            read = InstanceType.model_validate(one) if exported else _parse_portable_type(one)
            _check(read)
            if read.name in found:
                raise ValueError("name: occurs twice in the file, expected unique names")
            found[read.name] = read
    offerings = [] if exported else [offering for one in items for offering in one["offerings"]]
    return tuple(found.values()), {**_one_each(found.values()), **dict(_reservation_capacities(offerings))}


def _check(read: InstanceType) -> None:
    if not read.name:
        raise ValueError("name: empty, expected the name of the instance type, e.g. m6i.large")
    for one in read.offerings:
        if not one.price >= 0 or isinf(one.price):
            raise ValueError(f"offerings.Price: {one.price!r}: invalid price, expected US dollars an hour")
    for key, amount in (*read.capacity.items(), *read.overhead.items()):
        if amount < 0:
            raise ValueError(f"resources.{key}: {format_amount(key, amount)}: negative, expected 0 or more")


def _one_each(types: Iterable[InstanceType]) -> dict[str, int]:
    """One node for each available capacity reservation, as the minimum for those without a count."""
    return {one.reservation_id: 1 for kind in types for one in kind.offerings if one.reservation_id and one.available}


def _reservation_capacities(offerings: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """Reservation ID and number of nodes, of offerings with `ReservationCapacity`."""
    for one in offerings:
        key, capacity = (
            _single_value(one["Requirements"], labels.CAPACITY_RESERVATION_ID),
            one.get("ReservationCapacity"),
        )
        if key and isinstance(capacity, int):
            yield key, capacity


def _parse_portable_type(raw: Mapping[str, Any]) -> InstanceType:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{raw!r:.60} is not an object")
    resources = {PODS: _PODS, **parse_resources(raw["resources"])}
    return InstanceType(
        name=raw["name"],
        labels=_derive_labels(raw, resources),
        capacity=resources,
        overhead=parse_resources(raw.get("overhead")),
        offerings=tuple(_parse_offering(one) for one in raw["offerings"]),
    )


def _derive_labels(raw: Mapping[str, Any], resources: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Derive labels from the name, the resources, and the offerings (except zone, capacity type and reservation)."""
    family, _, size = str(raw["name"]).partition(".")
    found: dict[str, tuple[str, ...]] = {
        labels.ARCH: (raw["architecture"],),
        labels.OS: tuple(raw["operatingSystems"]),
        labels.INSTANCE_FAMILY: (family,),
        labels.INSTANCE_SIZE: (size,),
        labels.INSTANCE_CPU: (str(resources.get("cpu", 0) // 1000),),
        labels.INSTANCE_MEMORY: (str(resources.get("memory", 0) // _MEBIBYTE),),
    }
    match = _FAMILY.match(str(raw["name"]))
    if match:
        found |= {labels.INSTANCE_CATEGORY: (match[1],), labels.INSTANCE_GENERATION: (match[3],)}
    for key in {one["key"] for offering in raw["offerings"] for one in offering["Requirements"]} - {*_SCALAR}:
        values = (_single_value(offering["Requirements"], key) for offering in raw["offerings"])
        found[key] = tuple(sorted({one for one in values if one}))
    return {key: values for key, values in found.items() if any(values)}


def _parse_offering(raw: Mapping[str, Any]) -> Offering:
    requirements = raw["Requirements"]
    price = raw["Price"]
    if not isinstance(price, int | float) or isinstance(price, bool) or price < 0:
        raise ValueError(f"offerings.Price: {price!r}: invalid price, expected US dollars an hour")
    return Offering(
        zone=_single_value(requirements, labels.ZONE),
        zone_id=_single_value(requirements, labels.ZONE_ID),
        capacity_type=_single_value(requirements, labels.CAPACITY_TYPE) or labels.ON_DEMAND,
        price=float(price),
        available=raw.get("Available", True),
        reservation_id=_single_value(requirements, labels.CAPACITY_RESERVATION_ID),
        reservation_type=_single_value(requirements, labels.CAPACITY_RESERVATION_TYPE),
        interruptible=_single_value(requirements, labels.CAPACITY_RESERVATION_INTERRUPTIBLE) == "true",
    )


def _single_value(requirements: Sequence[Mapping[str, Any]], key: str) -> str:
    """The offering's value for a label; empty if it has none."""
    for one in requirements:
        if one["key"] == key and one["operator"] == "In":
            if len(one["values"]) != 1:
                raise ValueError(
                    f"offerings.Requirements: {key} has {len(one['values'])} values, expected one offering for each"
                )
            return str(one["values"][0])
    return ""
