"""CRD schema annotations of model fields, in addition to the Python types.

The models do not enforce them; the API server does. `tools/crds/schema.py` generates the CRDs from them. Keywords are
those of OpenAPI and Kubernetes. Patterns and limits are Karpenter's, so that the CRDs accept the same input.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.durations import MAX_LENGTH


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule, and a message with the expected form."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Crd:
    """Constraints of a field; `items` applies to list items or map values, `fields` to an object's fields by alias.

    The description is the docstring below the field, or `doc` if several fields share one.
    """

    schema: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    required: bool = False
    items: "Crd | None" = None
    fields: Mapping[str, "Crd"] = field(default_factory=dict)
    doc: str = ""


def not_empty(message: str) -> tuple[Rule, ...]:
    return (Rule("self != ''", message),)


QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
QUALIFIED_NAME: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
MAX_LABEL_KEY: Final = 316
"""Characters: 253 for the prefix, 63 for the name."""
MAX_LABEL_VALUE: Final = 63
"""Characters; also of the name in a key."""
LABEL_VALUE_FORM: Final = f"at most {MAX_LABEL_VALUE} letters, digits, '-', '_' and '.'"
LABEL_VALUE: Final = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
DURATION: Final = r"^([0-9]+(s|m|h))+$"
DURATION_SCHEMA: Final[dict[str, Any]] = {"pattern": DURATION, "maxLength": MAX_LENGTH}
"""For Tenure's own kinds. Karpenter's kinds have no `maxLength`, so that they accept the same objects as Karpenter."""
DURATION_OR_NEVER: Final = r"^(([0-9]+(s|m|h))+|Never)$"
CRON: Final = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
INT32: Final[Mapping[str, Any]] = {"format": "int32"}
INT64: Final[Mapping[str, Any]] = {"format": "int64"}
ATOMIC: Final[Mapping[str, Any]] = {"x-kubernetes-list-type": "atomic"}
BY_TYPE: Final[Mapping[str, Any]] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}

_CORE_KEYS: Final = ", ".join(f"'{key}'" for key in (labels.CAPACITY_TYPE, labels.NODEPOOL))
_AWS_KEYS: Final = ", ".join(
    f"'{key}'"
    for key in sorted({labels.NODECLASS, *(k for k in labels.AWS_WELL_KNOWN if k.startswith(labels.AWS_GROUP + "/"))})
)


def label_key_rules(*, of_each_key: bool, pool: bool) -> tuple[Rule, ...]:
    """The reserved label keys, for one key (`self`) or for each key of a map; `pool` forbids the pool's own label."""
    reserved = [
        Rule(
            _expression_for(of_each_key, f"KEY in [{_CORE_KEYS}] || !KEY.split('/')[0].endsWith('karpenter.sh')"),
            "label domain karpenter.sh is restricted: expected karpenter.sh/capacity-type or another domain, "
            "e.g. example.com/team",
        ),
        Rule(
            _expression_for(of_each_key, f"KEY in [{_AWS_KEYS}] || !KEY.split('/')[0].endsWith('karpenter.k8s.aws')"),
            "label domain karpenter.k8s.aws is restricted: expected a well-known label, "
            "e.g. karpenter.k8s.aws/instance-family, or another domain, e.g. example.com/team",
        ),
        Rule(
            _expression_for(of_each_key, "KEY != 'kubernetes.io/hostname'"),
            "label kubernetes.io/hostname is restricted, because the node sets it at startup: use another label",
        ),
    ]
    if pool:
        reserved.append(
            Rule(
                _expression_for(of_each_key, "KEY != 'karpenter.sh/nodepool'"),
                "label karpenter.sh/nodepool is restricted, because it is always the NodePool's name: remove it",
            )
        )
    return tuple(reserved)


def is_nodeclaim_label_key(key: str) -> bool:
    """Whether the CustomResourceDefinition of NodeClaims accepts requirements for this label, by `label_key_rules` and
    the pattern."""
    if key in labels.WELL_KNOWN or key == labels.NODECLASS:
        return True
    is_restricted = key in labels.RESTRICTED_LABELS or key.split("/")[0].endswith(tuple(labels.RESTRICTED_DOMAINS))
    return not is_restricted and len(key) <= MAX_LABEL_KEY and re.fullmatch(QUALIFIED_NAME, key) is not None


def is_label_key(key: str) -> bool:
    """Whether a label, an annotation or a taint may have this key, by `IsQualifiedName` of Kubernetes."""
    prefix, _, name = key.rpartition("/")
    is_short = len(name) <= MAX_LABEL_VALUE and len(prefix) <= MAX_LABEL_KEY - MAX_LABEL_VALUE
    return is_short and re.fullmatch(QUALIFIED_NAME, key) is not None


_LABEL_VALUE: Final = re.compile(LABEL_VALUE)


def is_label_value(value: str) -> bool:
    """Also of a taint."""
    return len(value) <= MAX_LABEL_VALUE and _LABEL_VALUE.fullmatch(value) is not None


def _expression_for(each_key: bool, expression: str) -> str:
    if each_key:
        return f"self.all(k, {expression.replace('KEY', 'k')})"
    return expression.replace("KEY", "self")


REQUIREMENT_RULES: Final = (
    Rule(
        "self.all(r, r.operator != 'In' || (has(r.values) && size(r.values) > 0))",
        "requirements with operator 'In' must have a value defined; to match any value, use operator: Exists",
    ),
    Rule(
        "self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(r.values) && size(r.values) == 1 "
        "&& int(r.values[0]) >= 0))",
        "requirements with operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single non-negative integer value, "
        "e.g. values: ['4']",
    ),
    Rule(
        "self.all(r, r.operator != 'In' || !has(r.minValues) || !has(r.values) || size(r.values) >= r.minValues)",
        "requirements with 'minValues' must have at least that many values specified in the 'values' field; "
        "add values, lower minValues, or use operator: Exists",
    ),
)
