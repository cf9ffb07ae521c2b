"""The API server's admission of pods for manifests that were never submitted: default requests and validation.

LimitRanges, RuntimeClasses and DeviceClasses of the files apply as by the API server and the worker. A pod with a
status is not changed, because an API server has admitted it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tenure.apis.quantity import QuantityError, parse_amount
from tenure.cli.simulate.manifests import Object, namespace_of
from tenure.kube.facts.device_classes import DeviceClasses
from tenure.kube.facts.pod_admission import (
    PodAdmission,
    RuntimeClassDefaults,
    limit_range_rules,
    runtime_class_defaults,
)
from tenure.kube.facts.pod_requests import pod_requests
from tenure.kube.facts.pod_topology import PREFERRED, REQUIRED
from tenure.model.facts import AffinityTerm, Expression, PodFact, Toleration
from tenure.model.requirements import RequirementError, Requirements

_CHOICES: Final = {
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "nodeAffinityPolicy": ("Honor", "Ignore"),
    "nodeTaintsPolicy": ("Honor", "Ignore"),
}
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def admit_pod_spec(spec: Any, field: str = "spec") -> dict[str, Any]:
    """Add a request for each limit. Raises ValueError with field and value."""
    filled: dict[str, Any] = dict(_require_type(dict, spec, field))
    if not filled.get("containers"):
        raise ValueError(f"{field}.containers: missing, expected at least one")
    for key in ("containers", "initContainers"):
        filled[key] = [_with_requests(one, where) for one, where in _iterate_objects(filled, key, field)]
    if "resources" in filled:
        filled["resources"] = _pod_wide(filled, f"{field}.resources")
    _parse_amounts(filled.get("overhead", {}), f"{field}.overhead")
    for one, where in _iterate_objects(filled, "topologySpreadConstraints", field):
        _check_spread(one, where)
    for key, terms in _require_type(dict, filled.get("affinity", {}), f"{field}.affinity").items():
        _check_weights(_require_type(dict, terms, f"{field}.affinity.{key}"), f"{field}.affinity.{key}")
        _check_required(key, terms, f"{field}.affinity.{key}")
    for key in ("tolerations", "volumes"):
        list(_iterate_objects(filled, key, field))
    return filled


def check_pod(pod: PodFact) -> None:
    """Raises ValueError for terms and tolerations that an API server would reject. Label selectors are checked when the
    pod is parsed."""
    for terms, where in (
        (pod.required_terms, "required"),
        ([one.expressions for one in pod.preferred_terms], "preferred"),
    ):
        for term in terms:
            _check_requirements(term, f"spec.affinity.nodeAffinity: {where}")
    for kind, topology_terms in (("podAffinity", pod.affinity), ("podAntiAffinity", pod.anti_affinity)):
        for one in topology_terms:
            _check_term(one, f"spec.affinity.{kind}")
    for toleration in pod.tolerations:
        _check_toleration(toleration)
    for port in pod.host_ports:
        if not 0 < port.port < 1 << 16:
            raise ValueError(f"spec.containers: hostPort: {port.port}: invalid port, expected 1 to 65535")


def _with_requests(container: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not container.get("name"):
        raise ValueError(f"{where}.name: missing, expected the name of the container")
    resources = _require_type(dict, container.get("resources", {}), f"{where}.resources")
    requests, limits = _parse_requests_and_limits(resources, f"{where}.resources")
    return {**container, "resources": {**resources, "requests": {**limits, **requests}}}


def _parse_requests_and_limits(resources: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    requested, allowed = _parse_amounts(requests, f"{where}.requests"), _parse_amounts(limits, f"{where}.limits")
    for key in requested.keys() & allowed.keys():
        if requested[key] > allowed[key]:
            raise ValueError(f"{where}.requests.{key}: {requests[key]!r} is more than its limit {limits[key]!r}")
    return requests, limits


def _pod_wide(spec: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A pod-level limit is also the request for a resource that no container requests."""
    resources = _require_type(dict, spec["resources"], where)
    requests, limits = _parse_requests_and_limits(resources, where)
    of_containers = pod_requests({**spec, "resources": {}, "overhead": {}})
    added = {key: limit for key, limit in limits.items() if key not in of_containers}
    return {**resources, "requests": {**added, **requests}}


def _parse_amounts(resources: Any, where: str) -> dict[str, int]:
    found = {}
    for key, text in _require_type(dict, resources, where).items():
        try:
            found[key] = parse_amount(key, text)
        except QuantityError as error:
            raise ValueError(f"{where}.{key}: {error}") from error
        if found[key] < 0:
            raise ValueError(f"{where}.{key}: {text!r}: negative, expected 0 or more")
    return found


def _check_spread(one: Mapping[str, Any], where: str) -> None:
    for key, least in (("maxSkew", one.get("maxSkew")), ("minDomains", one.get("minDomains", 1))):
        if not isinstance(least, int) or isinstance(least, bool) or least < 1:
            raise ValueError(f"{where}.{key}: {least!r}, expected a whole number above zero")
    if not one.get("topologyKey"):
        raise ValueError(f"{where}.topologyKey: missing, expected a label of nodes, e.g. topology.kubernetes.io/zone")
    for key, choices in _CHOICES.items():
        if key in one and one[key] not in choices:
            raise ValueError(f"{where}.{key}: {one[key]!r}, expected {' or '.join(choices)}")


def _check_required(kind: str, terms: Mapping[str, Any], where: str) -> None:
    if kind != "nodeAffinity":
        list(_iterate_objects(terms, REQUIRED, where))
    elif REQUIRED in terms:
        required = _require_type(dict, terms[REQUIRED], f"{where}.{REQUIRED}")
        if not list(_iterate_objects(required, "nodeSelectorTerms", f"{where}.{REQUIRED}")):
            raise ValueError(f"{where}.{REQUIRED}.nodeSelectorTerms: missing, expected at least one")


def _check_requirements(expressions: Iterable[Expression], where: str) -> None:
    try:
        Requirements.from_expressions(expressions)
    except RequirementError as error:
        raise ValueError(f"{where}: {error}") from error


def _check_term(one: AffinityTerm, where: str) -> None:
    if not one.key:
        raise ValueError(f"{where}: topologyKey: missing, expected a label of nodes, e.g. topology.kubernetes.io/zone")


def _check_weights(terms: Mapping[str, Any], where: str) -> None:
    for one, which in _iterate_objects(terms, PREFERRED, where):
        weight = one.get("weight")
        if not isinstance(weight, int) or not 1 <= weight <= 100:
            raise ValueError(f"{which}.weight: {weight!r}, expected 1 to 100")


def _check_toleration(one: Toleration) -> None:
    where = f"spec.tolerations: {one.key or '(no key)'}"
    if one.operator not in ("Equal", "Exists"):
        raise ValueError(f"{where}: operator: {one.operator!r}, expected Equal or Exists")
    if not one.key and one.operator != "Exists":
        raise ValueError(
            f"{where}: operator: {one.operator!r} without a key, expected Exists, which tolerates every taint"
        )
    if one.effect not in ("", *EFFECTS):
        raise ValueError(f"{where}: effect: {one.effect!r}, expected {', '.join(EFFECTS)} or none")


def _iterate_objects(holder: Mapping[str, Any], key: str, field: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a list with their paths, which contain the name if there is one."""
    for number, one in enumerate(_require_type(list, holder.get(key, []), f"{field}.{key}")):
        where = f"{field}.{key}[{number}]"
        name = _require_type(dict, one, where).get("name")
        yield one, f"{field}.{key}[{name}]" if name else where


def _require_type(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{where}: {value!r:.60} is not {'a list' if kind is list else 'an object'}")
    return value


ADMISSION_KINDS: Final = ("LimitRange", "RuntimeClass", "DeviceClass")


@dataclass
class AdmissionObjects:
    rules: PodAdmission = field(default_factory=PodAdmission)
    device_classes: DeviceClasses = field(default_factory=DeviceClasses)

    def add_object(self, one: Object) -> None:
        """Raises ValueError."""
        name = one["metadata"]["name"]
        if one["kind"] == "RuntimeClass":
            self.rules.set_runtime_class(name, runtime_class_defaults(one))
        elif one["kind"] == "DeviceClass":
            self.device_classes.update(one)
        else:
            self.rules.set_limit_range(namespace_of(one), name, limit_range_rules(one))

    def admit_pod(self, pod: Object) -> Object:
        """The spec of the pod. Raises ValueError."""
        spec = pod.get("spec", {})
        return admit_pod_spec(spec) if pod.get("status") else self.admit(spec, namespace_of(pod))

    def admit(self, spec: Any, namespace: str, where: str = "spec") -> Object:
        """Raises ValueError for a pod that an API server would reject without any LimitRange or RuntimeClass."""
        admitted = admit_pod_spec(spec, where)
        runtime_class = self.rules.get_runtime_class(str(admitted.get("runtimeClassName")))
        if runtime_class is not None:
            _check_runtime_class(admitted, runtime_class, where)
        admitted = dict(self.rules.apply_defaults(admitted, namespace))
        return admitted if self.rules.explain_rejection("", admitted, namespace) else admit_pod_spec(admitted, where)

    def missing_runtime_class(self, spec: Mapping[str, Any], where: str = "spec") -> str:
        """Names the RuntimeClass that no file has; empty if there is none."""
        name = spec.get("runtimeClassName")
        if not name or self.rules.get_runtime_class(name):
            return ""
        return f"{where}.runtimeClassName: {name!r}: no file has this RuntimeClass; add it to the files"


def _check_runtime_class(spec: Object, runtime_class: RuntimeClassDefaults, where: str) -> None:
    name, selector = spec["runtimeClassName"], runtime_class.node_selector
    if spec.get("overhead", runtime_class.overhead) != runtime_class.overhead:
        raise ValueError(f"{where}.overhead: {spec['overhead']!r}: differs from RuntimeClass {name}; leave it out")
    for key, value in spec.get("nodeSelector", {}).items():
        if value != selector.get(key, value):
            raise ValueError(
                f"{where}.nodeSelector.{key}: {value!r}: RuntimeClass {name} requires {selector[key]!r}; remove it"
            )
