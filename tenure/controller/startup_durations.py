"""How long nodes took to launch, register and initialize, by NodePool and instance type, learnt from NodeClaims.

The conditions' transition times say it, so that a watch that just began knows what live NodeClaims show. What is
expected of a new node rides in what its workflow is told anyhow.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, Literal, get_args

from tenure.apis.labels import INSTANCE_TYPE
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty
from tenure.model.facts import ClaimFact
from tenure.model.nodeclaim_state import Deadlines
from tenure.model.provisioning import Expected, PhaseTimes
from tenure.policy.lifecycle.initialization import decide_expected, unknown

Step = Literal["launch", "registration", "initialization"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
REMEMBERED: Final = 50
"""Nodes by NodePool, instance type and phase."""
MOST_TYPES: Final = 20
"""That a workflow is told of: those of its NodePool seen last."""


class Startup:
    def __init__(self, caches: Caches, deadlines_of: Callable[[str], Deadlines]) -> None:
        """`deadlines_of` a NodePool: a node that took longer shows what went wrong, and not what is usual."""
        self._caches, self._deadlines_of = caches, deadlines_of
        self._took: dict[tuple[str, str], dict[Step, deque[float]]] = {}
        """By NodePool and instance type; the one that was added to last comes last."""
        self._learnt: dict[str, set[Step]] = {}
        """By UID of a NodeClaim."""
        self._expected: dict[str, Expected] = {}

    def look(self, dirty: Dirty) -> None:
        """At NodeClaims that changed, or are gone."""
        for uid in dirty.gone_claims:
            self._learnt.pop(uid, None)
        for name in dirty.claims:
            claim = self._caches.claims.get(name)
            if claim is not None and claim.pool:
                self._learn(claim)

    def expected(self, pool: str) -> Expected:
        """Of a node of this NodePool, by its instance type where enough is known, else as the pool's, else as all."""
        known = self._expected.get(pool)
        if known is None:
            known = self._expected[pool] = self._expect(pool)
        return known

    def forget_expected(self) -> None:
        """Deadlines changed, by which the unknown is reckoned."""
        self._expected.clear()

    def _learn(self, claim: ClaimFact) -> None:
        seen = self._learnt.setdefault(claim.uid, set())
        limits = self._deadlines_of(claim.pool)
        for step, began, ended in _steps(claim):
            if step in seen or began is None or ended is None:
                continue
            seen.add(step)
            took = (ended - began).total_seconds()
            if 0 <= took <= getattr(limits, step).total_seconds():
                self._add(claim, step, took)

    def _add(self, claim: ClaimFact, step: Step, took: float) -> None:
        key = (claim.pool, claim.labels.get(INSTANCE_TYPE, ""))
        found = self._took.pop(key, None) or {one: deque(maxlen=REMEMBERED) for one in STEPS}
        self._took[key] = found
        found[step].append(took)
        self._expected.clear()

    def _expect(self, pool: str) -> Expected:
        own = [kind for found, kind in self._took if found == pool and kind][-MOST_TYPES:]
        by_type = {
            kind: PhaseTimes(**{step: decide_expected(self._took[pool, kind][step]) for step in STEPS}) for kind in own
        }
        limits = self._deadlines_of(pool)
        otherwise = {
            step: decide_expected(self._all(step, pool))
            or decide_expected(self._all(step))
            or unknown(getattr(limits, step))
            for step in STEPS
        }
        return Expected(by_type=by_type, otherwise=PhaseTimes(**otherwise))

    def _all(self, step: Step, pool: str = "") -> Sequence[float]:
        return [took for (found, _), times in self._took.items() if pool in ("", found) for took in times[step]]


def _steps(claim: ClaimFact) -> Iterator[tuple[Step, datetime | None, datetime | None]]:
    yield "launch", claim.created, claim.launched_at
    yield "registration", claim.launched_at, claim.registered_at
    yield "initialization", claim.registered_at, claim.initialized_at
