"""Blockers of a drain as values: object, start time, cause, prospect and remedy.

The drain activity finds them and the NodeClaim workflow carries them in its state. Conditions, events, the Temporal UI
and the command line show them. Times are absolute, so that an unchanged status has the same text.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

from tenure.model.base import Message, Value
from tenure.model.facts import Selector

BlockerCause = Literal["budget", "budgets", "do-not-disrupt", "refused", "surge", "volume", "terminating", "policy"]
"""`refused`: the API server refuses the eviction for a reason that is no budget, such as a webhook. `policy`: a
LifecyclePolicy lets the pod go later than others."""
Prospect = Literal["never", "can", "at", "unknown"]
"""`never`: needs a change; `can`: clears when others act; `at`: clears at `passes_at`."""
BLOCKING_CAUSES: Final[frozenset[BlockerCause]] = frozenset({"budget", "budgets", "do-not-disrupt", "refused"})
"""Causes that `blockedFor` of a LifecyclePolicy counts. The others end without intervention."""
MAX_STATUS_LINE_LENGTH: Final = 250
"""Characters: SQL visibility has room for 255 in a Keyword."""
MAX_NAMED_BLOCKERS: Final = 5


_BLOCKER_CODES: Final[Mapping[BlockerCause, str]] = {
    "budget": "PodDisruptionBudget",
    "budgets": "MultiplePodDisruptionBudgets",
    "do-not-disrupt": "PodDoNotDisrupt",
    "refused": "EvictionRefused",
    "surge": "NewPodPending",
    "volume": "VolumesAttached",
    "policy": "PodsDeferred",
}


class EvictionBlocker(Message):
    subject: str
    """namespace/name of the pod, or the name of the VolumeAttachment."""
    uid: str = ""
    owner: str = ""
    """Kind and name of the pod's owner, such as `ReplicaSet web-5d9`."""
    cause: BlockerCause
    what: str
    since: datetime | None = None
    passes: Prospect = "can"
    passes_at: datetime | None = None
    hint: str = ""

    @property
    def summary(self) -> str:
        return f"{self.subject}: {self.what}"

    @property
    def describe_prospect(self) -> str:
        """Whether and when the blocker clears, as text; empty if unknown."""
        if self.passes == "at" and self.passes_at:
            return f"passes at {self.passes_at.isoformat(timespec='seconds')}"
        return {"never": "never passes by itself", "can": "can pass by itself"}.get(self.passes, "")

    @property
    def description(self) -> str:
        owner = f" ({self.owner})" if self.owner else ""
        since = f", since {self.since.isoformat(timespec='seconds')}" if self.since else ""
        outlook = ": ".join(part for part in (self.describe_prospect, self.hint) if part)
        return f"{self.subject}{owner}: {self.what}{since}" + (f"; {outlook}" if outlook else "")


class DrainStatus(Message):
    eviction_blockers: tuple[EvictionBlocker, ...] = ()
    """Those that have to be remembered first, then blocking ones, then those that end by themselves."""
    unnamed_blockers: int = 0
    pods: int = 0
    pods_in_later_groups: int = 0
    blocked_since: datetime | None = None
    """Start of the current block: a cause that does not clear on its own, and no pod has left since."""
    progress: datetime | None = None
    deadline: datetime | None = None
    """The end of the termination grace period: nothing is waited for beyond it."""
    not_ready_since: datetime | None = None
    """When the node became NotReady in this drain: its kubelet can end no pod."""
    not_ready_until: datetime | None = None
    follows: str = ""

    @property
    def blocker_summary(self) -> str:
        """One line that changes only when something does; empty while pods are merely ending."""
        parts = [one.summary for one in self.eviction_blockers[:MAX_NAMED_BLOCKERS] if one.cause != "terminating"]
        if self.not_ready_since:
            parts.insert(0, f"the node is NotReady since {self.not_ready_since.isoformat(timespec='seconds')}")
        return "; ".join(parts)

    @property
    def blocker_code(self) -> str:
        """The code of the first blocker in `status_line`, from `tenure/model/blockers.py`."""
        if self.not_ready_since:
            return "NodeNotReady"
        causes = [one.cause for one in self.eviction_blockers[:MAX_NAMED_BLOCKERS] if one.cause != "terminating"]
        return _BLOCKER_CODES[causes[0]] if causes else "PodsTerminating"

    @property
    def status_line(self) -> str:
        ending = f"pods are terminating: {', '.join(one.subject for one in self.eviction_blockers[:3])}"
        return (self.blocker_summary or ending)[:MAX_STATUS_LINE_LENGTH]

    def truncate(self) -> "DrainStatus":
        """The status as sent and shown: the first blockers by name, the rest as a count."""
        more = max(0, len(self.eviction_blockers) - MAX_NAMED_BLOCKERS)
        return self.model_copy(
            update={
                "eviction_blockers": self.eviction_blockers[:MAX_NAMED_BLOCKERS],
                "unnamed_blockers": self.unnamed_blockers + more,
            }
        )

    @property
    def status_lines(self) -> tuple[str, ...]:
        messages = [one.description for one in self.eviction_blockers[:MAX_NAMED_BLOCKERS]]
        if self.unnamed_blockers:
            messages.append(f"and {self.unnamed_blockers} more")
        if self.pods_in_later_groups:
            messages.append(f"pods of later groups that wait for these: {self.pods_in_later_groups}")
        if self.not_ready_since and self.not_ready_until:
            since = self.not_ready_since.isoformat(timespec="seconds")
            until = self.not_ready_until.isoformat(timespec="seconds")
            messages.append(f"the node is NotReady since {since}: the drain continues without its pods at {until}")
        if self.deadline:
            deadline = self.deadline.isoformat(timespec="seconds")
            messages.append(f"all pods are deleted by {deadline}, regardless of blockers")
        if self.follows:
            messages.append(self.follows)
        return tuple(messages)


class PodDrainRule(Message):
    match_labels: dict[str, str]
    blocked: bool = True
    until: datetime | None = None
    """Time at which the pods end regardless of blockers; None if unknown."""
    why: str = ""


class DrainState(Message):
    defers_deletion: bool = False
    """Its NodeClaim is deleted only when the pods are gone, so that the drain can be cancelled."""
    status: DrainStatus | None = None


class CancelledDrain(Message):
    at: datetime
    retry_at: datetime
    why: str


class EvictionBudget(Value):
    namespace: str
    name: str
    selector: Selector | None = None
    """None selects nothing."""
    min_available: str = ""
    max_unavailable: str = ""
    expected: int = 0
    """Pods that it counts; `desired` of them have to be healthy, `current` are, so that `allowed` may go."""
    desired: int = 0
    current: int = 0
    allowed: int = 0
    counted: bool = True
    sync_failed: str = ""
    always_unhealthy: bool = False
    """unhealthyPodEvictionPolicy AlwaysAllow: a pod that is not Ready may go in any case."""


class DeploymentRollout(Value):
    namespace: str
    name: str
    uid: str
    replicas: int
    surges: bool
    """A rollout makes the new pod before the old one goes."""
    restarted_at: str = ""
    """The annotation that kubectl rollout restart writes into the pods' template."""
