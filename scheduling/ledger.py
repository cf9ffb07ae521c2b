"""NodeClaims that earlier plans bought and the caches do not show yet, and the pods they were bought for.

Without it two passes in a row would buy for the same pods, or use the same room twice.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from model.facts import ClaimFact
from model.plans import PlannedClaim

# How long a claim that was created may stay invisible before the plan no longer counts on it.
BLIND: Final = timedelta(seconds=60)


class Ledger:
    def __init__(self) -> None:
        self._unseen: dict[str, ClaimFact] = {}
        self._promises: dict[str, str] = {}

    def commit(self, claims: Mapping[str, PlannedClaim], now: datetime) -> None:
        """Claims by their names, created or about to be."""
        for name, planned in claims.items():
            self._unseen[name] = _as_fact(name, planned, now)
            self._promises.update(dict.fromkeys(planned.pods, name))

    def seen(self, name: str, claim: ClaimFact | None) -> None:
        """The caches now know this claim, or that it is gone or going: then its pods are promised nothing."""
        self._unseen.pop(name, None)
        if claim is None or claim.deleting:
            self._promises = {pod: home for pod, home in self._promises.items() if home != name}

    def forget_pod(self, uid: str) -> None:
        self._promises.pop(uid, None)

    def unseen(self, now: datetime) -> Iterable[ClaimFact]:
        """Committed claims that are not too old to be believed in."""
        return [claim for claim in self._unseen.values() if now - claim.created < BLIND]

    @property
    def promises(self) -> Mapping[str, str]:
        """Pod UID to the name of the claim it was bought with."""
        return self._promises


def _as_fact(name: str, planned: PlannedClaim, now: datetime) -> ClaimFact:
    return ClaimFact(
        name=name,
        uid="",
        created=now,
        pool=planned.pool,
        node_class=planned.node_class,
        labels=planned.labels,
        annotations=planned.annotations,
        requirements=planned.requirements,
        taints=planned.taints,
        startup_taints=planned.startup_taints,
        requests=planned.requests,
    )
