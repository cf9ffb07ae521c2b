"""Every field of a pod, a PersistentVolume, a StorageClass and a Node, by its effect on scheduling.

A pod with a rejected field, or with a field that is not listed, is not planned, and its node is not disrupted
voluntarily. `tests/adapters/kube/test_scheduling_fields.py` compares the lists with the OpenAPI of the API server.
The lists are those of Kubernetes 1.37 (reference 10.9), and rejected fields of earlier versions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Json = Mapping[str, Any]

_DRA: Final = "Dynamic Resource Allocation is not supported"
_GROUPS: Final = "pod groups are not supported"
_INLINE: Final = "inline volumes of this type are not supported, use a PersistentVolumeClaim"
DRA_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Extended resources of this prefix are devices of a DeviceClass."""


@dataclass(frozen=True)
class Struct:
    """The fields of one type of the Kubernetes API."""

    implemented: frozenset[str] = frozenset()
    irrelevant: frozenset[str] = frozenset()
    """They do not decide where a pod runs."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """The reason, by field."""
    nested: Mapping[str, str] = field(default_factory=dict)
    """The type of the value or of its items, by field. Its fields are listed too."""
    accepted_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values that Tenure plans for, by field; the first is the default."""
    accepted: frozenset[str] = field(init=False)
    fields: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "accepted", self.implemented | self.irrelevant | self.nested.keys() | self.accepted_values.keys()
        )
        object.__setattr__(self, "fields", self.accepted | self.rejected.keys())


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NODE_TERMS: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": "NodeSelector",
    "preferredDuringSchedulingIgnoredDuringExecution": "PreferredSchedulingTerm",
}
_POD_TERMS: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": "PodAffinityTerm",
    "preferredDuringSchedulingIgnoredDuringExecution": "WeightedPodAffinityTerm",
}
_EXPRESSION: Final = Struct(_names("key operator values"))

_RESTART_ALL: Final = "RestartAllContainers"

STRUCTS: Final[Mapping[str, Struct]] = {
    "PodSpec": Struct(
        _names(
            "hostNetwork hostUsers nodeName nodeSelector os overhead priority priorityClassName runtimeClassName"
            " schedulerName schedulingGates terminationGracePeriodSeconds"
        ),
        _names(
            "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks"
            " ephemeralContainers evictionResponders hostAliases hostIPC hostPID hostname hostnameOverride"
            " imagePullSecrets preemptionPolicy readinessGates restartPolicy securityContext serviceAccount"
            " serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain"
        ),
        {"resourceClaims": _DRA, "schedulingGroup": _GROUPS, "workloadRef": _GROUPS},
        {
            "affinity": "Affinity",
            "containers": "Container",
            "initContainers": "Container",
            "resources": "ResourceRequirements",
            "tolerations": "Toleration",
            "topologySpreadConstraints": "TopologySpreadConstraint",
            "volumes": "Volume",
        },
    ),
    "Container": Struct(
        _names("name ports restartPolicy"),
        _names(
            "args command env envFrom image imagePullPolicy lifecycle livenessProbe readinessProbe resizePolicy"
            " securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty"
            " volumeDevices workingDir"
        ),
        {},
        {
            "resources": "ResourceRequirements",
            "restartPolicyRules": "ContainerRestartRule",
            "volumeMounts": "VolumeMount",
        },
    ),
    "ResourceRequirements": Struct(_names("limits requests"), rejected={"claims": _DRA}),
    "ContainerRestartRule": Struct(
        irrelevant=_names("exitCodes"), accepted_values={"action": ("Restart", _RESTART_ALL)}
    ),
    "VolumeMount": Struct(
        _names("bindMountOptions"),
        _names("mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr"),
    ),
    "Volume": Struct(
        _names("ephemeral name persistentVolumeClaim"),
        _names(
            "cephfs configMap csi downwardAPI emptyDir fc flexVolume flocker gitRepo glusterfs hostPath image nfs"
            " photonPersistentDisk projected quobyte scaleIO secret storageos"
        ),
        dict.fromkeys(
            (
                "awsElasticBlockStore",
                "azureDisk",
                "azureFile",
                "cinder",
                "gcePersistentDisk",
                "iscsi",
                "portworxVolume",
                "rbd",
                "vsphereVolume",
            ),
            _INLINE,
        ),
    ),
    "Affinity": Struct(
        nested={"nodeAffinity": "NodeAffinity", "podAffinity": "PodAffinity", "podAntiAffinity": "PodAntiAffinity"}
    ),
    "NodeAffinity": Struct(nested=_NODE_TERMS),
    "NodeSelector": Struct(nested={"nodeSelectorTerms": "NodeSelectorTerm"}),
    "NodeSelectorTerm": Struct(
        nested={"matchExpressions": "NodeSelectorRequirement", "matchFields": "NodeSelectorRequirement"}
    ),
    "NodeSelectorRequirement": _EXPRESSION,
    "PreferredSchedulingTerm": Struct(_names("weight"), nested={"preference": "NodeSelectorTerm"}),
    "PodAffinity": Struct(nested=_POD_TERMS),
    "PodAntiAffinity": Struct(nested=_POD_TERMS),
    "WeightedPodAffinityTerm": Struct(_names("weight"), nested={"podAffinityTerm": "PodAffinityTerm"}),
    "PodAffinityTerm": Struct(
        _names("matchLabelKeys mismatchLabelKeys namespaces topologyKey"),
        nested={"labelSelector": "LabelSelector", "namespaceSelector": "LabelSelector"},
    ),
    "LabelSelector": Struct(_names("matchLabels"), nested={"matchExpressions": "LabelSelectorRequirement"}),
    "LabelSelectorRequirement": _EXPRESSION,
    "TopologySpreadConstraint": Struct(
        _names("matchLabelKeys maxSkew minDomains topologyKey"),
        nested={"labelSelector": "LabelSelector"},
        accepted_values={
            "nodeAffinityPolicy": ("Honor", "Ignore"),
            "nodeTaintsPolicy": ("Ignore", "Honor"),
            "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
        },
    ),
    "Toleration": Struct(_names("effect key operator tolerationSeconds value")),
    "PersistentVolumeSpec": Struct(
        _names(
            "awsElasticBlockStore azureDisk azureFile cinder csi gcePersistentDisk hostPath local portworxVolume"
            " vsphereVolume"
        ),
        _names(
            "accessModes capacity cephfs claimRef fc flexVolume flocker glusterfs iscsi mountOptions nfs"
            " persistentVolumeReclaimPolicy photonPersistentDisk quobyte rbd scaleIO storageClassName storageos"
            " volumeAttributesClassName volumeMode"
        ),
        nested={"nodeAffinity": "VolumeNodeAffinity"},
    ),
    "VolumeNodeAffinity": Struct(nested={"required": "NodeSelector"}),
    "StorageClass": Struct(
        _names("allowedTopologies metadata provisioner volumeBindingMode"),
        _names("allowVolumeExpansion apiVersion kind mountOptions parameters reclaimPolicy"),
    ),
    "NodeSpec": Struct(
        _names("providerID taints unschedulable"),
        _names("configSource externalID podCIDR podCIDRs podPreemptionPolicy"),
    ),
    "NodeStatus": Struct(
        _names("allocatable capacity conditions declaredFeatures nodeInfo"),
        _names("addresses config daemonEndpoints features images phase runtimeHandlers volumesAttached volumesInUse"),
    ),
}


def find_rejected_field(spec: Json, status: Json, requests: Iterable[str]) -> str:
    """The first field of a pod that Tenure does not plan for, as `field: reason`; empty if there is none.

    `requests`: resource names.
    """
    if found := find_unknown_field(spec, "PodSpec", "spec."):
        return found
    for one in requests:
        if one.startswith(DRA_RESOURCE_PREFIX):
            return f"spec.containers[].resources.requests[{one}]: {_DRA}"
    if status.get("extendedResourceClaimStatus"):
        return f"status.extendedResourceClaimStatus: {_DRA}"
    return ""


def required_features(spec: Json) -> tuple[str, ...]:
    """The features that the pod's node must declare, as kube-scheduler's plugin NodeDeclaredFeatures infers them."""
    containers = [one for key in _CONTAINERS for one in spec.get(key) or ()]
    required = []
    if any(rule.get("action") == _RESTART_ALL for one in containers for rule in one.get("restartPolicyRules") or ()):
        required.append("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        required.append("UserNamespacesHostNetworkSupport")
    if any(mount.get("bindMountOptions") for one in containers for mount in one.get("volumeMounts") or ()):
        required.append("VolumeBindMountOptions")
    return tuple(required)


_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def find_unknown_field(value: Json, name: str, path: str) -> str:
    """The first field that is rejected or that the lists do not have, in a value of type `name`; empty if there is
    none."""
    return "" if _is_accepted(value, STRUCTS[name]) else next(_rejected_fields(value, name, path), "")


def _is_accepted(value: Json, struct: Struct) -> bool:
    """The fast path, since every pod event takes it."""
    if not struct.accepted.issuperset(value):
        return False
    for key, accepted in struct.accepted_values.items():
        if (value.get(key) or accepted[0]) not in accepted:
            return False
    for key, name in struct.nested.items():
        content = value.get(key)
        if content:
            nested = STRUCTS[name]
            for item in (content,) if isinstance(content, dict) else content:
                if not _is_accepted(item, nested):
                    return False
    return True


def _rejected_fields(value: Json, name: str, path: str) -> Iterator[str]:
    struct = STRUCTS[name]
    if not struct.accepted.issuperset(value):
        yield from _explain_fields(value, struct, path)
    for key, nested in struct.nested.items():
        if content := value.get(key):
            for at, item in _items(content, f"{path}{key}"):
                yield from _rejected_fields(item, nested, f"{at}.")
    for key, accepted in struct.accepted_values.items():
        if (value.get(key) or accepted[0]) not in accepted:
            yield f"{path}{key}: Tenure does not know the value {value[key]}"


def _explain_fields(value: Json, struct: Struct, path: str) -> Iterator[str]:
    """An empty value of a rejected field has no effect. An unknown field may have one in any case."""
    for key in sorted(value.keys() - struct.accepted):
        if key not in struct.rejected:
            yield f"{path}{key}: Tenure does not know this field, which may decide where a pod runs"
        elif value[key] not in (None, "", [], {}):
            yield f"{path}{key}: {struct.rejected[key]}"


def _items(content: Any, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(content, Mapping):
        yield path, content
    elif isinstance(content, Sequence):
        for index, item in enumerate(content):
            yield f"{path}[{item.get('name') or index}]", item
