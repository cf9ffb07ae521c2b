"""API paths of the kinds."""

from dataclasses import dataclass
from urllib.parse import quote

from tenure.apis import labels


@dataclass(frozen=True)
class Resource:
    """Group/version, plural and kind; without a group for the core API."""

    api_version: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def group(self) -> str:
        """Empty for the core API."""
        return self.api_version.rpartition("/")[0]

    def path(self, name: str = "", *, namespace: str = "", sub: str = "") -> str:
        """The URL path of a collection, an object or a subresource."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        if namespace:
            root += f"/namespaces/{quote(namespace, safe='')}"
        parts = [root, self.plural]
        if name:
            parts.append(quote(name, safe=""))
        if sub:
            parts.append(sub)
        return "/".join(parts)


EVICTION_REQUESTS = Resource("lifecycle.k8s.io/v1alpha1", "evictionrequests", "EvictionRequest", namespaced=True)
EVICTIONS = Resource("lifecycle.k8s.io/v1alpha1", "evictions", "Eviction", namespaced=True)
NODE_POOLS = Resource(labels.NODEPOOL_API_VERSION, "nodepools", "NodePool")
NODE_CLAIMS = Resource(labels.NODEPOOL_API_VERSION, "nodeclaims", "NodeClaim")
EC2_NODE_CLASSES = Resource(labels.EC2NODECLASS_API_VERSION, "ec2nodeclasses", "EC2NodeClass")
NODE_OVERLAYS = Resource(labels.NODEOVERLAY_API_VERSION, "nodeoverlays", "NodeOverlay")
LIFECYCLE_POLICIES = Resource(labels.LIFECYCLEPOLICY_API_VERSION, "lifecyclepolicies", "LifecyclePolicy")
CAPACITY_BUFFERS = Resource(labels.CAPACITYBUFFER_API_VERSION, "capacitybuffers", "CapacityBuffer", namespaced=True)
NODES = Resource("v1", "nodes", "Node")
NAMESPACES = Resource("v1", "namespaces", "Namespace")
PODS = Resource("v1", "pods", "Pod", namespaced=True)
EVENTS = Resource("v1", "events", "Event", namespaced=True)
PERSISTENT_VOLUMES = Resource("v1", "persistentvolumes", "PersistentVolume")
PERSISTENT_VOLUME_CLAIMS = Resource("v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
DAEMON_SETS = Resource("apps/v1", "daemonsets", "DaemonSet", namespaced=True)
STORAGE_CLASSES = Resource("storage.k8s.io/v1", "storageclasses", "StorageClass")
CSI_NODES = Resource("storage.k8s.io/v1", "csinodes", "CSINode")
VOLUME_ATTACHMENTS = Resource("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment")
SERVICES = Resource("v1", "services", "Service", namespaced=True)
REPLICATION_CONTROLLERS = Resource("v1", "replicationcontrollers", "ReplicationController", namespaced=True)
LEASES = Resource("coordination.k8s.io/v1", "leases", "Lease", namespaced=True)
POD_DISRUPTION_BUDGETS = Resource("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
JOBS = Resource("batch/v1", "jobs", "Job", namespaced=True)
LIMIT_RANGES = Resource("v1", "limitranges", "LimitRange", namespaced=True)
RUNTIME_CLASSES = Resource("node.k8s.io/v1", "runtimeclasses", "RuntimeClass")
RESOURCE_SLICES = Resource("resource.k8s.io/v1", "resourceslices", "ResourceSlice")
RESOURCE_CLAIMS = Resource("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", namespaced=True)
RESOURCE_CLAIM_TEMPLATES = Resource(
    "resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
DEVICE_CLASSES = Resource("resource.k8s.io/v1", "deviceclasses", "DeviceClass")
POD_TEMPLATES = Resource("v1", "podtemplates", "PodTemplate", namespaced=True)
WORKLOADS = {
    "Deployment": Resource("apps/v1", "deployments", "Deployment", namespaced=True),
    "StatefulSet": Resource("apps/v1", "statefulsets", "StatefulSet", namespaced=True),
    "ReplicaSet": Resource("apps/v1", "replicasets", "ReplicaSet", namespaced=True),
}
"""Kinds that a CapacityBuffer can reference."""
RESOURCES = {one.kind: one for one in tuple(globals().values()) if isinstance(one, Resource)} | WORKLOADS
"""By kind."""
KINDS = {one.plural: one.kind for one in RESOURCES.values()}
"""By plural."""


def resource_of(path: str) -> str:
    """The plural, and the subresource if any: `pods/eviction` for `/api/v1/namespaces/web/pods/web-1/eviction`."""
    parts = path.strip("/").split("/")
    rest = parts[2 if parts[0] == "api" else 3 :]
    if rest[:1] == [NAMESPACES.plural] and len(rest) > 2:
        rest = rest[2:]
    return "/".join(rest[::2]) or path
