"""Amounts of resources as integers, and the taints that Tenure sets, waits for or ignores.

`cpu` is in millicores; `memory`, `ephemeral-storage` and hugepages in bytes; everything else is a count.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tenure.apis import labels
from tenure.apis.meta import Taint

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


def sum_resources(many: Iterable[Resources]) -> dict[str, int]:
    """Sum of any number of amounts; empty for none."""
    return add(*many)


def subtract(left: Resources, right: Resources) -> dict[str, int]:
    """Left minus right, key by key; may be negative."""
    return {key: left.get(key, 0) - right.get(key, 0) for key in {*left, *right}}


def elementwise_max(*many: Resources) -> dict[str, int]:
    """The larger amount of each key."""
    best: dict[str, int] = {}
    for one in many:
        for key, amount in one.items():
            best[key] = max(best.get(key, 0), amount)
    return best


def fits(request: Resources, available: Resources) -> bool:
    """Whether every requested amount is available; an amount of zero or less requests nothing."""
    return all(amount <= available.get(key, 0) for key, amount in request.items() if amount > 0)


def exceeded_resources(usage: Resources, limits: Resources) -> tuple[str, ...]:
    """The resources whose usage exceeds the limit, sorted."""
    return tuple(sorted(key for key, limit in limits.items() if usage.get(key, 0) > limit))


def missing_resources(requests: Resources, available: Resources, *, ignored: Collection[str] = ()) -> list[str]:
    """The requested resources of which nothing is available, sorted."""
    return sorted(
        key for key, amount in requests.items() if amount > 0 and key not in ignored and not available.get(key)
    )


UNREGISTERED: Final = Taint(key=labels.UNREGISTERED_TAINT_KEY, effect=labels.NO_EXECUTE)
_KNOWN_EPHEMERAL: Final = frozenset(
    {
        (labels.NOT_READY_TAINT_KEY, "", labels.NO_SCHEDULE),
        (labels.NOT_READY_TAINT_KEY, "", labels.NO_EXECUTE),
        (labels.UNREACHABLE_TAINT_KEY, "", labels.NO_SCHEDULE),
        (labels.UNINITIALIZED_TAINT_KEY, "true", labels.NO_SCHEDULE),
        (labels.UNREGISTERED_TAINT_KEY, "", labels.NO_EXECUTE),
    }
)
"""Key, value and effect."""


def is_known_ephemeral(key: str, value: str, effect: str) -> bool:
    """Whether the taint belongs to node startup and disappears after it.

    Planning ignores such taints until the node is initialized, and initialization waits until all are removed."""
    return key.startswith(labels.READINESS_TAINT_PREFIX) or (key, value, effect) in _KNOWN_EPHEMERAL


TRANSIENT: Final = frozenset(
    {
        labels.NOT_READY_TAINT_KEY,
        labels.UNREACHABLE_TAINT_KEY,
        labels.NETWORK_UNAVAILABLE_TAINT_KEY,
        labels.UNINITIALIZED_TAINT_KEY,
        labels.SHUTDOWN_TAINT_KEY,
        labels.UNREGISTERED_TAINT_KEY,
    }
)
"""Keys of taints that reflect a node's health or its registration, with any effect."""


def is_transient_taint(key: str) -> bool:
    """Whether taints with this key are temporary on any node. A NodePool's startup taints are temporary too."""
    return key in TRANSIENT or key.startswith(labels.READINESS_TAINT_PREFIX)


def merge(existing: Iterable[Taint], added: Iterable[Taint]) -> tuple[Taint, ...]:
    """The existing taints, and the taints of `added` with a new key and effect."""
    merged = list(existing)
    for taint in added:
        if not any(taint.matches(one) for one in merged):
            merged.append(taint)
    return tuple(merged)
