"""What `spec.kubelet` may say: fields that exist, values that mean something, and what the image family reads of it.

Pure, and Karpenter's rules (reference 1.3). Expressions are seen here as texts; `cel.py` reads them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aws.families import CUSTOM, Family
from aws.kubelet_schema import why_not_kubelet
from model.durations import DurationError, parse_duration
from model.quantity import QuantityError, parse

_SIGNALS: Final = frozenset(
    {
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "pid.available",
    }
)
_RESERVED_FIELDS: Final = ("kubeReserved", "systemReserved")
_RESERVED: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})
MANAGED: Final = frozenset(
    {
        "clusterDNS",
        "maxPods",
        "podsPerCore",
        "systemReserved",
        "kubeReserved",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMaxPodGracePeriod",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "cpuCFSQuota",
    }
)


def why_malformed(raw: Mapping[str, Any]) -> str:
    """The first thing that no kubelet would take, led by its field; empty when there is none."""
    if "registerWithTaints" in raw:
        return "registerWithTaints belongs to the NodePool: write spec.template.spec.taints there"
    masked = {key: value for key, value in raw.items() if not (key == "maxPods" and isinstance(value, str))}
    return why_not_kubelet(masked) or _counts(raw) or _reserved(raw) or _evictions(raw) or _collection(raw)


def why_unsupported(raw: Mapping[str, Any], family: Family) -> str:
    """What the family's nodes would not read; Custom images are the user's own affair."""
    if family is CUSTOM:
        return ""
    foreign = sorted(set(raw) - MANAGED)
    if foreign and not family.any_kubelet_key:
        return f"{family.name} images take no {foreign[0]}; use AL2023, or write it in userData"
    if "podsPerCore" in raw and not family.pods_per_core:
        return f"{family.name} images take no podsPerCore; write maxPods"
    if len(raw.get("clusterDNS") or ()) > 1 and not family.many_dns:
        return f"{family.name} images take one clusterDNS address"
    return ""


def expressions_of(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(field, key, text) of each value that is computed per instance type: what is no quantity is an expression."""
    if isinstance(raw.get("maxPods"), str):
        yield "maxPods", "", raw["maxPods"]
    for field in _RESERVED_FIELDS:
        for key, text in _map(raw, field).items():
            if isinstance(text, str) and not _is_quantity(text):
                yield field, str(key), text


def _counts(raw: Mapping[str, Any]) -> str:
    for key in ("podsPerCore", "evictionMaxPodGracePeriod", "maxPods"):
        value = raw.get(key)
        if isinstance(value, int) and value < 0:
            return f"{key} must be a whole number of at least 0, not {value}"
    return ""


def _reserved(raw: Mapping[str, Any]) -> str:
    for field in _RESERVED_FIELDS:
        for key, amount in _map(raw, field).items():
            if key not in _RESERVED:
                return f"{field} has no {key!r}: write one of {', '.join(sorted(_RESERVED))}"
            if str(amount).startswith("-"):
                return f"{field}.{key} may not be negative, and is {amount!r}"
    return ""


def _evictions(raw: Mapping[str, Any]) -> str:
    for field in ("evictionHard", "evictionSoft", "evictionSoftGracePeriod"):
        for key in _map(raw, field):
            if key not in _SIGNALS:
                return f"{field} has no {key!r}: write one of {', '.join(sorted(_SIGNALS))}"
    for field in ("evictionHard", "evictionSoft"):
        for key, text in _map(raw, field).items():
            if not _is_threshold(str(text)):
                return f"{field}.{key}: {text!r} is neither a quantity nor a percentage up to 100%"
    return _soft(raw)


def _soft(raw: Mapping[str, Any]) -> str:
    soft, grace = _map(raw, "evictionSoft"), _map(raw, "evictionSoftGracePeriod")
    if soft.keys() != grace.keys():
        missing = sorted(soft.keys() ^ grace.keys())[0]
        return f"evictionSoft and evictionSoftGracePeriod must have the same keys; {missing} is in one of them only"
    for key, text in grace.items():
        if not _is_duration(str(text)):
            return f"evictionSoftGracePeriod.{key}: {text!r} is no duration, such as 2m"
    return ""


def _collection(raw: Mapping[str, Any]) -> str:
    high, low = raw.get("imageGCHighThresholdPercent"), raw.get("imageGCLowThresholdPercent")
    for name, value in (("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)):
        if value is not None and not 0 <= value <= 100:
            return f"{name} must be a whole number from 0 to 100, not {value!r}"
    if high is not None and low is not None and high <= low:
        return f"imageGCHighThresholdPercent ({high}) must be greater than imageGCLowThresholdPercent ({low})"
    return ""


def _map(raw: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = raw.get(field)
    return found if isinstance(found, Mapping) else {}


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def _is_threshold(text: str) -> bool:
    if not text.endswith("%"):
        return _is_quantity(text) and not text.startswith("-")
    try:
        return 0 <= float(text[:-1]) <= 100
    except ValueError:
        return False


def _is_duration(text: str) -> bool:
    try:
        found = parse_duration(text)
    except DurationError:
        return False
    return found is not None and found.total_seconds() >= 0
