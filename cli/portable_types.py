"""Instance types for `tenure simulate`: what `tenure instance-types export` wrote, or the portable form.

The portable form is a list of `{"name", "architecture", "operatingSystems", "resources", "overhead", "offerings"}`,
each offering `{"Price", "Available", "Requirements": [{"key", "operator", "values"}]}`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from cli.exits import Refused
from model import labels
from model.catalogue import InstanceType, Offering
from model.quantity import QuantityError, parse_resources

EXPORTED: Final = "instanceTypes"
_FAMILY: Final = re.compile(r"(^[a-z]+)(-[0-9]+tb)?([0-9]+).*\.")
_MEBIBYTE: Final = 1 << 20
_SCALAR: Final = (labels.ZONE, labels.ZONE_ID, labels.CAPACITY_TYPE, labels.CAPACITY_RESERVATION_ID)


def read_types(path: Path) -> tuple[InstanceType, ...]:
    """Raises `Refused` that names file, type and field."""
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}; name a file that can be read") from error
    except ValueError as error:
        raise Refused(f"{path}: not JSON: {error}") from error
    exported = isinstance(raw, dict) and EXPORTED in raw
    items = raw[EXPORTED] if exported else raw
    if not isinstance(items, list) or not items:
        raise Refused(f"{path}: no instance types; write a list of them, or what `tenure instance-types export` prints")
    return tuple(_read(path, number, one, exported=exported) for number, one in enumerate(items))


def _read(path: Path, number: int, raw: Any, *, exported: bool) -> InstanceType:
    name = raw.get("name", f"number {number}") if isinstance(raw, dict) else f"number {number}"
    try:
        return InstanceType.model_validate(raw) if exported else _portable(raw)
    except KeyError as error:
        raise Refused(f"{path}: instance type {name}: the field {error} is missing") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refused(f"{path}: instance type {name}: {where}: {first['msg']}") from error
    except (QuantityError, ValueError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: instance type {name}: {error}") from error


def _portable(raw: Mapping[str, Any]) -> InstanceType:
    resources = parse_resources(raw["resources"])
    return InstanceType(
        name=raw["name"],
        labels=_labels(raw, resources),
        capacity=resources,
        overhead=parse_resources(raw.get("overhead")),
        offerings=tuple(_offering(one) for one in raw["offerings"]),
    )


def _labels(raw: Mapping[str, Any], resources: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """What the name and the resources tell, and what the offerings say beside zone and capacity type."""
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
        values = (_value(offering["Requirements"], key) for offering in raw["offerings"])
        found[key] = tuple(sorted({one for one in values if one}))
    return {key: values for key, values in found.items() if any(values)}


def _offering(raw: Mapping[str, Any]) -> Offering:
    wanted = raw["Requirements"]
    price = raw["Price"]
    if not isinstance(price, int | float) or isinstance(price, bool) or price < 0:
        raise ValueError(f"offerings.Price: {price!r} is no price; write US dollars an hour")
    return Offering(
        zone=_value(wanted, labels.ZONE),
        zone_id=_value(wanted, labels.ZONE_ID),
        capacity_type=_value(wanted, labels.CAPACITY_TYPE) or labels.ON_DEMAND,
        price=float(price),
        available=bool(raw.get("Available", True)),
        reservation_id=_value(wanted, labels.CAPACITY_RESERVATION_ID),
    )


def _value(requirements: Sequence[Mapping[str, Any]], key: str) -> str:
    """The one value that an offering has for a label; empty when it says nothing."""
    for one in requirements:
        if one["key"] == key and one["operator"] == "In":
            if len(one["values"]) != 1:
                raise ValueError(
                    f"offerings.Requirements: {key} has {len(one['values'])} values; write one offering each"
                )
            return str(one["values"][0])
    return ""
