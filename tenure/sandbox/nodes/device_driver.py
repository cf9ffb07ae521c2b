"""ResourceSlices of DRA drivers for the devices of a machine, as `gpu.nvidia.com`, `neuron.aws.com` and `dra.net`
publish them.

Memory is the amount that EC2 lists, which is more than a driver reports for some GPUs.
"""

from typing import Final

from tenure.sandbox.nodes.api_connection import Json
from tenure.sandbox.nodes.capacity import EFA
from tenure.sandbox.nodes.instances import GPU_RESOURCES, Gpu, MachineType

GPU_DRIVER: Final = "gpu.nvidia.com"
NEURON_DRIVER: Final = "neuron.aws.com"
EFA_DRIVER: Final = "dra.net"
NEURON: Final = "aws.amazon.com/neuron"
_TRAINIUM: Final = "trn"
"""The Neuron driver publishes no devices of Inferentia."""
_GPUS: Final = {
    "T4": ("Tesla T4", "Turing", "7.5.0"),
    "T4g": ("NVIDIA T4G", "Turing", "7.5.0"),
    "A10G": ("NVIDIA A10G", "Ampere", "8.6.0"),
    "A100": ("NVIDIA A100-SXM4-40GB", "Ampere", "8.0.0"),
    "L4": ("NVIDIA L4", "Ada Lovelace", "8.9.0"),
    "L40S": ("NVIDIA L40S", "Ada Lovelace", "8.9.0"),
    "H100": ("NVIDIA H100 80GB HBM3", "Hopper", "9.0.0"),
}
"""Product name, architecture and compute capability, by EC2's name."""


def build_slices(node: str, node_uid: str, machine: MachineType, found: dict[str, int]) -> list[Json]:
    """`found`: the numbers of devices that device plugins would report, by extended resource. The Node owns the slices,
    so that they are deleted with it."""
    gpus = [one for one in machine.gpus if found.get(GPU_RESOURCES["NVIDIA"]) and one.manufacturer == "NVIDIA"]
    chips = found.get(NEURON, 0) if machine.name.startswith(_TRAINIUM) else 0
    devices = {
        GPU_DRIVER: [_gpu_device(gpu, node, number) for gpu in gpus for number in range(gpu.count)],
        NEURON_DRIVER: [_neuron_device(machine.name, number) for number in range(chips)],
        EFA_DRIVER: [_efa_device(number) for number in range(found.get(EFA, 0))],
    }
    return [_build_slice(node, node_uid, driver, many) for driver, many in devices.items() if many]


def _build_slice(node: str, node_uid: str, driver: str, devices: list[Json]) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}", "ownerReferences": [owner]},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _gpu_device(gpu: Gpu, node: str, number: int) -> Json:
    name, architecture, capability = _GPUS.get(gpu.name, (f"NVIDIA {gpu.name}", "Unknown", "0.0.0"))
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{node}-{number}"[:64]},
            "productName": {"string": name},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": architecture},
            "cudaComputeCapability": {"version": capability},
            "driverVersion": {"version": "580.95.5"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number:02x}"},
        },
        "capacity": {"memory": {"value": f"{gpu.memory_mib}Mi"}},
    }


def _neuron_device(instance_type: str, number: int) -> Json:
    return {
        "name": f"neuron-device-{number}",
        "attributes": {
            "deviceId": {"int": number},
            "instanceType": {"string": instance_type},
            "resourceType": {"string": "neuron_device"},
            "neuronDriverVersion": {"string": "2.25.4.0"},
            "draDriverVersion": {"version": "1.0.0"},
        },
    }


def _efa_device(number: int) -> Json:
    return {
        "name": f"efa-{number}",
        "attributes": {
            f"{EFA_DRIVER}/pciVendor": {"string": "Amazon.com, Inc."},
            f"{EFA_DRIVER}/rdma": {"bool": True},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number:02x}"},
        },
    }
