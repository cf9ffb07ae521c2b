"""Rollouts of drift, and the annotation `tenure.sh/image-pin` by which an EC2NodeClass keeps an image.

The user's spec does not change. A pin replaces only the images that it names. It ends when the selectors change, when
it expires, or when a user removes the annotation.
"""

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

from pydantic import ValidationError

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import IMAGE_PIN
from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.model.base import Message, Value


class Image(Message):
    id: str
    requirements: str = ""
    """Requirements of an instance type to run it, as text: one image of a class replaces another of the same."""


class RolloutTarget(Message):
    """The template of new nodes: nodes that differ have drifted (`tenure/policy/disruption/drift.py`).

    Drift of single nodes (subnet, reservation or instance type) is excluded: it starts no rollout.
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
        """Ten characters."""
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
    at: datetime | None = None


class ObservedRollout(Message):
    rules: RolloutRules | None = None
    """None: no LifecyclePolicy says anything, and nothing here matters."""
    target: RolloutTarget | None = None
    """None: unknown, since the EC2NodeClass is not resolved in its current form."""
    drifted: tuple[str, ...] = ()
    """UIDs of launched NodeClaims that differ from the target, including terminating ones."""
    departing: tuple[str, ...] = ()
    updated_nodes: int = 0
    ready: int = 0
    pods: int = 0
    pods_ready: int = 0
    failed_starts: int = 0
    """NodeClaims that did not come to be nodes since `RolloutState.counted_from`."""
    is_requested: bool = False
    """A drifted node waits for its permit, and nothing else would keep it."""
    stored_state: str = ""
    """A state that the NodePool carries, for a workflow that has none."""


class Approval(Message):
    by: str
    at: datetime
    reason: str = ""


class RolloutPlan(Message):
    id: str
    wave: int
    size: int
    """Drifted nodes when it was proposed, those that went before among them."""
    until: datetime
    """Until then it can be approved; once it is, until then the approval is good."""
    lasts: timedelta
    approvers: int = 0
    approvals: tuple[Approval, ...] = ()

    @property
    def is_approved(self) -> bool:
        return len({one.by for one in self.approvals}) >= self.approvers


class RolloutHalt(Message):
    why: str
    since: datetime
    plan: str
    by: str = ""
    """The operator who requested it; empty: a health failure."""
    rolling_back: bool = False


class RolloutState(Message):
    target: RolloutTarget | None = None
    good: RolloutTarget | None = None
    """The last that the whole pool ran well with."""
    finished: bool = False
    """The target went through all waves, or is the good one: nodes that drift go by budgets alone."""
    began: datetime | None = None
    counted_from: datetime | None = None
    """Earlier failures no longer count: an operator has resumed the rollout."""
    wave: int = 0
    wave_began: datetime | None = None
    done: int = 0
    discounted: int = 0
    moving: tuple[str, ...] = ()
    """UIDs of NodeClaims that have a permit and are still there."""
    granted_at: datetime | None = None
    soaking_since: datetime | None = None
    failing_since: datetime | None = None
    halted: RolloutHalt | None = None
    plan: RolloutPlan | None = None
    plans: int = 0
    gate_results: tuple[GateResult, ...] = ()


class RollBack(Value):
    """Images of an EC2NodeClass that are to be replaced, and by which."""

    node_class: str
    images: dict[str, str]
    """Those that failed, and for each the last good one."""
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
    """How many more drifted nodes may be disrupted now, in addition to budgets; None: unlimited."""
    why: str = ""
    next_check_at: datetime | None = None
    gates_to_query: tuple[HealthGate, ...] = ()
    """Prometheus queries to run before a decision."""
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
    """The state, for a workflow that has lost it; empty when there is none."""


class PinRequest(Message):
    node_class: str
    images: dict[str, str]
    by: str
    why: str
    lasts: timedelta


class ApproveRollout(Message):
    """Update or signal of an operator: continue with this plan."""

    plan: str
    by: str
    reason: str = ""


class RejectRollout(Message):
    """Update or signal of an operator: do not carry out this plan."""

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
    """Those that failed, and for each the image that is used instead."""
    terms: str
    """Digest of the selectors that it was made for."""
    by: str
    reason: str
    since: datetime
    until: datetime


def active_image_pin(node_class: EC2NodeClass, now: datetime) -> ImagePin | None:
    """None without one, or with one that is void or cannot be read."""
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
    """Keep earlier pins that still apply: a substituted image may have failed in its turn."""
    before = {bad: images.get(good, good) for bad, good in (pin.images if pin else {}).items()}
    return ImagePin.model_validate({"images": {**before, **images}, **fields})
