"""Blockers of a drain: object, start time, cause, prospect and remedy.

The drain activity finds them, and the NodeClaim workflow stores them in its state. Conditions, events, the Temporal UI
and the command line show them. Times are absolute, so an unchanged status keeps its text.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

from tenure.model.base import Message, Value

BlockerCause = Literal[
    "budget", "budgets", "do-not-disrupt", "refused", "surge", "volume", "terminating", "policy", "responder"
]
"""`refused`: the API server rejects the eviction for another reason than a budget, such as a webhook. `policy`: a
LifecyclePolicy evicts the pod later than others. `responder`: a responder of the pod handles its eviction."""
Prospect = Literal["never", "can", "at", "unknown"]
"""`never`: someone must change an object; `can`: may clear without that; `at`: clears at `passes_at`."""
BLOCKING_CAUSES: Final[frozenset[BlockerCause]] = frozenset(
    {"budget", "budgets", "do-not-disrupt", "refused", "volume", "responder"}
)
"""Causes that `blockedFor` of a LifecyclePolicy counts. The others end without intervention."""
MAX_STATUS_LINE_LENGTH: Final = 250
"""Characters: a Keyword in SQL visibility holds 255."""
MAX_NAMED_BLOCKERS: Final = 5


_BLOCKER_CODES: Final[Mapping[BlockerCause, str]] = {
    "budget": "PodDisruptionBudget",
    "budgets": "MultiplePodDisruptionBudgets",
    "do-not-disrupt": "PodDoNotDisruptUntil",
    "refused": "EvictionRefused",
    "surge": "NewPodPending",
    "volume": "VolumesAttached",
    "policy": "PodsDeferred",
    "responder": "EvictionRequested",
}
_PERMANENT_BLOCKER_CODES: Final[Mapping[BlockerCause, str]] = {
    "budget": "PodDisruptionBudgetAllowsNone",
    "do-not-disrupt": "PodDoNotDisrupt",
}
"""If the blocker never clears on its own."""


class EvictionBlocker(Message):
    subject: str
    """namespace/name of the pod, or kind and name of the VolumeAttachment."""
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
    def code(self) -> str:
        """A code of `tenure/model/blockers.py`."""
        permanent = _PERMANENT_BLOCKER_CODES.get(self.cause) if self.passes == "never" else None
        return permanent or _BLOCKER_CODES.get(self.cause, "PodsTerminating")

    @property
    def describe_prospect(self) -> str:
        """Whether and when the blocker clears, as text; empty if unknown."""
        if self.passes == "at" and self.passes_at:
            return f"passes at {self.passes_at.isoformat(timespec='seconds')}"
        return {"never": "will not clear on its own", "can": "may clear on its own"}.get(self.passes, "")

    @property
    def description(self) -> str:
        owner = f" ({self.owner})" if self.owner else ""
        since = f", since {self.since.isoformat(timespec='seconds')}" if self.since else ""
        outlook = ": ".join(part for part in (self.describe_prospect, self.hint) if part)
        return f"{self.subject}{owner}: {self.what}{since}" + (f"; {outlook}" if outlook else "")


class DrainStatus(Message):
    eviction_blockers: tuple[EvictionBlocker, ...] = ()
    """Restarted Deployments first, since the status must keep their start times. Then blocking causes, then causes that
    end on their own."""
    unnamed_blockers: int = 0
    pods: int = 0
    pods_in_later_groups: int = 0
    blocked_since: datetime | None = None
    """The time since which one of BLOCKING_CAUSES holds; at the earliest since the last pod left."""
    progress: datetime | None = None
    deadline: datetime | None = None
    """The end of the termination grace period, which also ends the drain."""
    not_ready_since: datetime | None = None
    """When the node became NotReady during this drain. Its kubelet cannot terminate pods."""
    not_ready_until: datetime | None = None
    follows: str = ""

    @property
    def blocker_summary(self) -> str:
        """One line that changes only when a blocker does; empty while pods only terminate."""
        parts = [one.summary for one in self.eviction_blockers[:MAX_NAMED_BLOCKERS] if one.cause != "terminating"]
        if self.not_ready_since:
            parts.insert(0, f"the node has been NotReady since {self.not_ready_since.isoformat(timespec='seconds')}")
        return "; ".join(parts)

    @property
    def first_blocker(self) -> EvictionBlocker | None:
        """The first one that never clears on its own, else the first one; None while pods only terminate."""
        named = [one for one in self.eviction_blockers[:MAX_NAMED_BLOCKERS] if one.cause != "terminating"]
        return next((one for one in named if one.passes == "never"), next(iter(named), None))

    @property
    def blocker_code(self) -> str:
        """The code of the first blocker, from `tenure/model/blockers.py`."""
        if self.not_ready_since:
            return "NodeNotReady"
        return self.first_blocker.code if self.first_blocker else "PodsTerminating"

    @property
    def is_observed(self) -> bool:
        """Whether the watch sees when a blocker clears. It sees neither instances, webhooks nor permissions."""
        return self.not_ready_since is None and all(one.passes != "unknown" for one in self.eviction_blockers)

    @property
    def status_line(self) -> str:
        ending = f"pods are terminating: {', '.join(one.subject for one in self.eviction_blockers[:3])}"
        return (self.blocker_summary or ending)[:MAX_STATUS_LINE_LENGTH]

    def truncate(self) -> "DrainStatus":
        """Keep MAX_NAMED_BLOCKERS blockers and count the others."""
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
            messages.append(
                f"the node has been NotReady since {since}: the drain continues without its pods at {until}"
            )
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
    """When the pods terminate regardless of blockers; None if unknown."""
    why: str = ""


class DrainState(Message):
    defers_deletion: bool = False
    """The NodeClaim is deleted only when the pods are gone, so the drain can be cancelled until then."""
    status: DrainStatus | None = None
    idle_passes: int = 0
    """Passes since the last pod left that a timer caused."""


class CancelledDrain(Message):
    at: datetime
    retry_at: datetime
    why: str


class DeploymentRollout(Value):
    namespace: str
    name: str
    uid: str
    replicas: int
    surges: bool
    """A rollout creates the new pod before it deletes the old one."""
    restarted_at: str = ""
    """The annotation that `kubectl rollout restart` sets on the pod template."""
    min_ready_seconds: int = 0
    """The old pod stays until the new pod has been Ready for this time."""
