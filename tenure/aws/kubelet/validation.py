"""Validates `spec.kubelet` by its schema, by Karpenter's rules (reference 1.3) and by image family.

Expressions are only text here; `cel_expression.py` compiles them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tenure.aws.amifamily.families import CUSTOM, Family
from tenure.aws.kubelet.config import MANAGED, is_quantity
from tenure.aws.kubelet.schema import RESERVED_FIELDS, find_schema_error


def why_malformed(raw: Mapping[str, Any]) -> str:
    """The first problem for any kubelet, starting with the field; empty if valid."""
    if "registerWithTaints" in raw:
        return "registerWithTaints is not supported, use spec.template.spec.taints of the NodePool"
    return find_schema_error(dict(raw)) or _check_soft_evictions(raw) or _check_image_gc(raw)


def why_unsupported(raw: Mapping[str, Any], family: Family) -> str:
    """The first field that the family's images do not support; empty if none. Custom images are not checked."""
    if family is CUSTOM:
        return ""
    foreign = sorted(set(raw) - MANAGED)
    if foreign and not family.any_kubelet_key:
        return f"{family.name} images do not support {foreign[0]}; use AL2023, or set it in userData"
    if "podsPerCore" in raw and not family.pods_per_core:
        return f"{family.name} images do not support podsPerCore; use maxPods"
    if len(raw.get("clusterDNS") or ()) > 1 and not family.many_dns:
        return f"{family.name} images support only one clusterDNS address"
    return ""


def expressions_of(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(field, key, text) of each expression: any text that is not a quantity. `key` is empty for maxPods."""
    if isinstance(raw.get("maxPods"), str):
        yield "maxPods", "", raw["maxPods"]
    for field in RESERVED_FIELDS:
        amounts = raw.get(field)
        for key, text in amounts.items() if isinstance(amounts, Mapping) else ():
            if isinstance(text, str) and not is_quantity(text):
                yield field, str(key), text


def _check_soft_evictions(raw: Mapping[str, Any]) -> str:
    differing = (raw.get("evictionSoft") or {}).keys() ^ (raw.get("evictionSoftGracePeriod") or {}).keys()
    if differing:
        only = min(differing)
        return f"evictionSoft and evictionSoftGracePeriod must have the same keys; {only} is only in one of them"
    return ""


def _check_image_gc(raw: Mapping[str, Any]) -> str:
    high, low = raw.get("imageGCHighThresholdPercent"), raw.get("imageGCLowThresholdPercent")
    if high is not None and low is not None and high <= low:
        return f"imageGCHighThresholdPercent ({high}) must be greater than imageGCLowThresholdPercent ({low})"
    return ""
