"""Manifests of Nodes and volumes."""

from collections.abc import Mapping
from typing import Any, Final

from tenure.apis import labels
from tenure.model.instance_types import InstanceType, Offering
from tests.oracle.random_pods import CLUSTER, Object

EBS: Final = "ebs.csi.aws.com"


def node_manifest(
    name: str, kind: InstanceType, offering: Offering, node_labels: Mapping[str, str], taints: list[Object]
) -> Object:
    """A Ready node of this instance type."""
    amounts = {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in kind.allocatable().items()}
    found = make_object("v1", "Node", name)
    found["metadata"]["labels"] = {
        **{key: values[0] for key, values in kind.labels.items()},
        **node_labels,
        labels.HOSTNAME: name,
        labels.INSTANCE_TYPE: kind.name,
        labels.ZONE: offering.zone,
        labels.EBS_CSI_ZONE: offering.zone,
        labels.ZONE_ID: offering.zone_id,
        labels.CAPACITY_TYPE: offering.capacity_type,
    }
    found["spec"] = {"providerID": f"aws:///{offering.zone}/{name}", "taints": taints}
    found["status"] = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
    }
    return found


def persistent_volume(name: str, claim: Object, zone: str, cluster: str, *, key: str = labels.ZONE) -> Object:
    """An EBS volume in a zone that is reserved for a claim, which is bound at once if it has a UID."""
    found = make_object("v1", "PersistentVolume", name)
    found["metadata"]["labels"] = {CLUSTER: cluster}
    reference = {key: claim["metadata"][key] for key in ("namespace", "name", "uid") if key in claim["metadata"]}
    found["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": EBS, "volumeHandle": name},
        "claimRef": reference,
        "storageClassName": claim["spec"]["storageClassName"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zones((zone,), "In", key)]}]}},
    }
    return found


def volume_claim(name: str, namespace: str, storage_class: str) -> Object:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    found = make_object("v1", "PersistentVolumeClaim", name, spec=spec)
    found["metadata"]["namespace"] = namespace
    return found


def in_zones(zones: tuple[str, ...], operator: str, key: str = labels.ZONE) -> Object:
    """An expression of a node selector; without operator, of a topology selector."""
    return {"key": key, "values": list(zones)} | ({"operator": operator} if operator else {})


def make_object(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    metadata = {"name": name} | ({"labels": fields.pop("labels")} if "labels" in fields else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
