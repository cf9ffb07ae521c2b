"""Amounts of resources as plain integers.

`cpu` is in millicores; `memory`, `ephemeral-storage` and hugepages in bytes; everything else is a count.
`model.quantity` turns Kubernetes' strings into these numbers and back.
"""

from collections.abc import Iterable, Mapping

Resources = Mapping[str, int]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
NODES = "nodes"


def add(*many: Resources) -> dict[str, int]:
    """Sum, key by key."""
    total: dict[str, int] = {}
    for one in many:
        for key, amount in one.items():
            total[key] = total.get(key, 0) + amount
    return total


def total(many: Iterable[Resources]) -> dict[str, int]:
    """Sum of any number of amounts; empty for none."""
    return add(*many)


def subtract(left: Resources, right: Resources) -> dict[str, int]:
    """Left minus right, key by key; may be negative."""
    return {key: left.get(key, 0) - right.get(key, 0) for key in {*left, *right}}


def largest(*many: Resources) -> dict[str, int]:
    """The larger amount of each key."""
    best: dict[str, int] = {}
    for one in many:
        for key, amount in one.items():
            best[key] = max(best.get(key, 0), amount)
    return best


def fits(request: Resources, room: Resources) -> bool:
    """True when every amount asked for is there; an amount of zero asks for nothing."""
    return all(amount <= room.get(key, 0) for key, amount in request.items() if amount > 0)


def exceeding(usage: Resources, limits: Resources) -> tuple[str, ...]:
    """The keys in which usage is above its limit, sorted."""
    return tuple(sorted(key for key, limit in limits.items() if usage.get(key, 0) > limit))
