"""Node objects at registration, their status patches, and the API calls of kubelet and cloud controller for them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from tenure.sandbox.nodes.api_connection import STRATEGIC_PATCH, Json, KubeConnection, RequestRejected
from tenure.sandbox.nodes.capacity import Resources, labels_of_kind
from tenure.sandbox.nodes.instances import Instance, MachineType
from tenure.sandbox.nodes.userdata import Join

ConditionStatus = Literal["True", "False", "Unknown"]

MANAGED = "sandbox.tenure.sh/instance-id"
"""Label of Nodes that the simulator created."""
KWOK_ANNOTATION = "kwok.x-k8s.io/node"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN_TAINT = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
KUBELET_VERSION = "v1.34.4-eks-sandbox"
# The message of a kubelet without a running network plugin.
CNI_MESSAGE = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized"
)
_PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def labels_of(instance: Instance, machine: MachineType, join: Join, region: str) -> dict[str, str]:
    """Labels of the user data, overridden by those of kubelet and cloud provider."""
    own = {
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/os": join.system,
        "beta.kubernetes.io/arch": machine.architecture,
        "beta.kubernetes.io/os": join.system,
        "kubernetes.io/hostname": instance.node_name,
        "node.kubernetes.io/instance-type": instance.instance_type,
        "beta.kubernetes.io/instance-type": instance.instance_type,
        "topology.kubernetes.io/zone": instance.zone,
        "topology.kubernetes.io/region": region,
        "failure-domain.beta.kubernetes.io/zone": instance.zone,
        "failure-domain.beta.kubernetes.io/region": region,
        MANAGED: instance.id,
    }
    zone_id = {"topology.k8s.aws/zone-id": instance.zone_id} if instance.zone_id else {}
    return join.labels | own | zone_id | labels_of_kind(instance, machine)


def node_object(
    instance: Instance, machine: MachineType, join: Join, *, region: str, resources: Resources, boot_id: str
) -> Json:
    """The Node at registration, not Ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": instance.node_name,
            "labels": labels_of(instance, machine, join, region),
            "annotations": {KWOK_ANNOTATION: "fake", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {
            "providerID": instance.provider_id,
            "taints": [taint.to_object() for taint in join.taints if taint.key != UNINITIALIZED],
        },
        "status": {
            "addresses": addresses_of(instance),
            "capacity": resources.capacity,
            "allocatable": resources.allocatable,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": node_info(instance, machine, join, boot_id),
            "conditions": conditions("False", "KubeletNotReady", CNI_MESSAGE),
            "phase": "Running",
        },
    }


def addresses_of(instance: Instance) -> list[Json]:
    found = [{"type": "InternalIP", "address": instance.private_ip}] if instance.private_ip else []
    named = [{"type": kind, "address": instance.node_name} for kind in ("InternalDNS", "Hostname")]
    return [*found, *named]


def node_info(instance: Instance, machine: MachineType, join: Join, boot_id: str) -> Json:
    """No value may be empty or look like a number, because kwok's templates parse them as YAML."""
    linux = f"6.1.150-174.273.amzn2023.{machine.architecture}"
    return {
        "architecture": machine.architecture,
        "operatingSystem": join.system,
        "osImage": join.os_image,
        "kernelVersion": "10.0.20348.2700" if join.system == "windows" else linux,
        "kubeletVersion": KUBELET_VERSION,
        "kubeProxyVersion": KUBELET_VERSION,
        "containerRuntimeVersion": "containerd://2.1.4",
        "machineID": f"ec2-{instance.id}",
        "systemUUID": f"ec2-{instance.id}",
        "bootID": boot_id,
    }


def conditions(ready: ConditionStatus, reason: str, message: str) -> list[Json]:
    """All conditions of a kubelet, with Ready last."""
    stamp = now()
    pressures = [condition(kind, "False", *why, stamp=stamp) for kind, why in _PRESSURES.items()]
    return [*pressures, condition("Ready", ready, reason, message, stamp=stamp)]


def condition(kind: str, status: ConditionStatus, reason: str, message: str, *, stamp: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }


_ROOT = "/api/v1/nodes"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_NOT_FOUND, _CONFLICT = 404, 409
Taints = list[Json]


class NodesApi:
    """Every call is retried until the API server responds. Unexpected rejections raise `RequestRejected`."""

    def __init__(self, connection: KubeConnection) -> None:
        self._connection = connection

    async def list_managed(self, also: str = "") -> list[Json]:
        """Nodes of this or a previous simulator; only those with the label `also`, if given."""
        selector = f"{MANAGED},{also}" if also else MANAGED
        response = await self._connection.call("GET", f"{_ROOT}?labelSelector={selector}")
        found: list[Json] = response["items"]
        return found

    async def create(self, node: Json) -> Json | None:
        """The created Node, or None if the name is taken."""
        try:
            return await self._connection.call("POST", _ROOT, node)
        except RequestRejected as error:
            if error.status != _CONFLICT:
                raise
            return None

    async def create_slice(self, resource_slice: Json) -> None:
        """Create a ResourceSlice. An existing one with this name stays."""
        try:
            await self._connection.call("POST", _SLICES, resource_slice)
        except RequestRejected as error:
            if error.status != _CONFLICT:
                raise

    async def get(self, name: str) -> Json | None:
        try:
            return await self._connection.call("GET", f"{_ROOT}/{name}")
        except RequestRejected as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    async def patch(self, name: str, patch: Json) -> bool:
        """Patch metadata and spec. Returns whether the Node exists."""
        return await self._patch(f"{_ROOT}/{name}", patch)

    async def patch_status(self, name: str, status: Json) -> bool:
        """Patch the status; conditions merge by type, resources by name. Returns whether the Node exists."""
        return await self._patch(f"{_ROOT}/{name}/status", {"status": status})

    async def change_taints(self, name: str, change: Callable[[Taints], Taints]) -> None:
        """Read, change and write taints, with retries after conflicts. A missing Node is ignored."""
        while node := await self.get(name):
            before: Taints = node["spec"].get("taints", [])
            after = change(before)
            if after == before:
                return
            version = node["metadata"]["resourceVersion"]
            try:
                await self.patch(name, {"metadata": {"resourceVersion": version}, "spec": {"taints": after}})
                return
            except RequestRejected as error:
                if error.status != _CONFLICT:
                    raise

    async def delete(self, name: str, uid: str) -> None:
        """Request the deletion once. Finalizers may delay it. A new Node with the same name is not deleted."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._connection.call("DELETE", f"{_ROOT}/{name}", body)
        except RequestRejected as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    async def _patch(self, path: str, patch: Json) -> bool:
        try:
            await self._connection.call("PATCH", path, patch, content_type=STRATEGIC_PATCH)
        except RequestRejected as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True


def merge_taints(taints: Taints, added: Taints) -> Taints:
    """Add taints whose key and effect are not present."""
    return [*taints, *remove_taints(added, taints)]


def remove_taints(taints: Taints, removed: Taints) -> Taints:
    """Remove taints with the same key and effect."""
    removed_keys = {(taint["key"], taint["effect"]) for taint in removed}
    return [taint for taint in taints if (taint["key"], taint["effect"]) not in removed_keys]
