"""Admission of a pod template, as by the API server's plugins LimitRanger and RuntimeClass.

A DaemonSet without a live pod shows only its template, which these plugins do not change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenure.apis.quantity import parse_resources
from tenure.kube.facts.limit_ranges import ResourceBounds, find_requests_above_limits, find_violations, resource_bounds

Json = Mapping[str, Any]


@dataclass(frozen=True)
class LimitRangeRules:
    """Amounts, as text, for containers that do not declare them, and the bounds; from a LimitRange of the namespace."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    bounds: tuple[ResourceBounds, ...] = ()


@dataclass(frozen=True)
class RuntimeClassDefaults:
    """Additions to its pods; amounts as text."""

    overhead: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()


def limit_range_rules(limit_range: Json) -> LimitRangeRules:
    """Defaults come from the item of type Container. A missing default limit is the maximum; a missing default request
    is the default limit or the minimum, as in the defaults of the API. Raises QuantityError."""
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    for one in limit_range["spec"].get("limits") or ():
        if one.get("type") == "Container":
            limits = {**(one.get("max") or {}), **(one.get("default") or {})}
            requests = {**(one.get("min") or {}), **limits, **(one.get("defaultRequest") or {})}
    parse_resources(limits)
    parse_resources(requests)
    return LimitRangeRules(requests, limits, resource_bounds(limit_range))


def runtime_class_defaults(runtime_class: Json) -> RuntimeClassDefaults:
    """Raises QuantityError."""
    overhead = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    parse_resources(overhead)
    scheduling = runtime_class.get("scheduling") or {}
    return RuntimeClassDefaults(
        overhead, scheduling.get("nodeSelector") or {}, tuple(scheduling.get("tolerations") or ())
    )


def apply_admission_defaults(
    spec: Json, limit_ranges: Iterable[LimitRangeRules], runtime_classes: Mapping[str, RuntimeClassDefaults]
) -> Json:
    """The spec with the defaults of LimitRanges, and the overhead, node selector and tolerations of its RuntimeClass.

    An unknown RuntimeClass changes nothing.
    """
    admitted = dict(spec)
    for one in limit_ranges:
        for key in ("containers", "initContainers"):
            if admitted.get(key):
                admitted[key] = [_with_defaults(container, one) for container in admitted[key]]
    runtime_class = runtime_classes.get(spec.get("runtimeClassName") or "")
    if runtime_class is None:
        return admitted
    return admitted | {
        "overhead": spec.get("overhead") or runtime_class.overhead,
        "nodeSelector": {**runtime_class.node_selector, **(spec.get("nodeSelector") or {})},
        "tolerations": [*(spec.get("tolerations") or ()), *runtime_class.tolerations],
    }


def explain_rejection(name: str, spec: Json, limit_ranges: Iterable[LimitRangeRules]) -> str:
    """The API server's error for a pod with this admitted spec; empty if it accepts the pod."""
    for problem in find_requests_above_limits(spec):
        return f'Pod "{name}" is invalid: {problem}'
    for one in limit_ranges:
        messages = dict.fromkeys(message for bounds in one.bounds for message in find_violations(spec, bounds))
        if messages:
            text = ", ".join(messages)
            return f'pods "{name}" is forbidden: {f"[{text}]" if len(messages) > 1 else text}'
    return ""


class PodAdmission:
    """LimitRanges and RuntimeClasses, applied to the specs of pods and pod templates."""

    def __init__(self) -> None:
        self._limit_ranges: dict[tuple[str, str], LimitRangeRules] = {}
        """By namespace and name."""
        self._runtime_classes: dict[str, RuntimeClassDefaults] = {}

    def set_limit_range(self, namespace: str, name: str, rules: LimitRangeRules | None) -> None:
        """None removes it."""
        self._limit_ranges.pop((namespace, name), None)
        if rules is not None:
            self._limit_ranges[namespace, name] = rules

    def set_runtime_class(self, name: str, defaults: RuntimeClassDefaults | None) -> None:
        """None removes it."""
        self._runtime_classes.pop(name, None)
        if defaults is not None:
            self._runtime_classes[name] = defaults

    def get_runtime_class(self, name: str) -> RuntimeClassDefaults | None:
        return self._runtime_classes.get(name)

    def apply_defaults(self, spec: Json, namespace: str) -> Json:
        """`apply_admission_defaults` with the objects of this namespace, LimitRanges in the order of their names."""
        return apply_admission_defaults(spec, self._limit_ranges_in(namespace), self._runtime_classes)

    def explain_rejection(self, name: str, spec: Json, namespace: str) -> str:
        """`explain_rejection` with the LimitRanges of this namespace."""
        return explain_rejection(name, spec, self._limit_ranges_in(namespace))

    def _limit_ranges_in(self, namespace: str) -> list[LimitRangeRules]:
        return [self._limit_ranges[key] for key in sorted(self._limit_ranges) if key[0] == namespace]


def _with_defaults(container: Json, defaults: LimitRangeRules) -> Json:
    """A declared limit is also the request, since the API server sets it before LimitRanger runs."""
    declared = container.get("resources") or {}
    limits = declared.get("limits") or {}
    requests = {**defaults.requests, **limits, **(declared.get("requests") or {})}
    return {**container, "resources": {**declared, "limits": {**defaults.limits, **limits}, "requests": requests}}
