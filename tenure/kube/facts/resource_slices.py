"""Devices that DRA drivers publish in ResourceSlices, reduced to those that Tenure can plan.

A device with a field that is not listed here, such as taints, shared counters or binding conditions, is not used. The
same applies to a slice, except that it counts for its pool.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final

from tenure.apis.quantity import QuantityError
from tenure.kube.facts.device_selectors import SelectorError, compile_selector, parse_capacity, parse_version

Json = Mapping[str, Any]
Expressions = tuple[str, ...]
DeviceKey = tuple[str, str, str]
"""Driver, pool and name."""
PoolKey = tuple[str, str]
"""Driver and pool."""

_SLICE_FIELDS: Final = frozenset({"driver", "pool", "nodeName", "devices"})
_DEVICE_FIELDS: Final = frozenset({"name", "attributes", "capacity"})
_UNSUPPORTED_FIELDS: Final = frozenset(
    {
        *("nodeSelector", "allNodes", "perDeviceNodeSelection", "sharedCounters"),
        *("consumesCounters", "taints", "bindsToNode", "bindingConditions", "bindingFailureConditions"),
        *("allowMultipleAllocations", "requestPolicy", "suitableNodes"),
        *("constraints", "firstAvailable", "adminAccess", "tolerations", "capacity"),
    }
)
"""Fields of slices, devices, claims and classes that have no effect while they are empty."""
_ABSENT: Final[tuple[object, ...]] = (None, "", False, [], {})


@dataclass(frozen=True, eq=False)
class Device:
    key: DeviceKey
    variables: Json
    """`device` in expressions."""
    _results: dict[Expressions, bool] = field(default_factory=dict)

    def matches(self, expressions: Expressions) -> bool:
        """Whether all expressions hold; the first that does not hides errors of later ones, as in kube-scheduler.

        Raises SelectorError."""
        known = self._results.get(expressions)
        if known is None:
            known = self._results[expressions] = self._evaluate(expressions)
        return known

    def retain_results(self, used: Set[Expressions]) -> None:
        """Forget the results of all other expressions."""
        for one in self._results.keys() - used:
            del self._results[one]

    def _evaluate(self, expressions: Expressions) -> bool:
        try:
            return all(compile_selector(one).matches(self.variables) for one in expressions)
        except SelectorError as error:
            raise SelectorError(f"{error}, for the device {self.key[2]} of the pool {self.key[1]}") from None


@dataclass(frozen=True)
class Slice:
    name: str
    version: str
    """Its resourceVersion."""
    node: str
    """Empty for devices that are not local to one node, which are not used."""
    pool: PoolKey
    generation: int
    slice_count: int
    """The number of slices of the pool's generation."""
    devices: tuple[Device, ...]
    device_names: tuple[str, ...]
    """Also of the devices that are not used."""


def resource_slice(raw: Json) -> Slice:
    """Raises KeyError for a slice without its required fields."""
    spec = raw["spec"]
    driver, pool = spec["driver"], spec["pool"]
    is_supported = not find_other_field(spec, _SLICE_FIELDS)
    devices = spec.get("devices") or ()
    return Slice(
        raw["metadata"]["name"],
        raw["metadata"].get("resourceVersion", ""),
        spec.get("nodeName") or "",
        (driver, pool["name"]),
        int(pool["generation"]),
        int(pool["resourceSliceCount"]),
        tuple(_read_devices(driver, pool["name"], devices)) if is_supported else (),
        tuple(one["name"] for one in devices),
    )


def list_published_drivers(slices: Iterable[Slice]) -> set[str]:
    """The drivers with a complete pool among the slices of one node."""
    return {pool[0] for pool, _ in _iterate_complete_pools(slices)}


def usable_devices(slices: Iterable[Slice]) -> list[Device]:
    """The devices of one node's complete pools, except pools with a device name twice."""
    found = list[Device]()
    for _, current in _iterate_complete_pools(slices):
        names = Counter(name for one in current for name in one.device_names)
        if max(names.values(), default=0) < 2:
            found += (device for one in sorted(current, key=lambda one: one.name) for device in one.devices)
    return found


def _iterate_complete_pools(slices: Iterable[Slice]) -> Iterator[tuple[PoolKey, list[Slice]]]:
    """Each pool of which all slices of the newest generation are there, with these slices."""
    by_pool: dict[PoolKey, list[Slice]] = {}
    for one in slices:
        by_pool.setdefault(one.pool, []).append(one)
    for key, pool in by_pool.items():
        newest = max(one.generation for one in pool)
        current = [one for one in pool if one.generation == newest]
        if all(one.slice_count == len(current) for one in current):
            yield key, current


def find_other_field(value: Json, known: Set[str]) -> str:
    """The first field that is not `known` and may have an effect; empty if there is none."""
    others = sorted(value.keys() - known)
    return next((one for one in others if one not in _UNSUPPORTED_FIELDS or value[one] not in _ABSENT), "")


def _read_devices(driver: str, pool: str, devices: Iterable[Json]) -> Iterator[Device]:
    for one in devices:
        if find_other_field(one, _DEVICE_FIELDS):
            continue
        try:
            yield Device((driver, pool, one["name"]), build_variables(driver, one))
        except (ValueError, QuantityError):
            continue


def build_variables(driver: str, device: Json) -> Json:
    """`device` in expressions. A name without a domain belongs to the driver. Raises ValueError for a value that
    expressions cannot use."""
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    for name, value in (device.get("attributes") or {}).items():
        domain, key = _split_name(driver, name)
        attributes.setdefault(domain, {})[key] = _attribute_value(value)
    for name, value in (device.get("capacity") or {}).items():
        domain, key = _split_name(driver, name)
        if find_other_field(value, {"value"}):
            raise ValueError(f"{name}: consumable capacity is not supported")
        capacity.setdefault(domain, {})[key] = parse_capacity(value["value"])
    return {"driver": driver, "attributes": attributes, "capacity": capacity}


def _split_name(driver: str, name: str) -> tuple[str, str]:
    domain, _, key = name.rpartition("/")
    return domain or driver, key


def _attribute_value(value: Json) -> Any:
    match dict(value):
        case {"string": str(found)} | {"bool": bool(found)} | {"int": int(found)} if len(value) == 1:
            return found
        case {"version": str(found)} if len(value) == 1:
            return parse_version(found)
    raise ValueError(f"the type {', '.join(sorted(value))} is not supported")
