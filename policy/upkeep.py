"""What may be put away: verdicts on leftovers, from lists that were read and the time it is. Pure.

Whatever is in doubt stays: the next run looks again.
"""

from collections.abc import Set
from datetime import datetime

from model.upkeep import LeaseMark


def decide_left_lease(lease: LeaseMark, *, names: Set[str], uids: Set[str], now: datetime) -> bool:
    """No Node of its name, none that owns it, and nobody who renews it: a kubelet may be about to register."""
    if lease.deleting or lease.name in names or not uids.isdisjoint(lease.owners):
        return False
    return lease.alive_until < now
