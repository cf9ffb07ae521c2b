"""Static hashes of a NodePool's template and of an EC2NodeClass. A node with a different hash has drifted.

The hash covers exactly the fields of Karpenter's hash. It has its own algorithm and version, so that Karpenter's and
Tenure's annotations are never compared (docs/decisions/static-hash.md). Lists count as sets and durations by their
length. Unset and zero values are absent, but an explicit `false` or `0` of an optional field counts.
"""

import hashlib
import json
import types
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tenure.apis.durations import parse_duration
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodepool import NodePool

HASH_VERSION: Final = "tenure-v2"
"""Value of both hash-version annotations. A new default, or adding or removing a covered field, needs a new value."""

_NODECLASS_UNCOVERED: Final = frozenset(
    {
        "subnet_selector_terms",
        "security_group_selector_terms",
        "capacity_reservation_selector_terms",
        "ami_selector_terms",
        # The resolved family is covered instead, so that writing the alias's family explicitly changes nothing.
        "ami_family",
        "ip_prefix_count",
        "kubelet",
    }
)


def nodepool_hash(nodepool: NodePool) -> str:
    """Hash labels, annotations, taints, nodeClassRef, grace period and expiry of the template: 64 bits, in decimal.

    Raises DurationError if the template has an invalid duration.
    """
    template = nodepool.spec.template
    spec = template.spec
    return _hash_parts(
        {
            "labels": template.metadata.labels,
            "annotations": template.metadata.annotations,
            "taints": _canonicalize(spec.taints),
            "startupTaints": _canonicalize(spec.startup_taints),
            "nodeClassRef": _canonicalize(spec.node_class_ref),
            "terminationGracePeriod": _duration_microseconds(spec.termination_grace_period),
            "expireAfter": _duration_microseconds(spec.expire_after),
        }
    )


def nodeclass_hash(nodeclass: EC2NodeClass, *, ca_bundle: str = "") -> str:
    """Hash the fields that configure instances: 64 bits, in decimal. Of the selectors only the implied family counts.

    `ca_bundle` is the cluster's CA certificate in the user data; its line breaks are ignored.
    """
    return _hash_parts(
        {
            "spec": _canonicalize(nodeclass.spec, excluded=_NODECLASS_UNCOVERED),
            "amiFamily": nodeclass.ami_family,
            "caBundle": "".join(ca_bundle.split()),
            "kubelet": nodeclass.spec.kubelet or None,
        }
    )


def _hash_parts(parts: Mapping[str, Any]) -> str:
    present = {name: part for name, part in parts.items() if part}
    raw = hashlib.sha256(_canonical_json(present).encode()).digest()
    return str(int.from_bytes(raw[:8], "big"))


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _canonicalize(value: Any, excluded: frozenset[str] = frozenset()) -> Any:
    if isinstance(value, BaseModel):
        fields = {name: info for name, info in type(value).model_fields.items() if name not in excluded}
        found = {name: (info, _canonicalize(getattr(value, name))) for name, info in fields.items()}
        return {name: part for name, (info, part) in found.items() if part or _is_written_zero(info, part)}
    if isinstance(value, tuple):
        return sorted({_canonical_json(_canonicalize(one)) for one in value})
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def _is_written_zero(info: FieldInfo, part: Any) -> bool:
    return part is not None and part != {} and type(None) in _union_members(info.annotation)


def _union_members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()


def _duration_microseconds(text: str | None) -> int | None:
    duration = parse_duration(text) if text is not None else None
    return None if duration is None else duration // timedelta(microseconds=1)
