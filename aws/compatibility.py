"""Which instance types cannot run what an EC2NodeClass asks for. They stay listed, with nothing available."""

from aws.capacity import Machine
from model.kinds.instances import NetworkInterface


def why_incompatible(machine: Machine) -> str:
    """Empty when the type can be launched under the class."""
    info, spec = machine.info, machine.spec
    if not info.architecture:
        return "its architecture is neither amd64 nor arm64"
    if machine.family.name == "AL2023" and info.name.startswith("a1."):
        return "AL2023 does not boot on the a1 family"
    nested = spec.cpu_options.nested_virtualization if spec.cpu_options else None
    if nested == "enabled" and "nested-virtualization" not in info.processor_features:
        return "its processor has no nested virtualization"
    if spec.connection_tracking and info.hypervisor != "nitro":
        return "connection tracking can be set on Nitro machines only"
    if machine.strategy and machine.strategy not in info.strategies:
        return f"it cannot stand in a placement group of strategy {machine.strategy}"
    if 0 < (spec.ip_prefix_count or 0) >= _slots(machine):
        return "its interfaces take fewer addresses than spec.ipPrefixCount asks for"
    return _why_interfaces(machine) if spec.network_interfaces else ""


def _slots(machine: Machine) -> int:
    """Addresses of an interface; a prefix takes the place of one, and the interface's own address one more."""
    info = machine.info
    return info.ipv6_per_interface if machine.settings.ipv6 else info.ipv4_per_interface


def _why_interfaces(machine: Machine) -> str:
    info, interfaces = machine.info, machine.spec.network_interfaces
    limits = {card.index: card.interfaces for card in info.cards}
    if not info.ena:
        return "its network has no ENA"
    if any(_over(limits, one) for one in interfaces):
        return "it has fewer network cards or interfaces than spec.networkInterfaces names"
    if sum(1 for one in interfaces if one.interface_type == "efa-only") > info.efa_interfaces:
        return "it has fewer EFA interfaces than spec.networkInterfaces names"
    return ""


def _over(limits: dict[int, int], one: NetworkInterface) -> bool:
    return one.device_index >= limits.get(one.network_card_index, 0)
