"""The ports of interruption handling: the queue, instance status, and the notifier of nodes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tenure.model.interruption.messages import InterruptionMessage, StatusReport
from tenure.model.interruption.records import QueueMessage
from tenure.model.provider_results import DrainPod

NotifyOutcome = Literal["notified", "repeated", "over", "foreign", "not yet", "no workflow", "later"]
"""Result of notifying a node workflow. `repeated`: it already has the messages. `over`: it is closed or about to close.
`foreign`: not an instance of this cluster. `not yet`: the instance may be launching. `no workflow`: the NodeClaim's
workflow is not running yet. `later`: the workflow cannot be signaled now."""


class EventQueue(Protocol):
    """The SQS queue of interruption messages, by name."""

    async def receive(self, queue: str, *, wait: int) -> Sequence[QueueMessage]:
        """Up to ten messages. `wait`: seconds to wait for the first one, at most 20."""

    async def delete(self, queue: str, receipts: Sequence[str]) -> int:
        """Returns the number of deleted messages."""


class InstanceStatuses(Protocol):
    """DescribeInstanceStatus."""

    async def read(self) -> Sequence[StatusReport]:
        """All instances of the account and region with a failed check or a scheduled event."""


@dataclass(frozen=True)
class InterruptedNode:
    """A node that AWS reclaims, and the pods to evict first."""

    node: str
    uid: str
    tainted: bool
    """With the taint `karpenter.sh/disrupted`."""
    pods: Sequence[DrainPod]


class NodeInterruptionNotifier(Protocol):
    """Finds and signals the workflow of an instance; implemented by the process that hosts the watch."""

    def find_owned(self, instance_ids: Collection[str]) -> frozenset[str]:
        """The instances that have a NodeClaim in this cluster."""

    def find_interrupted_node(
        self, instance_id: str, messages: Sequence[InterruptionMessage]
    ) -> InterruptedNode | None:
        """The node whose pods are evicted before its workflow is notified; None if the workflow decides."""

    async def notify(
        self, instance_id: str, messages: Sequence[InterruptionMessage], evicted_pods: Sequence[str] = ()
    ) -> NotifyOutcome:
        """Signal the messages to the workflow of the instance; `notified` if Temporal accepts the signal.

        `evicted_pods`: pods that are already evicted, as `namespace/name`.
        """
