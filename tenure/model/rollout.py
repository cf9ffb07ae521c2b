"""Rollouts of drift, and the annotation `tenure.sh/image-pin`, which pins images of an EC2NodeClass.

A pin does not change the user's spec. It replaces only the images that it names. It ends when the selectors change,
when it expires, or when a user removes the annotation.
"""

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

from pydantic import AwareDatetime, ValidationError

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import IMAGE_PIN
from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.model.base import Message, Value


class Image(Message):
    id: str
    requirements: str = ""
    """Requirements on instance types, as text. An image replaces an earlier one with the same requirements."""


class RolloutTarget(Message):
    """The template of new nodes. Nodes that differ have drifted (`tenure/policy/disruption/drift.py`).

    Drift of single nodes (subnet, reservation or instance type) is not included; it does not start a rollout.
    """

    pool: str = ""
    requirements: str = ""
    """Digest of the NodePool's requirements."""
    node_class: str = ""
    class_hash: str = ""
    images: tuple[Image, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """A digest of ten characters."""
        return short_digest(self.model_dump(mode="json"))

    def changed_from(self, other: "RolloutTarget") -> tuple[str, ...]:
        return tuple(self._list_changes(other))

    def _list_changes(self, other: "RolloutTarget") -> Iterator[str]:
        if self.pool != other.pool:
            yield "the NodePool's template"
        if self.requirements != other.requirements:
            yield "the NodePool's requirements"
        if (self.node_class, self.class_hash) != (other.node_class, other.class_hash):
            yield f"EC2NodeClass {self.node_class}"
        if self.groups != other.groups:
            yield "the security groups"
        if self.images != other.images:
            yield "the image"


class HealthGate(Message):
    name: str
    query: str
    below: float | None = None
    above: float | None = None
    timeout: timedelta = timedelta(seconds=10)

    @property
    def id(self) -> str:
        return short_digest(self.model_dump(mode="json"))


class GateResult(Message):
    gate: str = ""
    outcome: Literal["passed", "failed", "unknown"]
    value: float | None = None
    why: str = ""
    at: AwareDatetime | None = None


class ObservedRollout(Message):
    rules: RolloutRules | None = None
    """None: no LifecyclePolicy has rollout rules, and the other fields are not used."""
    target: RolloutTarget | None = None
    """None: unknown, since the current generation of the EC2NodeClass is not resolved."""
    drifted: tuple[str, ...] = ()
    """UIDs of launched NodeClaims that differ from the target, including terminating ones."""
    departing: tuple[str, ...] = ()
    updated_nodes: int = 0
    ready: int = 0
    pods: int = 0
    pods_ready: int = 0
    failed_starts: int = 0
    """Number of NodeClaims that failed to start since `RolloutState.counted_from`."""
    is_requested: bool = False
    """A drifted node waits for its permit, and nothing else blocks it."""
    stored_state: str = ""
    """The state in the NodePool's annotation, for a workflow without state."""


class Approval(Message):
    by: str
    at: AwareDatetime
    reason: str = ""


class RolloutPlan(Message):
    id: str
    wave: int
    size: int
    """Number of drifted nodes when the plan was proposed, including nodes that were already replaced."""
    until: AwareDatetime
    """The plan, or its approval, expires then."""
    lasts: timedelta
    approvers: int = 0
    approvals: tuple[Approval, ...] = ()

    @property
    def is_approved(self) -> bool:
        return len({one.by for one in self.approvals}) >= self.approvers


class RolloutHalt(Message):
    why: str
    since: AwareDatetime
    plan: str
    by: str = ""
    """The operator who requested it; empty after a failed health check."""
    rolling_back: bool = False


class RolloutState(Message):
    target: RolloutTarget | None = None
    good: RolloutTarget | None = None
    """The last target with which the whole NodePool was healthy."""
    finished: bool = False
    """The target has passed all waves or is `good`, so only budgets limit the replacement of drifted nodes."""
    began: AwareDatetime | None = None
    counted_from: AwareDatetime | None = None
    """When an operator resumed the rollout. Earlier failures no longer count."""
    wave: int = 0
    wave_began: AwareDatetime | None = None
    done: int = 0
    discounted: int = 0
    moving: tuple[str, ...] = ()
    """UIDs of existing NodeClaims with a permit."""
    granted_at: AwareDatetime | None = None
    soaking_since: AwareDatetime | None = None
    failing_since: AwareDatetime | None = None
    halted: RolloutHalt | None = None
    plan: RolloutPlan | None = None
    plans: int = 0
    gate_results: tuple[GateResult, ...] = ()


class RollBack(Value):
    """Images of an EC2NodeClass to replace, and their replacements."""

    node_class: str
    images: dict[str, str]
    """By failed image, the last good image."""
    why: str


RolloutEventReason = Literal[
    "RolloutBegan",
    "RolloutWaits",
    "RolloutWaveSoaks",
    "RolloutWaveDone",
    "RolloutFinished",
    "RolloutHalted",
    "RolloutRollsBack",
    "RolloutSuperseded",
    "RolloutApproved",
    "RolloutRejected",
    "RolloutRefused",
]


class RolloutEvent(Message):
    reason: RolloutEventReason
    message: str


class RolloutDecision(Value):
    state: RolloutState
    headroom: int | None = None
    """How many more drifted nodes the rollout allows to disrupt now. Budgets apply too; None: no limit."""
    why: str = ""
    next_check_at: datetime | None = None
    gates_to_query: tuple[HealthGate, ...] = ()
    """Gates whose Prometheus queries must run before the next decision."""
    roll_back: RollBack | None = None
    overdue: bool = False
    events: tuple[RolloutEvent, ...] = ()


class RolloutRequest(Message):
    name: str
    pods: bool = False


class RolloutNotification(Message):
    name: str
    events: tuple[RolloutEvent, ...] = ()
    stored_state: str = ""
    """The state to store in the NodePool's annotation; empty if there is none."""


class PinRequest(Message):
    node_class: str
    images: dict[str, str]
    by: str
    why: str
    lasts: timedelta


class ApproveRollout(Message):
    """Update or signal from an operator: carry out this plan."""

    plan: str
    by: str
    reason: str = ""


class RejectRollout(Message):
    """Update or signal from an operator: do not carry out this plan."""

    plan: str
    by: str
    reason: str = ""
    roll_back: bool = False


def short_digest(value: object) -> str:
    """A ten-character digest of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


class ImagePin(Message):
    images: dict[str, str]
    """By failed image, the image that replaces it."""
    terms: str
    """Digest of the selectors for which the pin was created."""
    by: str
    reason: str
    since: AwareDatetime
    until: AwareDatetime


def active_image_pin(node_class: EC2NodeClass, now: datetime) -> ImagePin | None:
    """None without a pin, or if the pin is invalid, expired or of other selectors."""
    written = node_class.metadata.annotations.get(IMAGE_PIN, "")
    try:
        pin = ImagePin.model_validate_json(written) if written else None
    except ValidationError:
        return None
    if pin is None or now >= pin.until or pin.terms != ami_selector_digest(node_class):
        return None
    return pin


def ami_selector_digest(node_class: EC2NodeClass) -> str:
    """Digest of `spec.amiSelectorTerms`."""
    return short_digest([term.to_object() for term in node_class.spec.ami_selector_terms])


def add_pinned_images(pin: ImagePin | None, images: dict[str, str], **fields: object) -> ImagePin:
    """Add images to a pin. An earlier entry whose replacement has now failed gets the new replacement."""
    before = {bad: images.get(good, good) for bad, good in (pin.images if pin else {}).items()}
    return ImagePin.model_validate({"images": {**before, **images}, **fields})
