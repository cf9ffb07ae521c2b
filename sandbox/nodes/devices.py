"""The extended resources of a node: those that AWS's controllers give it at once, those that device plugins find later.

A device plugin finds GPUs and Neuron chips only where the image has their driver, which the names of EKS's own images
tell; of an image with another name it is taken for granted.
"""

import re

from aws.branch_interfaces import branch_interfaces
from sandbox.nodes.instance import Instance
from sandbox.nodes.machine_types import MachineType

POD_ENI = "vpc.amazonaws.com/pod-eni"
EFA = "vpc.amazonaws.com/efa"
PRIVATE_ADDRESS = "vpc.amazonaws.com/PrivateIPv4Address"
TRUNK_LABEL = {"vpc.amazonaws.com/has-trunk-attached": "true"}
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
_WINDOWS_BUILDS = {"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}
_NVIDIA, _NEURON = "nvidia.com/", "aws.amazon.com/neuron"
# What an image's name says of its drivers: the first that fits.
_DRIVERS = (
    (re.compile(r"amazon-eks-node-al2023-\w+-nvidia-"), (_NVIDIA,)),
    (re.compile(r"amazon-eks-node-al2023-\w+-neuron-"), (_NEURON,)),
    (re.compile(r"amazon-eks-node-al2023-\w+-standard-"), ()),
    (re.compile(r"amazon-eks-gpu-node-"), (_NVIDIA, _NEURON)),
    (re.compile(r"amazon-eks-(arm64-)?node-1\."), ()),
    (re.compile(r"bottlerocket-aws-k8s-[\d.]+-nvidia-"), (_NVIDIA,)),
    (re.compile(r"bottlerocket-aws-k8s-"), (_NEURON,)),
)


def given_at_once(instance: Instance, machine: MachineType) -> dict[str, int]:
    """What the VPC resource controller advertises: branch interfaces of a trunk, addresses of a Windows node."""
    if instance.platform == "windows":
        return {PRIVATE_ADDRESS: machine.addresses_per_interface - 1}
    branches = branch_interfaces(machine.name)
    return {POD_ENI: branches} if branches else {}


def found_by_plugins(instance: Instance, machine: MachineType) -> dict[str, int]:
    """GPUs and the like as far as the image has their driver, and the EFA interfaces it was launched with."""
    found = {name: count for name, count in machine.devices.items() if _has_driver(instance.image_name, name)}
    return found | ({EFA: instance.efa_interfaces} if instance.efa_interfaces else {})


def labels_of_kind(instance: Instance, machine: MachineType) -> dict[str, str]:
    """The label of a node that is a trunk, and the one by which a Windows node tells its build."""
    if instance.platform != "windows":
        return TRUNK_LABEL if branch_interfaces(machine.name) else {}
    year = re.search(r"Windows_Server-(\d{4})-", instance.image_name)
    return {WINDOWS_BUILD: _WINDOWS_BUILDS.get(year[1] if year else "", _WINDOWS_BUILDS["2022"])}


def _has_driver(image_name: str, resource: str) -> bool:
    for pattern, drivers in _DRIVERS:
        if pattern.match(image_name):
            return any(resource.startswith(driver) for driver in drivers)
    return True
