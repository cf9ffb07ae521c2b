"""AL2023: one or more NodeConfig documents (`node.eks.aws/v1alpha1`), where later documents take precedence."""

from typing import Any

import yaml

from tenure.sandbox.nodes.userdata.kubelet_join import Join, UserDataError, taints_of, texts
from tenure.sandbox.nodes.userdata.scripts import settings_of, split_flags

MEDIA_TYPE = "application/node.eks.aws"


def read_node_configs(documents: list[str]) -> Join | None:
    """Merge the documents like nodeadm; None if they name no cluster. Raises UserDataError."""
    merged: dict[str, Any] = {}
    for document in documents:
        merged = _merge(merged, _parse(document))
    spec = merged.get("spec") or {}
    cluster = (spec.get("cluster") or {}).get("name")
    if not cluster:
        return None
    kubelet = spec.get("kubelet") or {}
    config = kubelet.get("config") or {}
    fields = _from_config(config) | settings_of(split_flags(kubelet.get("flags") or []))
    strategy = ((spec.get("instance") or {}).get("localStorage") or {}).get("strategy")
    return Join(cluster=cluster, raid0=strategy == "RAID0", **fields)


def _from_config(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "taints": taints_of(config.get("registerWithTaints") or []),
        "max_pods": config.get("maxPods"),
        "pods_per_core": config.get("podsPerCore") or None,
        "kube_reserved": texts(config.get("kubeReserved")),
        "system_reserved": texts(config.get("systemReserved")),
        "eviction_hard": texts(config.get("evictionHard")),
    }


def _parse(document: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(document)
    except yaml.YAMLError as error:
        raise UserDataError(f"NodeConfig: {error}") from None
    if not isinstance(found, dict) or found.get("kind") != "NodeConfig":
        raise UserDataError("the part for nodeadm is not a NodeConfig")
    return found


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merge(before, value)
        elif key == "flags" and isinstance(before, list) and isinstance(value, list):
            # nodeadm appends flags, so that the later of two with the same name applies.
            merged[key] = [*before, *value]
        else:
            merged[key] = value
    return merged
