"""When to tell the Provisioning workflow of pods that need a node: at once for new ones, ever more slowly for the same.

Pure apart from what it remembers; `host.py` asks it after every change and whenever it said it wants to be asked.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from model.facts import PodFact
from model.observations import DemandSeen

PAUSE: Final = timedelta(milliseconds=400)
"""Between signals while pods keep coming; below the idle time that closes a batch."""
RENEW_FIRST: Final = timedelta(seconds=10)
PROMPT_LOSSES: Final = 3
"""So often a pod that loses its place is demand again at once."""
RENEW_SLOWEST: Final = timedelta(seconds=60)
"""Demand that stays is said again after so long, at first and at last."""


class Calls:
    def __init__(self) -> None:
        self._first_seen: dict[str, datetime] = {}
        self._answered: set[str] = set()
        """Pods that wait for the place that a plan gave them."""
        self._losses: dict[str, int] = {}
        """How often each has lost its place."""
        self._held: dict[str, datetime] = {}
        self._told: set[str] = set()
        self._told_at: datetime | None = None
        self._interval = RENEW_FIRST
        self.again: datetime | None = None
        """When to ask again though nothing changed; None while there is no demand."""

    def decide(self, unanswered: Sequence[PodFact], now: datetime, answered: Collection[str] = ()) -> DemandSeen | None:
        """What to say now, without its number; None for nothing. `answered` wait for the place that they were given.

        Where pods still run on nodes that go, theirs is the batch: those that are made in the place of such as were
        evicted meanwhile do not hold it open. A pod that loses its place keeps its turn: it is demand since it first
        was, and no batch is waited for."""
        everyone = {pod.uid for pod in unanswered}
        self._lose(self._answered & everyone, now)
        lost = self._answered & everyone
        self._answered = set(answered)
        self._forget_others(everyone | self._answered, now)
        uids = {uid for uid in everyone if self._held.get(uid, now) <= now}
        lost &= uids
        self._told &= uids - lost
        if not uids:
            self.again, self._interval = self._released(everyone), RENEW_FIRST
            return None
        due = now if lost else self._due(bool(uids - self._told), now)
        if now < due:
            self.again = due
            return None
        self._interval = RENEW_FIRST if uids - self._told else min(RENEW_SLOWEST, self._interval * 2)
        self._told, self._told_at = uids, now
        self.again = now + self._interval
        running = {pod.uid for pod in unanswered if pod.node_name} & uids
        newest = max(self._first_seen[uid] for uid in running or uids)
        return DemandSeen(pods=len(uids), newest=newest, at_once=bool(lost))

    def renew(self, uids: Collection[str]) -> None:
        """Something changed for these pods, so that they are told of anew, as if they had just come."""
        self._told -= set(uids)

    def _lose(self, lost: Collection[str], now: datetime) -> None:
        """What goes round and round finds no place for now: it is demand again only after a while, ever longer."""
        for uid in lost:
            times = self._losses[uid] = self._losses.get(uid, 0) + 1
            if times > PROMPT_LOSSES:
                self._held[uid] = now + min(RENEW_SLOWEST, RENEW_FIRST * (1 << min(times - PROMPT_LOSSES - 1, 5)))

    def _forget_others(self, uids: Collection[str], now: datetime) -> None:
        self._first_seen = {uid: self._first_seen.get(uid, now) for uid in uids}
        self._losses = {uid: times for uid, times in self._losses.items() if uid in uids}
        self._held = {uid: until for uid, until in self._held.items() if uid in uids}

    def _released(self, uids: Collection[str]) -> datetime | None:
        return min((self._held[uid] for uid in uids), default=None)

    def _due(self, fresh: bool, now: datetime) -> datetime:
        if self._told_at is None:
            return now
        return self._told_at + (PAUSE if fresh else self._interval)
