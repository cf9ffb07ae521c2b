"""The keys of `spec.kubelet` that Tenure computes with, read out of the open map that it is.

Values that make no sense are passed over here; `node_class.py` tells the user of them.
"""

from collections.abc import Mapping
from typing import Any, Self

from tenure.apis.quantity import QuantityError, parse
from tenure.model.base import Value


class Kubelet(Value):
    """Amounts and thresholds are texts as written, each known to be a quantity or a percentage where it must be."""

    max_pods: int | None = None
    pods_per_core: int | None = None
    cluster_dns: tuple[str, ...] = ()
    system_reserved: dict[str, str] = {}
    kube_reserved: dict[str, str] = {}
    eviction_hard: dict[str, str] = {}
    eviction_soft: dict[str, str] = {}
    eviction_soft_grace_period: dict[str, str] = {}
    eviction_max_pod_grace_period: int | None = None
    image_gc_high: int | None = None
    image_gc_low: int | None = None
    cpu_cfs_quota: bool | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> Self:
        values = raw or {}
        return cls(
            max_pods=_parse_count(values.get("maxPods")),
            pods_per_core=_parse_count(values.get("podsPerCore")),
            cluster_dns=tuple(str(address) for address in values.get("clusterDNS") or ()),
            system_reserved=_parse_amounts(values.get("systemReserved")),
            kube_reserved=_parse_amounts(values.get("kubeReserved")),
            eviction_hard=_parse_texts(values.get("evictionHard")),
            eviction_soft=_parse_texts(values.get("evictionSoft")),
            eviction_soft_grace_period=_parse_texts(values.get("evictionSoftGracePeriod")),
            eviction_max_pod_grace_period=_parse_count(values.get("evictionMaxPodGracePeriod")),
            image_gc_high=_parse_count(values.get("imageGCHighThresholdPercent")),
            image_gc_low=_parse_count(values.get("imageGCLowThresholdPercent")),
            cpu_cfs_quota=values.get("cpuCFSQuota") if isinstance(values.get("cpuCFSQuota"), bool) else None,
        )


def _parse_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _parse_texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}


def _parse_amounts(value: Any) -> dict[str, str]:
    """Those entries that are quantities: an expression is not, and is evaluated elsewhere or reported."""
    return {key: text for key, text in _parse_texts(value).items() if _is_quantity(text)}


def _is_quantity(text: str) -> bool:
    try:
        return parse(text).nano >= 0
    except QuantityError:
        return False
