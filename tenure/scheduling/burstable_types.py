"""The CPU that burstable instance types (t2, t3, t3a, t4g) sustain.

Above its baseline, such an instance spends CPU credits. Without credits it is throttled or, in unlimited mode, billed
0.04 to 0.05 US dollars for each vCPU hour. Plans therefore count the baseline, unless a requirement names burstable
types.
"""

from typing import Final

from tenure.apis.labels import INSTANCE_CATEGORY, INSTANCE_FAMILY, INSTANCE_TYPE
from tenure.model.requirements import Requirements

_T2_CREDITS: Final = {"nano": 3.0, "micro": 6, "small": 12, "medium": 24, "large": 36, "xlarge": 54, "2xlarge": 81.6}
_T3_CREDITS: Final = {"nano": 6.0, "micro": 12, "small": 24, "medium": 24, "large": 36, "xlarge": 96, "2xlarge": 192}
_CREDITS: Final = {"t2": _T2_CREDITS, "t3": _T3_CREDITS, "t3a": _T3_CREDITS, "t4g": _T3_CREDITS}
"""CPU credits earned per hour, by family and size (EC2 User Guide, "Key concepts for burstable performance
instances"). One credit is one vCPU for one minute."""
_NAMES: Final = {
    INSTANCE_TYPE: frozenset(f"{family}.{size}" for family, sizes in _CREDITS.items() for size in sizes),
    INSTANCE_FAMILY: frozenset(_CREDITS),
    INSTANCE_CATEGORY: frozenset("t"),
}


def baseline_millicores(instance_type: str) -> int | None:
    """CPU that the whole instance sustains; None for a type that is not burstable."""
    family, _, size = instance_type.partition(".")
    credits_per_hour = _CREDITS.get(family, {}).get(size)
    return None if credits_per_hour is None else round(credits_per_hour * 1000 / 60)


def names_burstable_types(requirements: Requirements) -> bool:
    """Whether a requirement lists a burstable instance type, family or category."""
    found = (requirements.get(key) for key in _NAMES)
    return any(one is not None and not one.complement and one.values & _NAMES[one.key] for one in found)
