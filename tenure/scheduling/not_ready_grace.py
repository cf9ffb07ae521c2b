"""How long a node that is away is expected back: NotReady, under a taint that passes, or without a requested device.

While it is expected its room counts and its pods wait for it; after that they are demand. The grace is used up by all
the time that a node was away lately, so that one which comes back for a moment, again and again, is not expected for
ever. A stopped instance that a LifecyclePolicy waits for has a time of its own. Used by planning
(`tenure/scheduling/existing_nodes.py`) and by the watch (`tenure/controller/signals/pending_pods.py`,
`tenure/controller/signals/notifier.py`).
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from tenure.apis.labels import AWAY, EXPECTED_BACK, NOT_READY_TAINT_KEY, UNREACHABLE_TAINT_KEY
from tenure.apis.resources import passes
from tenure.model.base import read_moment
from tenure.model.facts import ClaimFact, NodeFact, Taint
from tenure.model.node_health import Absence, lasting, read

WINDOW: Final = 6
"""Time away counts for so many graces: for half an hour where the grace is five minutes."""

_EVER: Final = datetime(1970, 1, 1, tzinfo=UTC)

_OF_READY: Final = {NOT_READY_TAINT_KEY, UNREACHABLE_TAINT_KEY}

Standing = Literal["here", "expected", "lost"]


class Grace:
    """What one node has used of its grace. `claim` is its NodeClaim, if it has one that is initialized."""

    def __init__(self, node: NodeFact, grace: timedelta, claim: ClaimFact | None = None) -> None:
        self._node, self.length = node, grace
        self._missing = _missing(node, claim) if claim else []
        self._declared = set[str]()
        self._record: tuple[Absence, ...] = ()
        self._since: datetime | None = None
        self._back: datetime | None = None
        # Almost every node is well, and thousands of them are asked about in every plan.
        if node.ready and not node.taints and not self._missing:
            return
        if claim:
            self._declared = {one.name for one in claim.startup_taints}
            self._record = read(claim.annotations.get(AWAY, ""))
            self._back = read_moment(claim.annotations.get(EXPECTED_BACK, ""))
        self._since = self._beginning(claim.initialized_at if claim else None)

    @property
    def away_since(self) -> datetime | None:
        """When the stretch began that lasts now; None for a node that is here."""
        return self._since

    @property
    def why(self) -> str:
        """What keeps pods off it, in words."""
        others = [taint.name for taint in self._passing() if taint.key not in _OF_READY]
        others += [f"{resource} is not allocatable" for resource in self._missing]
        return ", ".join(["NotReady"] * (not self._node.ready or not others) + others)

    def standing(self, now: datetime) -> Standing:
        if self._since is None:
            return "here"
        is_stopped = self._back is not None and now < self._back
        return "expected" if is_stopped or self.used(now) < self.length else "lost"

    def used(self, now: datetime) -> timedelta:
        """How long it was away lately, this stretch included."""
        if self._since is None:
            return timedelta()
        lately = now - WINDOW * self.length
        return sum((_overlap(one, lately, self._since) for one in self._record), max(now - self._since, timedelta()))

    def stretches(self, now: datetime) -> int:
        """In how many times that was."""
        lately = now - WINDOW * self.length
        before = [one for one in self._record if self._since and _overlap(one, lately, self._since)]
        return len(before) + (self._since is not None)

    def ends(self, now: datetime) -> datetime:
        """Not before this is an expected node lost; it may be later, as what was long ago ceases to count."""
        ends = now + max(self.length - self.used(now), timedelta())
        return max(ends, self._back) if self._back else ends

    def _beginning(self, initialized: datetime | None) -> datetime | None:
        """The earliest of what keeps pods off it; a stretch on record that lasts began no later. Before initialization
        it is not the grace that counts, but the phase's deadline."""
        node = self._node
        ever = node.ready_changed or node.created or _EVER
        begun = [ever] if not node.ready else []
        begun += [node.tainted.get(taint.name, ever) for taint in self._passing()]
        known = lasting(self._record)
        begun += [node.missing.get(resource, known or ever) for resource in self._missing]
        if not begun:
            return None
        return max(min([*begun, known] if known else begun), initialized or _EVER)

    def _passing(self) -> Iterable[Taint]:
        return (taint for taint in self._node.taints if passes(taint.key) or taint.name in self._declared)


def _missing(node: NodeFact, claim: ClaimFact) -> list[str]:
    """What its NodeClaim asks for and it does not give: devices go for a while when the kubelet restarts."""
    asked = claim.requests.items()
    return sorted(resource for resource, amount in asked if amount > 0 and not node.allocatable.get(resource))


def _overlap(one: Absence, lately: datetime, until: datetime) -> timedelta:
    """How much of a stretch that is over lies in this time."""
    end = min(one.until, until) if one.until else until
    return max(end - max(one.since, lately), timedelta()) if one.until else timedelta()
