"""The taints that Tenure sets, waits for or looks through."""

from collections.abc import Iterable
from typing import Final

from model import labels
from model.kinds.meta import Taint

DISRUPTED: Final = Taint(key=labels.DISRUPTED_TAINT_KEY, effect=labels.NO_SCHEDULE)
UNREGISTERED: Final = Taint(key=labels.UNREGISTERED_TAINT_KEY, effect=labels.NO_EXECUTE)
# Present on a node while it starts: planning looks through them until the node is initialized, and
# initialization waits until all are gone.
KNOWN_EPHEMERAL: Final = (
    Taint(key=labels.NOT_READY_TAINT_KEY, effect=labels.NO_SCHEDULE),
    Taint(key=labels.NOT_READY_TAINT_KEY, effect=labels.NO_EXECUTE),
    Taint(key=labels.UNREACHABLE_TAINT_KEY, effect=labels.NO_SCHEDULE),
    Taint(key=labels.UNINITIALIZED_TAINT_KEY, effect=labels.NO_SCHEDULE, value="true"),
    UNREGISTERED,
)


def is_known_ephemeral(taint: Taint) -> bool:
    """Whether the taint belongs to a node's start and goes by itself."""
    if taint.key.startswith(labels.READINESS_TAINT_PREFIX):
        return True
    return any(taint.matches(known) and taint.value == known.value for known in KNOWN_EPHEMERAL)


TRANSIENT: Final = frozenset(
    {
        labels.NOT_READY_TAINT_KEY,
        labels.UNREACHABLE_TAINT_KEY,
        labels.NETWORK_UNAVAILABLE_TAINT_KEY,
        labels.UNINITIALIZED_TAINT_KEY,
        labels.SHUTDOWN_TAINT_KEY,
    }
)
"""Keys of taints that come and go with a node's health, whatever their effect."""


def passes(key: str) -> bool:
    """Whether a taint of this key goes by itself, on any node; what a NodePool declares does so too."""
    return key in TRANSIENT or key.startswith(labels.READINESS_TAINT_PREFIX)


def merge(existing: Iterable[Taint], added: Iterable[Taint]) -> tuple[Taint, ...]:
    """The existing taints, and those of `added` whose key and effect are not among them."""
    merged = list(existing)
    for taint in added:
        if not any(taint.matches(one) for one in merged):
            merged.append(taint)
    return tuple(merged)
