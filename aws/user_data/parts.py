"""The value that all dialects render, and the pieces that more than one needs: MIME and kubelet flags."""

from collections.abc import Iterable, Mapping, Sequence
from email import message_from_string
from email.message import Message
from typing import Any, Final

from aws.cluster import ClusterFacts
from aws.kubelet import Kubelet
from model.base import Value
from model.kinds import Taint

BOUNDARY: Final = "//"
SHELL_TYPE: Final = 'text/x-shellscript; charset="us-ascii"'


class UserDataError(ValueError):
    """The user's own user data cannot be used; the message names the field and what is wrong."""


class UserDataTooLarge(UserDataError):
    """What is made of it is more than EC2 takes."""


class Bootstrap(Value):
    """What a machine must know to join. `custom` is `spec.userData`."""

    cluster: ClusterFacts
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    kubelet: Kubelet = Kubelet()
    kubelet_map: dict[str, Any] = {}
    """`spec.kubelet` as given."""
    max_pods: int
    raid0: bool = False
    custom: str = ""

    @property
    def dns(self) -> tuple[str, ...]:
        return self.kubelet.cluster_dns or ((self.cluster.dns,) if self.cluster.dns else ())

    @property
    def ipv6(self) -> bool:
        return bool(self.dns) and ":" in self.dns[0]


def is_mime(text: str) -> bool:
    return text.lstrip().lower().startswith(("mime-version:", "content-type:"))


def mime_parts(text: str) -> list[tuple[str, str]]:
    """(content type, body) of each part in order. Raises UserDataError when there is none."""
    parsed = message_from_string(text.lstrip())
    if not parsed.is_multipart():
        raise UserDataError("spec.userData: begins like MIME and is no multipart message; check its boundary lines")
    return [(_type_of(part), _body_of(part)) for part in parsed.walk() if not part.is_multipart()]


def join_mime(parts: Iterable[tuple[str, str]]) -> str:
    """One multipart message with the parts in order."""
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{BOUNDARY}"', ""]
    for content_type, body in parts:
        lines += [f"--{BOUNDARY}", f"Content-Type: {content_type}", "", body.rstrip("\n"), ""]
    return "\n".join([*lines, f"--{BOUNDARY}--", ""])


def pairs(values: Mapping[str, str], sign: str = "=") -> str:
    """`a=1,b=2`, sorted, as kubelet's flags take maps."""
    return ",".join(f"{key}{sign}{values[key]}" for key in sorted(values))


def taint_text(taint: Taint) -> str:
    """`key=value:Effect`, as kubelet's flag takes it."""
    return f"{taint.key}={taint.value}:{taint.effect}"


def kubelet_flags(bootstrap: Bootstrap, *, quote: str = "") -> Sequence[str]:
    """For families whose script passes flags on: labels, taints and the managed keys of spec.kubelet."""
    kubelet = bootstrap.kubelet
    flags: dict[str, object] = {
        "node-labels": pairs(bootstrap.labels),
        "register-with-taints": ",".join(taint_text(taint) for taint in bootstrap.taints),
        "max-pods": bootstrap.max_pods,
        "pods-per-core": kubelet.pods_per_core,
        "system-reserved": pairs(kubelet.system_reserved),
        "kube-reserved": pairs(kubelet.kube_reserved),
        "eviction-hard": pairs(kubelet.eviction_hard, "<"),
        "eviction-soft": pairs(kubelet.eviction_soft, "<"),
        "eviction-soft-grace-period": pairs(kubelet.eviction_soft_grace_period),
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "image-gc-high-threshold": kubelet.image_gc_high,
        "image-gc-low-threshold": kubelet.image_gc_low,
        "cpu-cfs-quota": None if kubelet.cpu_cfs_quota is None else str(kubelet.cpu_cfs_quota).lower(),
    }
    return [f"--{name}={quote}{value}{quote}" for name, value in flags.items() if value not in (None, "")]


def _type_of(part: Message) -> str:
    return str(part.get("Content-Type", "text/plain"))


def _body_of(part: Message) -> str:
    payload = part.get_payload(decode=True)
    return payload.decode(errors="replace") if isinstance(payload, bytes) else ""
