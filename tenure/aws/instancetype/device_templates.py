"""Devices that DRA drivers publish on the nodes of an instance type, known before its launch.

The values for GPUs and EFA are those of Karpenter's tables, which were read from real nodes (reference 1.15, A9). Those
for Neuron devices are the driver's list of attributes (AWS Neuron documentation, containers/neuron-dra). Attributes
whose value is not known before the launch are left out, such as the driver's version and the PCIe root, and those that
differ between the devices of a node. Other families have no template; neither have fractional GPUs (g6f, gr6f) and
UltraServers (trn2u), whose devices are whole nodes.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tenure.apis import labels
from tenure.apis.feature_gates import FeatureGate
from tenure.apis.resources import Resources
from tenure.aws.instancetype.info import TypeInfo
from tenure.aws.settings import AwsSettings
from tenure.model.instance_types import DeviceTemplate

NVIDIA_DRIVER: Final = "gpu.nvidia.com"
NEURON_DRIVER: Final = "neuron.aws.com"


class _Gpu(NamedTuple):
    product: str
    architecture: str
    compute_capability: str
    memory: str
    brand: str = "Nvidia"


_GPU_BY_FAMILY: Final = {
    "g4dn": _Gpu("Tesla T4", "Turing", "7.5.0", "15Gi"),
    "g5": _Gpu("NVIDIA A10G", "Ampere", "8.6.0", "23028Mi"),
    "g5g": _Gpu("NVIDIA T4G", "Turing", "7.5.0", "15Gi"),
    "g6": _Gpu("NVIDIA L4", "Ada Lovelace", "8.9.0", "23034Mi"),
    "gr6": _Gpu("NVIDIA L4", "Ada Lovelace", "8.9.0", "23034Mi"),
    "g6e": _Gpu("NVIDIA L40S", "Ada Lovelace", "8.9.0", "46068Mi"),
    "p3dn": _Gpu("Tesla V100-SXM2-32GB", "Volta", "7.0.0", "32Gi", "Tesla"),
    "p4d": _Gpu("NVIDIA A100-SXM4-40GB", "Ampere", "8.0.0", "40320Mi"),
    "p4de": _Gpu("NVIDIA A100-SXM4-80GB", "Ampere", "8.0.0", "80Gi"),
    "p5": _Gpu("NVIDIA H100 80GB HBM3", "Hopper", "9.0.0", "81152Mi"),
    "p5e": _Gpu("NVIDIA H200", "Hopper", "9.0.0", "140Gi"),
    "p5en": _Gpu("NVIDIA H200", "Hopper", "9.0.0", "140Gi"),
    "p6-b200": _Gpu("NVIDIA B200", "Blackwell", "10.0.0", "182784Mi"),
    "p6-b300": _Gpu("NVIDIA B300 SXM6 AC", "Blackwell", "10.3.0", "268Gi"),
}
_MEMORY_BY_TYPE: Final = {"g5g.metal": "16Gi"}
_NEURON_FAMILIES: Final = frozenset({"trn1", "trn1n", "trn2"})
"""The driver supports Trainium only."""
_WITHOUT_RDMA: Final = frozenset({"g4dn.metal"})


def device_templates_of(
    info: TypeInfo, capacity: Resources, settings: AwsSettings, *, shared_gpus: bool = False
) -> tuple[DeviceTemplate, ...]:
    """Empty unless the gate of the driver is enabled. `capacity`: of the type under its EC2NodeClass. Shared GPUs have
    no template."""
    family = info.name.partition(".")[0]
    if family not in _GPU_BY_FAMILY and family not in _NEURON_FAMILIES:
        return ()
    gpu = None if shared_gpus else _GPU_BY_FAMILY.get(family)
    return tuple(_build_templates(info, capacity, settings, gpu))


def _build_templates(
    info: TypeInfo, capacity: Resources, settings: AwsSettings, gpu: _Gpu | None
) -> Iterator[DeviceTemplate]:
    if gpu and settings.is_gate_enabled(FeatureGate.DRA_NVIDIA_GPU) and (gpus := capacity.get(labels.NVIDIA_GPU)):
        yield DeviceTemplate(
            driver=NVIDIA_DRIVER,
            pool=f"gpus-{info.name}",
            name="gpu-0",
            count=gpus,
            attributes={
                "architecture": {"string": gpu.architecture},
                "brand": {"string": gpu.brand},
                "cudaComputeCapability": {"version": gpu.compute_capability},
                "productName": {"string": gpu.product},
                "type": {"string": "gpu"},
            },
            capacity={"memory": {"value": _MEMORY_BY_TYPE.get(info.name, gpu.memory)}},
        )
    if settings.is_gate_enabled(FeatureGate.DRA_NEURON) and (devices := capacity.get(labels.NEURON)):
        yield DeviceTemplate(
            driver=NEURON_DRIVER,
            pool=f"neuron-{info.name}",
            name="neuron-device-0",
            count=devices,
            attributes={"instanceType": {"string": info.name}, "resourceType": {"string": "neuron_device"}},
        )
    if settings.is_gate_enabled(FeatureGate.DRA_EFA) and (interfaces := capacity.get(labels.EFA)):
        yield DeviceTemplate(
            driver=labels.EFA_DRA_DRIVER,
            pool=f"network-{info.name}",
            name="efa-0",
            count=interfaces,
            attributes={
                "dra.net/pciDevice": {"string": "Elastic Fabric Adapter (EFA)"},
                "dra.net/pciVendor": {"string": "Amazon.com, Inc."},
                "dra.net/rdma": {"bool": info.name not in _WITHOUT_RDMA},
            },
        )
