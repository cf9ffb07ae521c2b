"""Requests of operators: pause annotations, queries of `tenure plan` and `tenure why`, LifecyclePolicies."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.base import Message, Value
from tenure.model.blockers import Verdict
from tenure.model.disruption.decision import Method, NodeVerdict
from tenure.model.signals import Pause


class PauseAnnotation(Message):
    """Values of the pause annotation, which distinguish an operator's change from the workflow's own."""

    current: str = ""
    """The annotation as last written by the workflow or changed by an operator."""
    observed: str = ""
    echoes: tuple[str, ...] = ()
    """Values that the workflow wrote and the watch has not reported yet; empty text for a removed annotation."""
    written: datetime | None = None
    number: int = 0
    """Number of the last observation of the cluster's annotation. Other objects have it in their own observations."""
    notified: Pause | None = None


class ObservedPause(Message):
    """Signal to the Cluster workflow: the annotation of the worker's namespace."""

    number: int = 0
    text: str = ""


class PauseAnnotationRequest(Message):
    kind: Literal["Cluster", "NodePool", "NodeClaim"]
    name: str = ""
    """Empty for the cluster, whose annotation is on the worker's own namespace."""
    uid: str = ""
    node_name: str = ""
    write: bool = True
    """False: the annotation already has the right value."""
    text: str = ""
    """Empty removes the annotation."""
    only: str = ""
    """Remove the annotation only if it has this value, since an operator may have changed it in the meantime."""
    event: str = ""
    message: str = ""
    warning: bool | None = None


class DisruptionPreviewRequest(Message):
    cluster: str
    name: str = ""
    """A NodeClaim, a Node, or a pod as `namespace/name` or name; empty: preview all commands."""
    pending_pods: bool = False
    """List only the pending pods that need attention."""
    clearing_pods: bool = False
    """With `pending_pods`: also those whose blocker clears by itself."""


class CommandPreview(Message):
    reason: Method
    nodes: tuple[str, ...]
    replacements: tuple[str, ...] = ()
    pods: int = 0
    price_before: float = 0.0
    """US dollars an hour."""
    price_after: float = 0.0
    why: str = ""


class PendingPodGroup(Message):
    """Pods with one owner, equal constraints and one code."""

    pod: str
    """The oldest, as `namespace/name`."""
    pods: int
    verdict: Verdict


class DisruptionStatus(Message):
    at: datetime | None = None
    blocked: str = ""
    commands: tuple[CommandPreview, ...] = ()
    more: int = 0
    nodes: int = 0
    eligible: int = 0
    ineligible: dict[str, int] = {}
    verdicts: tuple[NodeVerdict, ...] = ()
    pod: str = ""
    """If a pod was named: `namespace/name`, its node and the node that it would move to."""
    verdict: Verdict | None = None
    """On the named pod, if it is pending."""
    pending_pods: tuple[PendingPodGroup, ...] = ()
    """Those whose verdict does not clear by itself, or all that were requested, oldest first."""
    nodepools_not_ready: dict[str, dict[str, str]] = {}
    """Message by condition that is False, by NodePool; set with `pending_pods`."""
    messages: tuple[str, ...] = ()


class InvalidRules(Message):
    """Invalid LifecyclePolicy fields. They block the disruptions that they would have limited."""

    disruption: str = ""
    """The policy, the field, its value and the remedy; empty if all fields are valid."""
    rollout: str = ""
    hooks: str = ""
    interruption: str = ""
    """For AWS events: blocks disruptions for events that allow a delay."""

    def blocking_message(self, reason: str) -> str:
        """Why no node is disrupted for this reason; empty if nothing blocks it."""
        return self.disruption or self.hooks or (self.rollout if reason == "Drifted" else "")


NO_INVALID_RULES: Final = InvalidRules()


class PolicyFact(Value):
    name: str
    uid: str = ""
    generation: int = 0
    created: datetime
    names: tuple[str, ...] = ()
    match_labels: dict[str, str] = {}
    rules: LifecycleRules = LifecycleRules()
    problem: str = ""
    """Why the policy is invalid; also reported in its conditions."""
    unread: InvalidRules = InvalidRules()
    """Fields of these sections that do not match the CRD."""

    @property
    def specificity(self) -> int:
        """2 for a policy that selects by name, 1 by labels, 0 for one that selects all NodePools."""
        return 2 if self.names else 1 if self.match_labels else 0

    def selects(self, pool: str, labels: Mapping[str, str]) -> bool:
        """`labels` are the NodePool's own."""
        if self.names:
            return pool in self.names
        return all(labels.get(key) == value for key, value in self.match_labels.items())


class PolicyValidation(Value):
    rejected: bool = False
    reason: str = ""
    message: str = ""
    node_pools: tuple[str, ...] = ()
    """The NodePools to which it applies, sorted."""
