"""How long nodes took to launch, register and initialize, by NodePool and instance type.

They are computed from the transition times of conditions, so that a new host knows them from live NodeClaims. A signal
carries the expected durations of a new node to its workflow."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, Literal, get_args

from tenure.apis.labels import INSTANCE_TYPE
from tenure.controller.cache.changes import ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.model.facts import NodeClaimFact
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.plan import ExpectedDurations, PhaseDurations
from tenure.policy.lifecycle.initialization import decide_expected, default_expected_duration

Step = Literal["launch", "registration", "initialization"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
MAX_SAMPLES: Final = 50
"""Per NodePool, instance type and phase."""
MAX_TYPES: Final = 20
"""Instance types that a workflow receives: the latest in its NodePool."""


class StartupDurations:
    def __init__(self, cache: ClusterCache, deadlines_of: Callable[[str], Deadlines]) -> None:
        """`deadlines_of`: by NodePool. A duration beyond the deadline is not typical, since the node failed."""
        self._cache, self._deadlines_of = cache, deadlines_of
        self._samples: dict[tuple[str, str], dict[Step, deque[float]]] = {}
        """By NodePool and instance type, the latest update last."""
        self._recorded: dict[str, set[Step]] = {}
        """By UID of a NodeClaim."""
        self._expected: dict[str, ExpectedDurations] = {}

    def update(self, changes: ChangeSet) -> None:
        for uid in changes.deleted_nodeclaims:
            self._recorded.pop(uid, None)
        for pool in changes.deleted_nodepools:
            self._samples = {key: found for key, found in self._samples.items() if key[0] != pool}
            self._expected.clear()
        for name in changes.nodeclaims:
            claim = self._cache.nodeclaims.get(name)
            if claim is not None and claim.pool:
                self._record(claim)

    def expected_durations(self, pool: str) -> ExpectedDurations:
        """For a new node of this NodePool: by instance type; else as in the pool, as in all pools, or by deadline."""
        known = self._expected.get(pool)
        if known is None:
            known = self._expected[pool] = self._compute_expected(pool)
        return known

    def forget_expected(self) -> None:
        """After a change of deadlines, from which unknown durations are derived."""
        self._expected.clear()

    def _record(self, claim: NodeClaimFact) -> None:
        recorded = self._recorded.setdefault(claim.uid, set())
        limits = self._deadlines_of(claim.pool)
        for step, began, ended in _iter_steps(claim):
            if step in recorded or began is None or ended is None:
                continue
            recorded.add(step)
            took = (ended - began).total_seconds()
            if 0 <= took <= getattr(limits, step).total_seconds():
                self._add(claim, step, took)

    def _add(self, claim: NodeClaimFact, step: Step, took: float) -> None:
        key = (claim.pool, claim.labels.get(INSTANCE_TYPE, ""))
        found = self._samples.pop(key, None) or {one: deque(maxlen=MAX_SAMPLES) for one in STEPS}
        self._samples[key] = found
        found[step].append(took)
        self._expected.clear()

    def _compute_expected(self, pool: str) -> ExpectedDurations:
        own = [kind for found, kind in self._samples if found == pool and kind][-MAX_TYPES:]
        by_type = {
            kind: PhaseDurations(**{step: decide_expected(self._samples[pool, kind][step]) for step in STEPS})
            for kind in own
        }
        limits = self._deadlines_of(pool)
        otherwise = {
            step: decide_expected(self._select_samples(step, pool))
            or decide_expected(self._select_samples(step))
            or default_expected_duration(getattr(limits, step))
            for step in STEPS
        }
        return ExpectedDurations(by_type=by_type, default=PhaseDurations(**otherwise))

    def _select_samples(self, step: Step, pool: str = "") -> Sequence[float]:
        return [took for (found, _), times in self._samples.items() if pool in ("", found) for took in times[step]]


def _iter_steps(claim: NodeClaimFact) -> Iterator[tuple[Step, datetime | None, datetime | None]]:
    yield "launch", claim.created, claim.launched_at
    yield "registration", claim.launched_at, claim.registered_at
    yield "initialization", claim.registered_at, claim.initialized_at
