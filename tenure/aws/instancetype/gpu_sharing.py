"""The mode in which the NVIDIA DRA driver shares GPUs on the nodes of an EC2NodeClass, from Karpenter's annotation.

Shared GPUs have consumable capacity, which Tenure does not plan. Their instance types therefore have no template.
Karpenter's rules for the value: `aws pkg/providers/nvidiadra/consumablecapacity.go` (reference 1.15, A9).
"""

import re
from typing import Final

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import NVIDIA_CONSUMABLE_CAPACITY

_EXCLUSIVE: Final = ("", "disabled")
_SHARED: Final = re.compile(r"memory|unlimited|\+?0*([1-9][0-9]{0,18})")
_MAX_SHARES: Final = 2**63 - 1


def shares_gpus(node_class: EC2NodeClass) -> bool:
    """True for every value except `disabled` and an empty one, even if it is invalid."""
    return _value(node_class) not in _EXCLUSIVE


def why_sharing_invalid(node_class: EC2NodeClass) -> str:
    """Why the value has no mode; empty if it has one."""
    value = _value(node_class)
    found = _SHARED.fullmatch(value)
    if value in _EXCLUSIVE or (found and int(found[1] or 1) <= _MAX_SHARES):
        return ""
    return f"{value[:60]!r}: unknown mode, expected disabled, memory, unlimited or a positive number of shares"


def _value(node_class: EC2NodeClass) -> str:
    return node_class.metadata.annotations.get(NVIDIA_CONSUMABLE_CAPACITY, "")
