"""Bottlerocket: settings in TOML."""

import tomllib
from typing import Any

from tenure.sandbox.nodes.userdata.kubelet_join import Join, Taint, UserDataError, texts


def has_settings(text: str) -> bool:
    return any(line.lstrip().startswith("[settings") for line in text.splitlines())


def read_settings(text: str) -> Join | None:
    """The Kubernetes settings; None if they name no cluster. Raises UserDataError."""
    try:
        settings: dict[str, Any] = tomllib.loads(text).get("settings", {})
    except tomllib.TOMLDecodeError as error:
        raise UserDataError(f"settings: {error}") from None
    kubernetes: dict[str, Any] = settings.get("kubernetes", {})
    cluster = kubernetes.get("cluster-name")
    if not cluster:
        return None
    return Join(
        cluster=cluster,
        labels=texts(kubernetes.get("node-labels")),
        taints=_parse_taints(kubernetes.get("node-taints", {})),
        max_pods=kubernetes.get("max-pods"),
        kube_reserved=texts(kubernetes.get("kube-reserved")),
        system_reserved=texts(kubernetes.get("system-reserved")),
        eviction_hard=texts(kubernetes.get("eviction-hard")),
        raid0=_binds_local_disks(settings),
        reserves_by_max_pods=True,
        data_device="/dev/xvdb",
        os_image="Bottlerocket OS 1.20.0 (aws-k8s)",
    )


def _binds_local_disks(settings: dict[str, Any]) -> bool:
    scripts = settings.get("bootstrap-commands", {}).values()
    commands = [command for script in scripts for command in script.get("commands", [])]
    return any(command[:3] == ["apiclient", "ephemeral-storage", "bind"] for command in commands)


def _parse_taints(table: dict[str, Any]) -> tuple[Taint, ...]:
    found = []
    for key, values in table.items():
        for text in [values] if isinstance(values, str) else values:
            value, colon, effect = text.rpartition(":")
            if not colon:
                raise UserDataError(f"node-taints: {text!r} has no effect")
            found.append(Taint(key=key, value=value, effect=effect))
    return tuple(found)
