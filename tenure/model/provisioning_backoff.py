"""Back-off of launches for pods that do not run on the nodes launched for them. Provisioning stores it."""

from datetime import datetime, timedelta
from typing import Final

from tenure.model.base import Message

UNUSED_NODE_LIMIT: Final = 3
"""Unused nodes after which further launches wait."""
FIRST_BACKOFF: Final = timedelta(minutes=1)
MAX_BACKOFF: Final = timedelta(hours=1)
RETENTION: Final = timedelta(hours=2)
"""How long an entry is kept after the last unused node."""
MAX_ENTRIES: Final = 500
MAX_NODECLAIMS: Final = 100
"""Names of NodeClaims per entry."""
_NAMED: Final = 3


class ProvisioningBackoff(Message):
    """Nodes that were initialized for a group of equal pods, of which none was bound to them."""

    pod_group: str
    """As in the NodeClaims' annotation `tenure.sh/pod-groups`."""
    pod: str
    """One of its pods as `namespace/name`."""
    unused_nodes: int = 0
    nodeclaims: tuple[str, ...] = ()
    """The counted NodeClaims; none is counted twice, even after a reset."""
    since: datetime
    last_unused_at: datetime
    context: str = ""
    """Hash of the objects that plans for the group depend on. A change resets the count."""
    scheduler_message: str = ""
    """The message with which kube-scheduler explains why the pod is pending."""

    @property
    def until(self) -> datetime | None:
        """When the next node may be launched for the group; None before the limit is reached."""
        excess = self.unused_nodes - UNUSED_NODE_LIMIT
        if excess < 0:
            return None
        return self.last_unused_at + min(MAX_BACKOFF, FIRST_BACKOFF * (1 << min(excess, 10)))

    def is_active(self, now: datetime) -> bool:
        return self.until is not None and now < self.until

    def describe(self) -> str:
        """For events, `tenure why` and `tenure stuck`. Changes only with the entry."""
        named = ", ".join(self.nodeclaims[-_NAMED:])
        scheduler = f"; kube-scheduler: {self.scheduler_message}" if self.scheduler_message else ""
        until = f"{self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else "now"
        return (
            f"{self.unused_nodes} nodes were launched for this pod and became ready, and kube-scheduler did not bind "
            f"it to any of them ({named}){scheduler}; the next node is launched after {until}, or when the pod, a "
            "NodePool, an EC2NodeClass, a DaemonSet or a volume changes"
        )


def select_retained(entries: "tuple[ProvisioningBackoff, ...]", now: datetime) -> "tuple[ProvisioningBackoff, ...]":
    """The entries to store: not older than RETENTION, at most MAX_ENTRIES, the latest."""
    recent = [one for one in entries if now < one.last_unused_at + RETENTION]
    recent.sort(key=lambda one: (one.last_unused_at, one.pod_group))
    return tuple(sorted(recent[-MAX_ENTRIES:], key=lambda one: one.pod_group))
