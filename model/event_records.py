"""What came from AWS for one node, under which policy, and what was done: what `tenure events` shows.

A NodeClaim's workflow keeps the records in its memo, so that they are read with the list of workflows: without a
worker, without a call for each node, and for as long as Temporal keeps a workflow that is over.
"""

from datetime import datetime
from typing import Final, Literal

from model.base import Message
from model.interruptions import EventKind

MEMO: Final = "TenureEvents"
"""The memo's field: a list of `EventRecord`, the oldest first."""


class EventRecord(Message):
    """One event of one node."""

    kind: EventKind
    code: str = ""
    """AWS's word for it."""
    heard: datetime
    starts: datetime | None = None
    """When AWS acts; None: at once, or it is not known."""
    status: Literal["announced", "withdrawn", "over"] = "announced"
    policy: str = ""
    """The LifecyclePolicies that say something of the kind; empty: none does, and Karpenter's table holds."""
    action: str
    """What they have for it, as a LifecyclePolicy says it."""
    done: str
    """What was done, or is waited for, in words."""
    waits: bool = False
    """For a time, a person or a permit."""
    since: datetime
    """When that began to be so."""


class Tally(Message):
    """What became of the messages of the queue, as the activity that reads it counts them."""

    since: datetime
    counts: dict[str, int] = {}
    """`received`, `deleted`, and by the words of tenure_interruption_messages_dropped_total why one was dropped."""
