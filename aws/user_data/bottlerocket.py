"""Bottlerocket: settings in TOML. The user's other settings stay; of `settings.kubernetes` those known remain."""

from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from aws.user_data.parts import Bootstrap, UserDataError

_RAID_DIRS: Final = ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]


def render_bottlerocket(bootstrap: Bootstrap) -> str:
    """Raises UserDataError for custom user data that is no TOML."""
    try:
        document: dict[str, Any] = tomlkit.parse(bootstrap.custom).unwrap() if bootstrap.custom.strip() else {}
    except TOMLKitError as error:
        raise UserDataError(f"spec.userData: not TOML, which Bottlerocket reads: {error}") from None
    settings = _table(document, "settings")
    kubernetes = _table(settings, "kubernetes")
    kubernetes.update(_cluster(bootstrap) | _kubelet(bootstrap))
    kubernetes["node-labels"] = {**kubernetes.get("node-labels", {}), **bootstrap.labels}
    kubernetes["node-taints"] = _taints(bootstrap)
    if bootstrap.raid0:
        _table(settings, "bootstrap-commands")["000-mount-instance-storage"] = {
            "commands": [
                ["apiclient", "ephemeral-storage", "init"],
                ["apiclient", "ephemeral-storage", "bind", *_RAID_DIRS],
            ],
            "mode": "always",
            "essential": True,
        }
    return tomlkit.dumps(document)


def _cluster(bootstrap: Bootstrap) -> dict[str, Any]:
    found: dict[str, Any] = {
        "api-server": bootstrap.cluster.endpoint,
        "cluster-name": bootstrap.cluster.name,
        "max-pods": bootstrap.max_pods,
    }
    if bootstrap.cluster.ca_bundle:
        found["cluster-certificate"] = bootstrap.cluster.ca_bundle
    if bootstrap.dns:
        found["cluster-dns-ip"] = bootstrap.dns[0]
    return found


def _kubelet(bootstrap: Bootstrap) -> dict[str, Any]:
    kubelet = bootstrap.kubelet
    found = {
        "system-reserved": kubelet.system_reserved,
        "kube-reserved": kubelet.kube_reserved,
        "eviction-hard": kubelet.eviction_hard,
        "eviction-soft": kubelet.eviction_soft,
        "eviction-soft-grace-period": kubelet.eviction_soft_grace_period,
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "image-gc-high-threshold-percent": _text(kubelet.image_gc_high),
        "image-gc-low-threshold-percent": _text(kubelet.image_gc_low),
        "cpu-cfs-quota-enforced": kubelet.cpu_cfs_quota,
    }
    return {key: value for key, value in found.items() if value is not None and value != {}}


def _taints(bootstrap: Bootstrap) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for taint in bootstrap.taints:
        found.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return found


def _table(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """A table that is a table: made when missing. Raises UserDataError when something else stands there."""
    found = parent.setdefault(key, {})
    if not isinstance(found, dict):
        raise UserDataError(f"spec.userData: {key} must be a table")
    return found


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
