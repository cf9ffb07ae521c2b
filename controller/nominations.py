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
        self._lingering: dict[str, datetime] = {}

    def renew(self, answered: Mapping[str, str], now: datetime) -> None:
        """What a plan decided: pod UID to target. Earlier answers for the same pods are replaced."""
        for pod, target in answered.items():
            self.bound(pod, now)
            self._by_pod[pod] = Nomination(target, now)
            self._by_target.setdefault(target, set()).add(pod)

    def bound(self, pod: str, now: datetime) -> str:
        """The pod has a node: the name of the place that no longer expects it; empty when none did."""
        nomination = self._take(pod)
        if nomination is None:
            return ""
        if nomination.target not in self._by_target:
            self._ended[nomination.target] = now
        return nomination.target

    def gone(self, pod: str) -> None:
        """The pod is no more. Its place is still expected to fill: a successor is likely on its way."""
        nomination = self._take(pod)
        if nomination is not None:
            last = self._lingering.get(nomination.target, nomination.at)
            self._lingering[nomination.target] = max(last, nomination.at)

    def forget(self, target: str) -> tuple[str, ...]:
        """The target is gone or going: its pods are demand again."""
        self._ended.pop(target, None)
        self._lingering.pop(target, None)
        pods = tuple(self._by_target.pop(target, ()))
        for pod in pods:
            del self._by_pod[pod]
        return pods

    def waiting(self, target: str) -> tuple[str, ...]:
        """The UIDs of the pods that are expected there."""
        return tuple(self._by_target.get(target, ()))

    def of(self, pod: str) -> Nomination | None:
        return self._by_pod.get(pod)

    def lapse(self, target: str, initialized_at: datetime | None) -> datetime | None:
        """When the last expectation on this target ends, or ended; None when there is none, or no end in sight."""
        moments = [self._by_pod[pod].at for pod in self._by_target.get(target, ())]
        if target in self._lingering:
            moments.append(self._lingering[target])
        if not moments:
            return self._ended.get(target)
        if initialized_at is None:
            return None
        return max(*moments, initialized_at) + self._valid

    def expected(self, target: str) -> bool:
        """Whether any pod is written down for it, lapsed or not."""
        return target in self._by_target or target in self._lingering

    def lapses(self, nomination: Nomination, initialized_at: datetime) -> datetime:
        return max(nomination.at, initialized_at) + self._valid

    def _take(self, pod: str) -> Nomination | None:
        nomination = self._by_pod.pop(pod, None)
        if nomination is not None:
            waiting = self._by_target[nomination.target]
            waiting.discard(pod)
            if not waiting:
                del self._by_target[nomination.target]
        return nomination

    def targets(self) -> Iterable[str]:
        return tuple(self._by_target)
