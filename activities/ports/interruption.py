"""The ports of interruption handling: the queue, instance status, and the notifier of nodes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tenure.model.interruption.messages import InterruptionMessage, StatusReport
from tenure.model.interruption.records import QueueMessage
from tenure.model.provider_results import DrainPod

NotifyOutcome = Literal["notified", "repeated", "over", "foreign", "not yet", "no workflow", "later"]
"""What became of telling a node. `repeated`: it knows; `over`: its life is, or closes; `foreign`: no instance of this
cluster; `not yet`: it may be one that is being launched; `no workflow`: it is ours, and its workflow is not there yet,
or not again; `later`: the workflow cannot be signaled at present."""


class EventQueue(Protocol):
    """The SQS queue with EC2's events, by name."""

    async def receive(self, queue: str, *, wait: int) -> Sequence[QueueMessage]:
        """Up to ten messages; waits so many seconds, at most 20, for the first one."""

    async def delete(self, queue: str, receipts: Sequence[str]) -> int:
        """How many are gone."""


class InstanceStatuses(Protocol):
    """DescribeInstanceStatus."""

    async def read(self) -> Sequence[StatusReport]:
        """Every instance in the region, of whoever, that has a failing check or a scheduled event."""


@dataclass(frozen=True)
class InterruptedNode:
    """A node that AWS takes back, and those of its pods that are told to go first."""

    node: str
    uid: str
    tainted: bool
    """By whomever."""
    pods: Sequence[DrainPod]


class NodeInterruptionNotifier(Protocol):
    """Who knows which NodeClaim's life an instance belongs to: the process that hosts the watch."""

    def find_owned(self, instance_ids: Collection[str]) -> frozenset[str]:
        """Those of them that are this cluster's, as far as it is known now."""

    def find_interrupted_node(
        self, instance_id: str, messages: Sequence[InterruptionMessage]
    ) -> InterruptedNode | None:
        """The instance's node, where its pods have to go before its life is asked; None where that decides."""

    async def notify(
        self, instance_id: str, messages: Sequence[InterruptionMessage], left: Sequence[str] = ()
    ) -> NotifyOutcome:
        """Tell the life of the instance's node; `told` once Temporal has accepted it. `left`: pods that were told to go
        already, as `namespace/name`."""
