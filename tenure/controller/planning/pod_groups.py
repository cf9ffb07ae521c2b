"""Groups of pods that need the same nodes: pods of one owner with equal scheduling constraints."""

import hashlib
import re
from collections import Counter
from typing import Final

from tenure.apis import labels
from tenure.model.facts import NodeClaimFact, PodFact

_CONSTRAINTS: Final = (
    "namespace",
    "requests",
    "node_selector",
    "required_terms",
    "preferred_terms",
    "tolerations",
    "affinity",
    "anti_affinity",
    "spreads",
    "host_ports",
    "priority",
)
"""Fields in which pods of one group are equal."""
_GENERATED_SUFFIX: Final = re.compile(r"(-\d+)*-[a-z0-9]{5}$")
"""Of a Job's pod: the time of its CronJob, its completion index, and five random characters."""


def pod_group(pod: PodFact) -> str:
    """A hash that pods with the same owner and the same constraints share."""
    own_volumes = f"{pod.name}-"
    volumes = (name.removeprefix(own_volumes) for name in pod.volumes)
    return hash_texts(_workload(pod), *_constraint_texts(pod), *volumes)


def hash_constraints(pod: PodFact) -> str:
    """A hash of the scheduling constraints of the pod."""
    return hash_texts(*_constraint_texts(pod))


def hash_texts(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]


def launched_for(claim: NodeClaimFact) -> frozenset[str]:
    """The groups of pods that a plan launched this NodeClaim for."""
    return frozenset(filter(None, claim.annotations.get(labels.POD_GROUPS, "").split(",")))


def _constraint_texts(pod: PodFact) -> list[str]:
    return [_to_text(getattr(pod, name)) for name in _CONSTRAINTS]


def _to_text(value: object) -> str:
    """Equal for equal values in any process."""
    return repr(sorted(value.items()) if isinstance(value, dict) else value)


def _workload(pod: PodFact) -> str:
    """Each run of a CronJob has an owner of its own, so the name without its suffix counts."""
    if pod.owner_kind == "Job":
        return _GENERATED_SUFFIX.sub("", pod.name)
    return pod.owner_uid or pod.name


class PodGroups:
    """The groups of one plan's pods. Pods of one owner with equal constraints are hashed once."""

    def __init__(self) -> None:
        self._last_by_owner: dict[str, tuple[PodFact, str]] = {}

    def group_of(self, pod: PodFact) -> str:
        if not pod.owner_uid or pod.owner_kind == "Job" or pod.volumes:
            return pod_group(pod)
        last, group = self._last_by_owner.get(pod.owner_uid, (None, ""))
        if last is None or any(getattr(last, name) != getattr(pod, name) for name in _CONSTRAINTS):
            group = pod_group(pod)
            self._last_by_owner[pod.owner_uid] = pod, group
        return group

    def forget_owner(self, uid: str) -> None:
        self._last_by_owner.pop(uid, None)


class PendingGroups:
    """The groups of the pending pods."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        """Group and UID of the owner, by UID of the pod."""
        self._counts = Counter[str]()
        """Pods by group. No count is zero."""
        self._hashed = PodGroups()

    def __contains__(self, group: str) -> bool:
        return group in self._counts

    def update(self, uid: str, pod: PodFact | None) -> None:
        """None: the pod is not pending."""
        if before := self._known.pop(uid, None):
            group, owner = before
            self._counts[group] -= 1
            if not self._counts[group]:
                del self._counts[group]
                self._hashed.forget_owner(owner)
        if pod is not None:
            group = self._hashed.group_of(pod)
            self._known[uid] = group, pod.owner_uid
            self._counts[group] += 1
