"""What is wrong with an EC2NodeClass by itself: kubelet keys, tags, and user data that could not be made.

Pure. The schema has caught what the API server can; this is the rest, with Karpenter's reasons.
"""

from collections.abc import Mapping
from typing import Any, Final

from aws.cluster import ClusterFacts
from aws.families import AL2023, CUSTOM, Family
from model import labels
from model.durations import DurationError, parse_duration
from model.kinds import EC2NodeClass
from model.quantity import QuantityError, parse

Wrong = tuple[str, str]
"""Reason and message."""

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
_RESERVED: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})
_MANAGED: Final = frozenset(
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
_TAG_KEYS: Final = frozenset(
    {labels.TAG_EKS_CLUSTER_NAME, labels.TAG_NODEPOOL, labels.TAG_NODECLAIM, labels.TAG_NODECLASS}
)


def why_invalid(node_class: EC2NodeClass, family: Family, cluster: ClusterFacts) -> Wrong | None:
    """The first thing that is wrong, in Karpenter's order; None when nothing is."""
    if family is AL2023 and not cluster.cidr:
        return labels.CLUSTER_CIDR_RESOLUTION_FAILED, "the range of the cluster's Service addresses is not known"
    raw = node_class.spec.kubelet or {}
    return _kubelet(raw) or _expressions(raw) or _support(raw, family) or _tags(node_class)


def _kubelet(raw: Mapping[str, Any]) -> Wrong | None:
    problem = (
        ("registerWithTaints belongs to the NodePool: write spec.template.spec.taints there")
        if "registerWithTaints" in raw
        else _counts(raw) or _reserved(raw) or _evictions(raw) or _collection(raw)
    )
    return (labels.INVALID_KUBELET_CONFIGURATION, f"spec.kubelet: {problem}") if problem else None


def _counts(raw: Mapping[str, Any]) -> str:
    for key in ("podsPerCore", "evictionMaxPodGracePeriod"):
        if key in raw and not _is_count(raw[key]):
            return f"{key} must be a whole number of at least 0, not {raw[key]!r}"
    pods = raw.get("maxPods")
    if pods is not None and not isinstance(pods, str) and not _is_count(pods):
        return f"maxPods must be a whole number of at least 0, not {pods!r}"
    return ""


def _reserved(raw: Mapping[str, Any]) -> str:
    for field in ("systemReserved", "kubeReserved"):
        for key, amount in _map(raw, field).items():
            if key not in _RESERVED:
                return f"{field} has no {key!r}: write one of {', '.join(sorted(_RESERVED))}"
            if str(amount).startswith("-"):
                return f"{field}.{key} may not be negative"
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
        return "evictionSoft and evictionSoftGracePeriod must have the same keys"
    for key, text in grace.items():
        if not _is_duration(str(text)):
            return f"evictionSoftGracePeriod.{key}: {text!r} is no duration, such as 2m"
    return ""


def _collection(raw: Mapping[str, Any]) -> str:
    high, low = raw.get("imageGCHighThresholdPercent"), raw.get("imageGCLowThresholdPercent")
    for name, value in (("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)):
        if value is not None and not (_is_count(value) and value <= 100):
            return f"{name} must be a whole number from 0 to 100, not {value!r}"
    if high is not None and low is not None and high <= low:
        return "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent"
    return ""


def _expressions(raw: Mapping[str, Any]) -> Wrong | None:
    """Amounts that are computed per type are Karpenter's gate NodeClassCEL, which Tenure does not have."""
    texts = {"maxPods": raw.get("maxPods")} | {
        f"{field}.{key}": value
        for field in ("kubeReserved", "systemReserved")
        for key, value in _map(raw, field).items()
    }
    wrong = [name for name, value in texts.items() if isinstance(value, str) and not _is_quantity(value)]
    wrong += ["maxPods"] if isinstance(raw.get("maxPods"), str) and "maxPods" not in wrong else []
    if not wrong:
        return None
    return labels.KUBELET_EXPRESSIONS_DISABLED, f"spec.kubelet.{wrong[0]} is an expression: write an amount instead"


def _support(raw: Mapping[str, Any], family: Family) -> Wrong | None:
    if family is CUSTOM:
        return None
    foreign = sorted(set(raw) - _MANAGED)
    if foreign and not family.any_kubelet_key:
        return _unsupported(f"{family.name} images take no {foreign[0]}; use AL2023, or write it in userData")
    if "podsPerCore" in raw and not family.pods_per_core:
        return _unsupported(f"{family.name} images take no podsPerCore; write maxPods")
    if len(raw.get("clusterDNS") or ()) > 1 and not family.many_dns:
        return _unsupported(f"{family.name} images take one clusterDNS address")
    return None


def _unsupported(message: str) -> Wrong:
    return labels.UNSUPPORTED_KUBELET_CONFIGURATION, f"spec.kubelet: {message}"


def _tags(node_class: EC2NodeClass) -> Wrong | None:
    for key in sorted(node_class.spec.tags):
        if key in _TAG_KEYS or key.startswith(labels.TAG_CLUSTER_PREFIX.rstrip("/")):
            return labels.TAG_VALIDATION_FAILED, f"spec.tags: {key} is set by the controller; remove it"
    return None


def _map(raw: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = raw.get(field)
    return found if isinstance(found, Mapping) else {}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


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
