"""The number of volumes that the EBS CSI driver attaches to a node of a type, before its CSINode states it."""

from typing import Final

from tenure.aws.instancetype.capacity import Machine

_DEFAULT: Final = 27
"""For types without a figure of EC2; shared."""
_WITHOUT_NITRO: Final = 39


def ebs_attachments_of(machine: Machine) -> int:
    """EC2's limit minus the volumes of the launch, by the driver's rule (aws-ebs-csi-driver, `pkg/cloud/limits`).

    EC2's figure excludes the primary network interface and the local disks. Where network interfaces share the limit,
    those of the launch count, and one that the VPC CNI attaches at its start. At least 1, as in the driver.
    """
    info = machine.info
    if info.hypervisor == "xen":
        limit, shared = _WITHOUT_NITRO, False
    else:
        limit, shared = info.ebs_attachments or _DEFAULT, info.shares_attachments
    if shared:
        limit -= _further_interfaces(machine)
    return max(1, limit - _launch_volumes(machine))


def _further_interfaces(machine: Machine) -> int:
    """Network interfaces without the primary one."""
    at_launch = max(1, len(machine.spec.network_interfaces))
    return min(at_launch + 1, max(at_launch, machine.info.default_interfaces)) - 1


def _launch_volumes(machine: Machine) -> int:
    """EBS volumes of the launch, with the root volume."""
    named = {one.device_name for one in machine.spec.block_device_mappings if one.ebs}
    if not named:
        named = {one.device for one in machine.disks.default_disks(machine.family)}
    return max(1, len(named | {device for device, _ in machine.disks.volumes}))
