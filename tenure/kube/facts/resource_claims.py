"""The subset of ResourceClaims that Tenure plans: a device class, a number of devices and CEL selectors.

Everything else is refused with the name of its field, since an unknown field may exclude devices.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tenure.kube.facts.device_selectors import SelectorError, compile_selector
from tenure.kube.facts.resource_slices import DeviceKey, Expressions, find_other_field

Json = Mapping[str, Any]

PREFIX: Final = "spec.resourceClaims"
"""Every reason for which the claims of a pod cannot be planned begins with it."""
_UNSUPPORTED: Final = "Tenure does not support this field of Dynamic Resource Allocation"


@dataclass(frozen=True)
class DeviceRequest:
    """`count` devices of a class that satisfy all selectors."""

    device_class: str
    selectors: Expressions
    count: int


@dataclass(frozen=True)
class ClaimSpec:
    requests: tuple[DeviceRequest, ...] = ()
    problem: str = ""
    """The field that cannot be planned, with the reason; empty if there is none."""


@dataclass(frozen=True)
class Claim:
    uid: str
    spec: ClaimSpec
    is_allocated: bool
    devices: frozenset[DeviceKey]
    """The allocated devices, except those that adminAccess shares."""
    pods: frozenset[str]
    """UIDs of the consumers for which the claim is reserved."""
    is_deleting: bool


@dataclass(frozen=True)
class DeviceClass:
    selectors: Expressions
    problem: str = ""


@dataclass(frozen=True)
class ClaimReference:
    """One entry of a pod's `spec.resourceClaims`."""

    claim: str
    """`namespace/name`; empty for a claim that is not created yet."""
    template: str
    """`namespace/name` of the ResourceClaimTemplate; empty for a claim that the pod names."""


class ClaimError(ValueError):
    """A field that cannot be planned, with the reason."""


def resource_claim(raw: Json) -> Claim:
    """Raises KeyError for an allocation without its required fields."""
    status = raw.get("status") or {}
    allocation = status.get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    return Claim(
        raw["metadata"]["uid"],
        claim_spec(raw.get("spec") or {}),
        allocation is not None,
        frozenset((one["driver"], one["pool"], one["device"]) for one in results if not one.get("adminAccess")),
        frozenset(one["uid"] for one in status.get("reservedFor") or ()),
        "deletionTimestamp" in raw["metadata"],
    )


def claim_spec(spec: Json) -> ClaimSpec:
    """Every error is the problem of this claim only."""
    try:
        return ClaimSpec(tuple(_read_requests(spec)))
    except ClaimError as error:
        return ClaimSpec(problem=str(error))
    except Exception as error:
        return ClaimSpec(problem=f"the claim cannot be read: {type(error).__name__}: {error}")


def device_class(raw: Json) -> DeviceClass:
    """Every error is the problem of this class only."""
    spec = raw.get("spec") or {}
    try:
        _check_fields(spec, "spec", "selectors", "config", "extendedResourceName")
        return DeviceClass(tuple(_read_selectors(spec, "spec")))
    except ClaimError as error:
        return DeviceClass((), str(error))
    except Exception as error:
        return DeviceClass((), f"the class cannot be read: {type(error).__name__}: {error}")


def claim_references(pod: Json) -> tuple[ClaimReference, ...]:
    """Raises ClaimError."""
    namespace, found = pod["metadata"]["namespace"], list[ClaimReference]()
    statuses = {one["name"]: one for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for one in pod["spec"].get("resourceClaims") or ():
        path = f"{PREFIX}[{one['name']}]"
        _check_fields(one, path, "name", "resourceClaimName", "resourceClaimTemplateName")
        claim, template = one.get("resourceClaimName"), one.get("resourceClaimTemplateName")
        if bool(claim) == bool(template):
            raise ClaimError(f"{path}: names neither a claim nor a template, or both")
        claim = claim or statuses.get(one["name"], {}).get("resourceClaimName")
        named, made_from = (f"{namespace}/{name}" if name else "" for name in (claim, template))
        found.append(ClaimReference(named, made_from))
    return tuple(found)


def without_claims(spec: Json) -> dict[str, Any]:
    """A pod spec as if it had no claims. A container's `claims` only say which devices it may access."""
    found = {key: value for key, value in spec.items() if key != "resourceClaims"}
    for key in ("containers", "initContainers"):
        if spec.get(key):
            found[key] = [_without_container_claims(one) for one in spec[key]]
    return found


def _without_container_claims(container: Json) -> Json:
    resources = container.get("resources") or {}
    claims = resources.get("claims") or ()
    if not claims or any(one.keys() - {"name", "request"} for one in claims):
        return container
    return {**container, "resources": {key: value for key, value in resources.items() if key != "claims"}}


def _read_requests(spec: Json) -> Iterator[DeviceRequest]:
    _check_fields(spec, "spec", "devices")
    devices = spec.get("devices") or {}
    _check_fields(devices, "spec.devices", "requests", "config")
    for request in devices.get("requests") or ():
        path = f"spec.devices.requests[{request['name']}]"
        _check_fields(request, path, "name", "exactly")
        exactly, path = request["exactly"], f"{path}.exactly"
        _check_fields(exactly, path, "deviceClassName", "selectors", "allocationMode", "count")
        mode = exactly.get("allocationMode") or "ExactCount"
        if mode != "ExactCount":
            raise ClaimError(f"{path}.allocationMode: Tenure does not support {mode}")
        selectors = tuple(_read_selectors(exactly, path))
        yield DeviceRequest(exactly["deviceClassName"], selectors, int(exactly.get("count") or 1))


def _read_selectors(value: Json, path: str) -> Iterator[str]:
    for index, one in enumerate(value.get("selectors") or ()):
        at = f"{path}.selectors[{index}]"
        _check_fields(one, at, "cel")
        _check_fields(one.get("cel") or {}, f"{at}.cel", "expression")
        try:
            compile_selector(one["cel"]["expression"])
        except SelectorError as error:
            raise ClaimError(f"{at}.cel: {error}") from None
        yield one["cel"]["expression"]


def _check_fields(value: Json, path: str, *known: str) -> None:
    if other := find_other_field(value, set(known)):
        raise ClaimError(f"{path}.{other}: {_UNSUPPORTED}")
