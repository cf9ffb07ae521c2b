"""The input of all user data formats, and the kubelet flags that several of them use."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tenure.apis.meta import Taint
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.kubelet.config import Kubelet
from tenure.model.base import Value

LIMIT: Final = 16384
"""Maximum size of user data in EC2, in bytes before base64."""


class UserDataError(ValueError):
    """The custom user data is invalid; the message has the field and the problem."""


class UserDataTooLarge(UserDataError):
    """The rendered user data exceeds EC2's limit."""


class Bootstrap(Value):
    """Input to join a node to the cluster. `custom` is `spec.userData`."""

    cluster: ClusterFacts
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    kubelet: Kubelet = Kubelet()
    kubelet_map: dict[str, Any] = {}
    """`spec.kubelet` as given."""
    max_pods: int
    raid0: bool = False
    image_versions: tuple[str, ...] = ()
    """Versions of the images that the node may boot, if known. Only Bottlerocket's user data depends on them."""
    custom: str = ""

    @property
    def dns(self) -> tuple[str, ...]:
        return self.kubelet.cluster_dns or ((self.cluster.dns,) if self.cluster.dns else ())

    @property
    def is_ipv6(self) -> bool:
        return bool(self.dns) and ":" in self.dns[0]


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def why_too_large(text: str) -> str:
    """Why EC2 would reject `spec.userData` for its size; empty if it fits. Parsers get no longer text."""
    size = len(text.encode(errors="replace"))
    return f"spec.userData: {size} bytes, expected at most {LIMIT}; move parts into the image" if size > LIMIT else ""


def join_pairs(values: Mapping[str, str], sign: str = "=") -> str:
    """`a=1,b=2`, sorted: the format of maps in kubelet flags."""
    return ",".join(f"{key}{sign}{values[key]}" for key in sorted(values))


def taint_text(taint: Taint) -> str:
    """`key=value:Effect`, or `key:Effect` without a value: the format of kubelet's flag."""
    pair = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"{pair}:{taint.effect}"


def kubelet_flags(bootstrap: Bootstrap) -> Sequence[str]:
    """Kubelet flags for bootstrap scripts: labels, taints and the managed keys of spec.kubelet.

    String values are double-quoted, because the script passes them to a shell again.
    """
    kubelet = bootstrap.kubelet
    flags: dict[str, object] = {
        "node-labels": join_pairs(bootstrap.labels),
        "register-with-taints": ",".join(taint_text(taint) for taint in bootstrap.taints),
        "max-pods": bootstrap.max_pods,
        "pods-per-core": kubelet.pods_per_core,
        "system-reserved": join_pairs(kubelet.system_reserved),
        "kube-reserved": join_pairs(kubelet.kube_reserved),
        "eviction-hard": join_pairs(kubelet.eviction_hard, "<"),
        "eviction-soft": join_pairs(kubelet.eviction_soft, "<"),
        "eviction-soft-grace-period": join_pairs(kubelet.eviction_soft_grace_period),
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "image-gc-high-threshold": kubelet.image_gc_high,
        "image-gc-low-threshold": kubelet.image_gc_low,
        "cpu-cfs-quota": None if kubelet.cpu_cfs_quota is None else str(kubelet.cpu_cfs_quota).lower(),
    }
    return [f"--{name}={_quote(value)}" for name, value in flags.items() if value not in (None, "")]


def _quote(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
