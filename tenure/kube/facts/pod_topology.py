"""Parses a pod's topology spread, pod affinity, host ports and volumes into fields of a fact.

`matchLabelKeys` and `mismatchLabelKeys` become expressions with the values of the pod, so that planning needs only
selectors.
"""

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Any, Final

from tenure.apis.durations import quote
from tenure.apis.labels import NODE_NAME_FIELD

Json = Mapping[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


_SELECTOR_OPERATORS: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
"""Of label selectors, with whether they need values."""


def topology_terms(metadata: Json, spec: Json) -> dict[str, Any]:
    """Labels, spread constraints, pod affinity and anti-affinity, host ports and claims. Empty fields are left out."""
    labels = metadata.get("labels") or {}
    affinity = spec.get("affinity") or {}
    found = {
        "labels": {intern_string(key): intern_string(value) for key, value in labels.items()},
        "spreads": [spread_constraint(one, labels) for one in spec.get("topologySpreadConstraints") or ()],
        "affinity": _affinity_terms(affinity.get("podAffinity") or {}, labels),
        "anti_affinity": _affinity_terms(affinity.get("podAntiAffinity") or {}, labels),
        "host_ports": host_ports(spec),
        "volumes": claim_names(metadata, spec),
    }
    return {key: value for key, value in found.items() if value}


def match_expressions(expressions: Iterable[Json] | None) -> list[dict[str, Any]]:
    """Expressions in the form of facts."""
    return [
        {"key": one["key"], "operator": one["operator"], "values": one.get("values") or ()} for one in expressions or ()
    ]


def node_selector_term(term: Json | None) -> list[dict[str, Any]]:
    """`matchExpressions`, and `matchFields`, whose only key is `metadata.name`."""
    fields = match_expressions((term or {}).get("matchFields"))
    return match_expressions((term or {}).get("matchExpressions")) + [
        {**one, "key": NODE_NAME_FIELD} if one["key"] == "metadata.name" else one for one in fields
    ]


def selector_expressions(raw: Json | None, field: str = "labelSelector") -> list[dict[str, Any]] | None:
    """The ANDed expressions of a label selector; None for a missing selector, which selects nothing.

    Raises ValueError for an expression that Kubernetes rejects. It would select other pods.
    """
    if raw is None:
        return None
    for one in raw.get("matchExpressions") or ():
        if one["operator"] not in _SELECTOR_OPERATORS:
            operators = ", ".join(_SELECTOR_OPERATORS)
            raise ValueError(f"{field}: operator {quote(str(one['operator']))}, expected one of: {operators}")
        if bool(one.get("values")) != _SELECTOR_OPERATORS[one["operator"]]:
            expected = "at least one value" if _SELECTOR_OPERATORS[one["operator"]] else "no values"
            raise ValueError(f"{field}: operator {one['operator']} expects {expected}")
    exact = [{"key": key, "operator": "In", "values": [value]} for key, value in (raw.get("matchLabels") or {}).items()]
    return exact + match_expressions(raw.get("matchExpressions"))


def spread_constraint(one: Json, labels: Json) -> dict[str, Any]:
    """In the form of facts. `labels`: of the pod."""
    return {
        "key": one["topologyKey"],
        "max_skew": one["maxSkew"],
        "hard": one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        "selector": _with_keys(selector_expressions(one.get("labelSelector")), one.get("matchLabelKeys"), "In", labels),
        "min_domains": one.get("minDomains") or 1,
        "honor_affinity": one.get("nodeAffinityPolicy", "Honor") == "Honor",
        "honor_taints": one.get("nodeTaintsPolicy", "Ignore") == "Honor",
    }


def _affinity_terms(affinity: Json, labels: Json) -> list[dict[str, Any]]:
    required = [_affinity_term(one, labels, 0) for one in affinity.get(REQUIRED) or ()]
    preferred = [_affinity_term(one["podAffinityTerm"], labels, one["weight"]) for one in affinity.get(PREFERRED) or ()]
    return required + preferred


def _affinity_term(one: Json, labels: Json, weight: int) -> dict[str, Any]:
    found = _with_keys(selector_expressions(one.get("labelSelector")), one.get("matchLabelKeys"), "In", labels)
    return {
        "key": one["topologyKey"],
        "selector": _with_keys(found, one.get("mismatchLabelKeys"), "NotIn", labels),
        "namespaces": one.get("namespaces") or (),
        "namespace_selector": selector_expressions(one.get("namespaceSelector"), "namespaceSelector"),
        "weight": weight,
    }


def _with_keys(
    found: list[dict[str, Any]] | None, keys: Iterable[str] | None, operator: str, labels: Json
) -> list[dict[str, Any]] | None:
    """Add expressions for label keys. As in the API server, keys that the pod lacks are ignored."""
    if found is None:
        return None
    return found + [{"key": key, "operator": operator, "values": [labels[key]]} for key in keys or () if key in labels]


def host_ports(spec: Json) -> list[dict[str, Any]]:
    """Host ports of containers and sidecars. An unset or all-zero address means every address.

    With hostNetwork, every containerPort is a hostPort. The API server sets it in pods, but not in templates.
    """
    number = "containerPort" if spec.get("hostNetwork") else "hostPort"
    containers = [*(spec.get("containers") or ())]
    containers += [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return [
        {
            "port": port[number],
            "protocol": port.get("protocol") or "TCP",
            "address": "" if (address := port.get("hostIP") or "") in ("0.0.0.0", "::") else address,
        }
        for container in containers
        for port in container.get("ports") or ()
        if port.get(number)
    ]


def claim_names(metadata: Json, spec: Json) -> list[str]:
    """Names of PersistentVolumeClaims. The claim of an ephemeral volume is named after pod and volume."""
    found = []
    for volume in spec.get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim:
            found.append(claim["claimName"])
        elif volume.get("ephemeral"):
            found.append(f"{metadata['name']}-{volume['name']}")
    return found


def intern_string(value: Any) -> Any:
    """Deduplicate strings shared by many pods. The model rejects other types."""
    return intern(value) if type(value) is str else value
