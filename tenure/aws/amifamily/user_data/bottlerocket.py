"""Bottlerocket: TOML settings, merged into the custom user data.

Bottlerocket does not boot with unknown settings, so unknown keys of `settings.kubernetes` are dropped.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import tomli_w

from tenure.aws.amifamily.user_data.config import Bootstrap, UserDataError
from tenure.aws.amifamily.user_data.documents import load_toml

_KNOWN: Final = frozenset(
    """
    allowed-unsafe-sysctls api-server authentication-mode cloud-provider cluster-certificate cluster-dns-ip
    cluster-domain cluster-name container-log-max-files container-log-max-size container-log-max-workers
    container-log-monitor-interval cpu-cfs-quota-enforced cpu-manager-policy cpu-manager-policy-options
    cpu-manager-reconcile-period credential-providers device-ownership-from-security-context event-burst event-qps
    eviction-hard eviction-max-pod-grace-period eviction-soft eviction-soft-grace-period hostname-override
    hostname-override-source ids-per-pod image-gc-high-threshold-percent image-gc-low-threshold-percent
    kube-api-burst kube-api-qps kube-reserved log-level max-pods memory-manager-policy
    memory-manager-reserved-memory node-labels node-taints pod-pids-limit registry-burst registry-qps
    seccomp-default server-tls-bootstrap shutdown-grace-period shutdown-grace-period-for-critical-pods
    single-process-oom-kill static-pods system-reserved topology-manager-policy topology-manager-policy-options
    topology-manager-scope
    """.split()  # noqa: SIM905
)
_RAID_DIRS: Final = ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
_KNOWS_DIRS_FROM: Final = (1, 46)
"""First version that binds these directories by default."""


def render_bottlerocket(bootstrap: Bootstrap) -> str:
    """Raises UserDataError if the custom user data is not TOML, or a table of the settings has another type."""
    document = _parse_custom(bootstrap.custom)
    settings = _require_table(document, "settings", "settings")
    kubernetes = _require_table(settings, "kubernetes", "settings.kubernetes")
    for key in kubernetes.keys() - _KNOWN:
        del kubernetes[key]
    kubernetes.update(_cluster_settings(bootstrap, kubernetes.get("cluster-dns-ip")) | _kubelet_settings(bootstrap))
    _require_table(kubernetes, "node-labels", "settings.kubernetes.node-labels").update(bootstrap.labels)
    kubernetes["node-taints"] = _taint_settings(bootstrap)
    if bootstrap.raid0:
        commands = _require_table(settings, "bootstrap-commands", "settings.bootstrap-commands")
        commands["000-mount-instance-storage"] = _raid_bootstrap_command(bootstrap)
    return tomli_w.dumps(document, indent=0)


def _parse_custom(custom: str) -> dict[str, Any]:
    try:
        return load_toml(custom.replace("\r", ""))
    except UserDataError as error:
        raise UserDataError(f"spec.userData: invalid TOML, which Bottlerocket requires: {error}") from None


def dropped_settings(custom: str) -> list[str]:
    """The keys of `settings.kubernetes` that are left out of the user data. Raises UserDataError."""
    kubernetes = _parse_custom(custom).get("settings", {}).get("kubernetes", {})
    return sorted(kubernetes.keys() - _KNOWN)


def _cluster_settings(bootstrap: Bootstrap, custom_dns: Any) -> dict[str, Any]:
    """`custom_dns`: of the custom user data; it overrides the discovered address and not that of `spec.kubelet`."""
    found: dict[str, Any] = {
        "api-server": bootstrap.cluster.endpoint,
        "cluster-name": bootstrap.cluster.name,
        "max-pods": bootstrap.max_pods,
    }
    if bootstrap.cluster.ca_bundle:
        found["cluster-certificate"] = bootstrap.cluster.ca_bundle
    if dns := bootstrap.kubelet.cluster_dns or custom_dns or bootstrap.cluster.dns:
        found["cluster-dns-ip"] = dns[0] if isinstance(dns, tuple) else dns
    return found


def _kubelet_settings(bootstrap: Bootstrap) -> dict[str, Any]:
    kubelet = bootstrap.kubelet
    found = {
        "system-reserved": kubelet.system_reserved,
        "kube-reserved": kubelet.kube_reserved,
        "eviction-hard": kubelet.eviction_hard,
        "eviction-soft": kubelet.eviction_soft,
        "eviction-soft-grace-period": kubelet.eviction_soft_grace_period,
        "eviction-max-pod-grace-period": kubelet.eviction_max_pod_grace_period,
        "image-gc-high-threshold-percent": _number_text(kubelet.image_gc_high),
        "image-gc-low-threshold-percent": _number_text(kubelet.image_gc_low),
        "cpu-cfs-quota-enforced": kubelet.cpu_cfs_quota,
    }
    return {key: value for key, value in found.items() if value is not None and value != {}}


def _taint_settings(bootstrap: Bootstrap) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for taint in bootstrap.taints:
        found.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return found


def _raid_bootstrap_command(bootstrap: Bootstrap) -> Mapping[str, Any]:
    dirs = [] if bootstrap.image_versions and all(map(_binds_by_itself, bootstrap.image_versions)) else _RAID_DIRS
    return {
        "commands": [["apiclient", "ephemeral-storage", "init"], ["apiclient", "ephemeral-storage", "bind", *dirs]],
        "mode": "always",
        "essential": True,
    }


def _binds_by_itself(version: str) -> bool:
    numbers = re.match(r"v?(\d+)\.(\d+)\.\d", version)
    return version == "latest" or (numbers is not None and (int(numbers[1]), int(numbers[2])) >= _KNOWS_DIRS_FROM)


def _require_table(parent: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    """The table at this key, created if missing. Raises UserDataError if the value is not a table."""
    found = parent.setdefault(key, {})
    if not isinstance(found, dict):
        raise UserDataError(f"spec.userData: {path} must be a table, such as [{path}]")
    return found


def _number_text(number: int | None) -> str | None:
    return None if number is None else str(number)
