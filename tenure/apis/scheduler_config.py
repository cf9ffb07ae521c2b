"""Karpenter's SCHEDULER_CONFIG: default topology spread constraints (reference 1.15, 7.1).

The shape is Karpenter's own, and not that of a KubeSchedulerConfiguration.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from tenure.apis.crd_schema import QUALIFIED_NAME
from tenure.apis.durations import quote

Json = Mapping[str, Any]
EXAMPLE: Final = (
    '{"podTopologySpread":{"defaultConstraints":[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone",'
    '"whenUnsatisfiable":"ScheduleAnyway"}]}}'
)
MAX_LENGTH: Final = 16_384
"""Characters."""
MAX_CONSTRAINTS: Final = 16
_LIST: Final = "podTopologySpread.defaultConstraints"
_CHOICES: Final = {
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "nodeAffinityPolicy": ("Honor", "Ignore"),
    "nodeTaintsPolicy": ("Honor", "Ignore"),
}
_FORBIDDEN: Final = ("labelSelector", "matchLabelKeys")
_FIELDS: Final = ("maxSkew", "topologyKey", "minDomains", *_CHOICES)
_REQUIRED: Final = ("maxSkew", "topologyKey", "whenUnsatisfiable")


def parse_default_constraints(text: str) -> list[Json]:
    """The constraints of YAML or JSON, in the form of a pod's; none for an empty text. Raises ValueError with the field
    and the expected form."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{len(text)} characters, expected at most {MAX_LENGTH}")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"invalid YAML: {quote(str(error), 120)}; expected e.g. {EXAMPLE}") from error
    if document is None:
        return []
    spread = _only_field(document, "podTopologySpread", "")
    found = _only_field(spread, "defaultConstraints", "podTopologySpread") if spread is not None else None
    if not isinstance([] if found is None else found, list) or len(found or ()) > MAX_CONSTRAINTS:
        raise ValueError(f"{_LIST}: expected a list of at most {MAX_CONSTRAINTS} constraints")
    constraints: list[Json] = found or []
    for number, one in enumerate(constraints):
        _check_constraint(one, f"{_LIST}[{number}]")
    _check_unique(constraints)
    return constraints


def normalize(text: str) -> str:
    """One form for texts of the same meaning. Raises ValueError."""
    constraints = parse_default_constraints(text)
    document = {"podTopologySpread": {"defaultConstraints": constraints}}
    return json.dumps(document, sort_keys=True, separators=(",", ":")) if constraints else ""


def _only_field(owner: Any, name: str, path: str) -> Any:
    if not isinstance(owner, dict):
        raise ValueError(f"{path or 'document'}: expected an object with the field {name}, e.g. {EXAMPLE}")
    if unknown := [str(key) for key in owner if key != name]:
        raise ValueError(f"{f'{path}.' if path else ''}{quote(unknown[0])}: unknown field, expected {name}")
    return owner.get(name)


def _check_constraint(one: Any, path: str) -> None:
    if not isinstance(one, dict):
        raise ValueError(f"{path}: expected an object, e.g. {EXAMPLE}")
    for name in map(str, one):
        if name in _FORBIDDEN:
            raise ValueError(f"{path}.{name}: forbidden, since Services and controllers select the pods; remove it")
        if name not in _FIELDS:
            raise ValueError(f"{path}.{quote(name)}: unknown field, expected one of {', '.join(_FIELDS)}")
    if missing := [name for name in _REQUIRED if name not in one]:
        raise ValueError(f"{path}.{missing[0]}: missing, expected e.g. {EXAMPLE}")
    for name in ("maxSkew", "minDomains"):
        if name in one and (type(one[name]) is not int or not 0 < one[name] < 2**31):
            raise ValueError(f"{path}.{name}: {quote(str(one[name]))}, expected a number above 0, e.g. 1")
    key = str(one["topologyKey"])
    if not re.fullmatch(QUALIFIED_NAME, key):
        raise ValueError(f"{path}.topologyKey: {quote(key)}, expected a label key, e.g. topology.kubernetes.io/zone")
    for name, choices in _CHOICES.items():
        if name in one and one[name] not in choices:
            raise ValueError(f"{path}.{name}: {quote(str(one[name]))}, expected {' or '.join(choices)}")
    if "minDomains" in one and one["whenUnsatisfiable"] != "DoNotSchedule":
        raise ValueError(f"{path}.minDomains: expected only with whenUnsatisfiable: DoNotSchedule; remove it")


def _check_unique(constraints: list[Json]) -> None:
    known = set[tuple[str, str]]()
    for number, one in enumerate(constraints):
        key = (one["topologyKey"], one["whenUnsatisfiable"])
        if key in known:
            raise ValueError(f"{_LIST}[{number}]: another constraint has the same topologyKey and whenUnsatisfiable")
        known.add(key)
