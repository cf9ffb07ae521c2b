"""Parses PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes into facts.

CSI drivers have replaced in-tree volumes and provisioners, so these get the names of the drivers.
"""

from collections.abc import Mapping
from typing import Any, Final

from tenure.apis import labels
from tenure.kube.facts.pod_topology import match_expressions
from tenure.kube.facts.scheduling_fields import find_unknown_field
from tenure.model.facts import CSINodeFact, StorageClassFact, VolumeClaimFact, VolumeFact

Json = Mapping[str, Any]

_PROVISIONERS: Final[Mapping[str, str]] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""CSI drivers by in-tree provisioner."""
_SOURCES: Final[Mapping[str, str]] = {
    "awsElasticBlockStore": "kubernetes.io/aws-ebs",
    "gcePersistentDisk": "kubernetes.io/gce-pd",
    "azureDisk": "kubernetes.io/azure-disk",
    "azureFile": "kubernetes.io/azure-file",
    "cinder": "kubernetes.io/cinder",
    "vsphereVolume": "kubernetes.io/vsphere-volume",
    "portworxVolume": "kubernetes.io/portworx-volume",
}
"""In-tree provisioners by volume source of a PersistentVolume."""
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_ZONE_KEYS: Final = (
    labels.ZONE,
    labels.REGION,
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""kube-scheduler reads this annotation before `spec.storageClassName` (`GetPersistentVolumeClaimClass`)."""
_BETWEEN_ZONES: Final = "__"
"""Separator of the zones in the label of a volume with several."""


def volume_claim_fact(claim: Json) -> VolumeClaimFact:
    metadata, spec = claim["metadata"], claim.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    return VolumeClaimFact(
        namespace=metadata["namespace"],
        name=metadata["name"],
        volume=spec.get("volumeName") or "",
        bound=labels.PV_BIND_COMPLETED in annotations,
        lost=(claim.get("status") or {}).get("phase") == "Lost",
        storage_class=annotations.get(_BETA_STORAGE_CLASS) or spec.get("storageClassName") or "",
        deleting="deletionTimestamp" in metadata,
    )


def volume_fact(volume: Json) -> VolumeFact:
    metadata, spec = volume["metadata"], volume["spec"]
    required = (spec.get("nodeAffinity") or {}).get("required")
    # The kube-scheduler matches these terms against labels alone, which no term with matchFields satisfies.
    terms = [
        match_expressions(term.get("matchExpressions"))
        for term in (required or {}).get("nodeSelectorTerms") or ()
        if not term.get("matchFields")
    ]
    zones = _zone_requirements(metadata.get("labels") or {})
    if zones:
        terms = [term + zones for term in terms] if required else [zones]
    return VolumeFact.model_validate(
        {
            "name": metadata["name"],
            "driver": _csi_driver(spec),
            "terms": terms if required or zones else None,
            "local": "local" in spec or "hostPath" in spec,
            "deleting": "deletionTimestamp" in metadata,
            "released": (volume.get("status") or {}).get("phase") == "Released",
            "unknown_field": find_unknown_field(spec, "PersistentVolumeSpec", "spec."),
        }
    )


def storage_class_fact(storage_class: Json) -> StorageClassFact:
    metadata, provisioner = storage_class["metadata"], storage_class["provisioner"]
    return StorageClassFact.model_validate(
        {
            "name": metadata["name"],
            "driver": _PROVISIONERS.get(provisioner, provisioner),
            "waits": storage_class.get("volumeBindingMode") == "WaitForFirstConsumer",
            "topologies": [
                [
                    {"key": one["key"], "operator": "In", "values": one["values"]}
                    for one in term.get("matchLabelExpressions") or ()
                ]
                for term in storage_class.get("allowedTopologies") or ()
            ],
            "default": (metadata.get("annotations") or {}).get(_DEFAULT_CLASS) == "true",
            "unknown_field": find_unknown_field(storage_class, "StorageClass", ""),
        }
    )


def csi_node_fact(node: Json) -> CSINodeFact:
    counts = {
        driver["name"]: (driver.get("allocatable") or {}).get("count")
        for driver in (node.get("spec") or {}).get("drivers") or ()
    }
    limits = {name: count for name, count in counts.items() if count is not None}
    unlimited = counts.keys() - limits.keys()
    return CSINodeFact.model_validate(
        {"name": node["metadata"]["name"], "limits": limits, "unlimited_drivers": unlimited}
    )


def _csi_driver(spec: Json) -> str:
    if "csi" in spec:
        driver: str = spec["csi"]["driver"]
        return driver
    return next((_PROVISIONERS[made] for source, made in _SOURCES.items() if source in spec), "")


def _zone_requirements(volume_labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Zones in the labels of a volume: older volumes have these instead of a node affinity, and the kube-scheduler
    obeys both."""
    return [
        {"key": key, "operator": "In", "values": volume_labels[key].split(_BETWEEN_ZONES)}
        for key in _ZONE_KEYS
        if key in volume_labels
    ]
