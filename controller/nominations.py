"""Which pending pods are answered, and by which node or NodeClaim: memory of the last plans.

While a pod is expected somewhere it is no demand, and the place is not empty. On a node that is up the expectation
lapses after a while, since then the kube-scheduler evidently thinks otherwise; on one that is still coming it lasts
until a while after the node is initialized.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

VALID: Final = timedelta(seconds=20)
"""max(2 x the longest batch window, 10 s), as Karpenter has it (reference 2.17)."""


@dataclass(frozen=True, slots=True)
class Nomination:
    target: str
    """The name of a Node or a NodeClaim."""
    at: datetime


class Nominations:
    """By pod UID and by target."""

    def __init__(self, valid: timedelta = VALID) -> None:
        self._valid = valid
        self._by_pod: dict[str, Nomination] = {}
        self._by_target: dict[str, set[str]] = {}
        self._ended: dict[str, datetime] = {}

    def renew(self, answered: Mapping[str, str], now: datetime) -> None:
        """What a plan decided: pod UID to target. Earlier answers for the same pods are replaced."""
        for pod, target in answered.items():
            self.drop(pod, now)
            self._by_pod[pod] = Nomination(target, now)
            self._by_target.setdefault(target, set()).add(pod)

    def drop(self, pod: str, now: datetime) -> str:
        """The pod is bound, or gone: the name of the place that no longer expects it; empty when none did."""
        nomination = self._by_pod.pop(pod, None)
        if nomination is None:
            return ""
        waiting = self._by_target[nomination.target]
        waiting.discard(pod)
        if not waiting:
            del self._by_target[nomination.target]
            self._ended[nomination.target] = now
        return nomination.target

    def forget(self, target: str) -> tuple[str, ...]:
        """The target is gone or going: its pods are demand again."""
        self._ended.pop(target, None)
        pods = tuple(self._by_target.pop(target, ()))
        for pod in pods:
            del self._by_pod[pod]
        return pods

    def of(self, pod: str) -> Nomination | None:
        return self._by_pod.get(pod)

    def lapse(self, target: str, initialized_at: datetime | None) -> datetime | None:
        """When the last expectation on this target ends, or ended; None when there is none, or no end in sight."""
        waiting = self._by_target.get(target)
        if not waiting:
            return self._ended.get(target)
        if initialized_at is None:
            return None
        return max(self.lapses(self._by_pod[pod], initialized_at) for pod in waiting)

    def expected(self, target: str) -> bool:
        """Whether any pod is written down for it, lapsed or not."""
        return target in self._by_target

    def lapses(self, nomination: Nomination, initialized_at: datetime) -> datetime:
        return max(nomination.at, initialized_at) + self._valid

    def targets(self) -> Iterable[str]:
        return tuple(self._by_target)
