"""Minimal Kubernetes objects as JSON."""

from typing import Any

Json = dict[str, Any]


def claim_json(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "general"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            **spec,
        },
    }


def pool_json(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [],
                }
            },
            **spec,
        },
    }


def node_json(name: str, *, provider_id: str = "", taints: list[Json] | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "spec": {"providerID": provider_id or f"aws:///us-west-2a/i-{name}", "taints": taints or []},
    }


def pod_json(name: str, *, node: str = "", **more: Any) -> Json:
    """`more`: fields of the spec; `metadata`: fields of the metadata."""
    metadata = more.pop("metadata", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}],
            **({"nodeName": node} if node else {}),
            **more,
        },
    }


def persistent_volume_json(name: str, *, driver: str, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": driver, "volumeHandle": name},
            **spec,
        },
    }


def volume_attachment_json(volume: str, node: str, *, driver: str, **metadata: Any) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": volume, **metadata},
        "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}},
    }
