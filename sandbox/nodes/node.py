"""The Node objects: as registered, and the status patches that follow in a machine's life."""

from datetime import UTC, datetime
from typing import Any, Literal

from sandbox.nodes.capacity import Resources
from sandbox.nodes.devices import labels_of_kind
from sandbox.nodes.instance import Instance
from sandbox.nodes.machine_types import MachineType
from sandbox.nodes.userdata import Join

Json = dict[str, Any]
ConditionStatus = Literal["True", "False", "Unknown"]

MANAGED = "sandbox.tenure.sh/instance-id"
"""Label by which the simulator knows its own Nodes."""
KWOK_ANNOTATION = "kwok.x-k8s.io/node"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN_TAINT = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
KUBELET_VERSION = "v1.34.4-eks-sandbox"
# The message of a kubelet whose network plugin has not said that it is there.
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
    """The user data's labels under those that kubelet and cloud provider set by themselves."""
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
    """The Node as its kubelet first writes it: not ready."""
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
    """No text may be empty or look like a number: kwok's templates read them as YAML and would fail on the type."""
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
    """All that a kubelet reports, with Ready last."""
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
