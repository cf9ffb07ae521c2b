"""What of a machine's capacity pods do not get: kube-reserved, system-reserved, the hard eviction threshold.

Karpenter's formulas; `capacity.py` comes before, `model.catalogue.InstanceType.allocatable` after.
"""

from collections.abc import Mapping
from math import ceil
from typing import Final

from aws.capacity import MIB, Machine, eni_limited_pods
from aws.families import GIB
from model import labels
from model.quantity import QuantityError, parse_quantity, parse_resources
from model.resources import add

# Millicores reserved per thousand, of: the first core, the second, the third and fourth, all others.
_CPU_BANDS: Final = ((1, 60), (1, 10), (2, 5))
_CPU_REST_PER_MILLE: Final = 2.5
_EVICTION_MEMORY: Final = 100 * MIB
_SIGNALS: Final = {"memory.available": labels.MEMORY, "nodefs.available": labels.EPHEMERAL_STORAGE}


def overhead_of(machine: Machine, capacity: Mapping[str, int]) -> dict[str, int]:
    """All three together, in millicores and bytes."""
    system = parse_resources(machine.kubelet.system_reserved)
    found = add(kube_reserved(machine, capacity), system, eviction(machine, capacity))
    return {key: amount for key, amount in found.items() if amount and key != "pid"}


def kube_reserved(machine: Machine, capacity: Mapping[str, int]) -> dict[str, int]:
    """Defaults by pods and cores; `kubelet.kubeReserved` overrides key by key."""
    pods = eni_limited_pods(machine, 0) if machine.family.eni_limited_overhead else capacity.get(labels.PODS, 0)
    defaults = {
        labels.CPU: reserved_millicores(machine.info.vcpus),
        labels.MEMORY: (11 * pods + 255) * MIB,
        labels.EPHEMERAL_STORAGE: GIB,
    }
    return defaults | parse_resources(machine.kubelet.kube_reserved)


def reserved_millicores(vcpus: int) -> int:
    """6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest, each band cut to a whole."""
    total, left = 0, vcpus
    for cores, per_mille in _CPU_BANDS:
        total += min(left, cores) * per_mille
        left -= min(left, cores)
    return total + int(left * _CPU_REST_PER_MILLE)


def eviction(machine: Machine, capacity: Mapping[str, int]) -> dict[str, int]:
    """What the kubelet keeps free: below it pods are evicted. Soft thresholds keep nothing."""
    found = {
        labels.MEMORY: _EVICTION_MEMORY,
        labels.EPHEMERAL_STORAGE: ceil(capacity.get(labels.EPHEMERAL_STORAGE, 0) / 10),
    }
    for signal, resource in _SIGNALS.items():
        text = machine.kubelet.eviction_hard.get(signal)
        amount = None if text is None else threshold(text, capacity.get(resource, 0))
        if amount is not None:
            found[resource] = amount
    return found


def threshold(text: str, capacity: int) -> int | None:
    """A quantity, or a percentage of capacity rounded up, where 100 % switches the signal off; None for neither."""
    try:
        if not text.endswith("%"):
            return parse_quantity(text)
        percent = float(text[:-1])
    except (QuantityError, ValueError):
        return None
    return 0 if percent >= 100 else ceil(capacity * percent / 100)
