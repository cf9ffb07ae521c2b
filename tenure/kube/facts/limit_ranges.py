"""Bounds of LimitRanges, checked as by the API server's admission plugin LimitRanger, with its messages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from tenure.apis.quantity import NANO, Quantity, format_amount, parse, parse_resources
from tenure.apis.resources import PODS
from tenure.kube.facts.pod_requests import pod_requests

Json = Mapping[str, Any]
Amounts = Mapping[str, Quantity]


@dataclass(frozen=True)
class ResourceBounds:
    """Bounds by resource for each container, or for the sum of a pod."""

    type: Literal["Container", "Pod"]
    minimum: Amounts
    maximum: Amounts
    max_ratio: Amounts
    """Largest ratio of limit to request."""


def resource_bounds(limit_range: Json) -> tuple[ResourceBounds, ...]:
    """Raises QuantityError."""
    return tuple(
        ResourceBounds(
            one["type"],
            _parse_amounts(one.get("min")),
            _parse_amounts(one.get("max")),
            _parse_amounts(one.get("maxLimitRequestRatio")),
        )
        for one in limit_range["spec"].get("limits") or ()
        if one.get("type") in ("Container", "Pod")
    )


def find_violations(spec: Json, bounds: ResourceBounds) -> Iterator[str]:
    """Why the API server rejects a pod with this spec, which has its defaults."""
    if bounds.type == "Pod":
        return _violations(bounds, _sum_of_pod(spec, "requests"), _sum_of_pod(spec, "limits"))
    return (
        message
        for key in ("containers", "initContainers")
        for one in spec.get(key) or ()
        for message in _violations(bounds, _declared(one, "requests"), _declared(one, "limits"))
    )


def find_requests_above_limits(spec: Json) -> Iterator[str]:
    """Containers that request more than their limit, which may be the default of a LimitRange."""
    for key in ("containers", "initContainers"):
        for index, one in enumerate(spec.get(key) or ()):
            limits = _declared(one, "limits")
            for resource, request in _declared(one, "requests").items():
                if resource in limits and request.nano > limits[resource].nano:
                    where = f"spec.{key}[{index}].resources.requests: Invalid value: "
                    yield f'{where}"{request}": must be less than or equal to {resource} limit of {limits[resource]}'


def _violations(bounds: ResourceBounds, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for checked, explain, text in (
        (bounds.minimum, _explain_below_minimum, "minimum {} usage per {} is {}"),
        (bounds.maximum, _explain_above_maximum, "maximum {} usage per {} is {}"),
        (bounds.max_ratio, _explain_ratio, "{} max limit to request ratio per {} is {}"),
    ):
        for resource, bound in sorted(checked.items()):
            problem = explain(bound, requests.get(resource), limits.get(resource))
            if problem:
                yield text.format(resource, bounds.type, bound) + problem


def _explain_below_minimum(bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    if request is None:
        return ".  No request is specified"
    if request.nano < bound.nano:
        return f", but request is {request}"
    return f", but limit is {limit}" if limit is not None and limit.nano < bound.nano else ""


def _explain_above_maximum(bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    if limit is None:
        return ".  No limit is specified"
    if limit.nano > bound.nano:
        return f", but limit is {limit}"
    return f", but request is {request}" if request is not None and request.nano > bound.nano else ""


def _explain_ratio(bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    if request is None or not request.nano:
        return ", but no request is specified or request is 0"
    if limit is None or not limit.nano:
        return ", but no limit is specified or limit is 0"
    ratio = Decimal(limit.nano) / request.nano
    return f", but provided ratio is {ratio:.6f}" if ratio > Decimal(bound.nano) / NANO else ""


def _declared(container: Json, key: Literal["requests", "limits"]) -> Amounts:
    return _parse_amounts((container.get("resources") or {}).get(key))


def _sum_of_pod(spec: Json, key: Literal["requests", "limits"]) -> Amounts:
    """Without overhead."""
    summed = {
        **_requesting(spec, key),
        "overhead": {},
        **{kind: [_requesting(one, key) for one in spec.get(kind) or ()] for kind in ("containers", "initContainers")},
    }
    amounts = pod_requests(summed)
    return {
        resource: parse(format_amount(resource, amount)) for resource, amount in amounts.items() if resource != PODS
    }


def _requesting(one: Json, key: str) -> Json:
    """The container or spec with its requests or limits as requests."""
    return {**one, "resources": {"requests": (one.get("resources") or {}).get(key) or {}}}


def _parse_amounts(resources: Mapping[str, str] | None) -> Amounts:
    parse_resources(resources)
    return {resource: parse(text) for resource, text in (resources or {}).items()}
