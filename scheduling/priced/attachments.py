"""How many volumes CSI drivers can still attach on each home (reference 2.7).

`planning.py` makes it from CSINodes and the pods that run; `places.py` holds it for `packing.py`. A node that is yet to
be made has no limit that is known: its drivers tell it once they run there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from scheduling.facts import Facts
from scheduling.homes import Homes
from scheduling.priced.demand import NO_VOLUMES, Volumes
from scheduling.priced.topology import UNLIMITED
from scheduling.typetable import Amounts
from scheduling.volumes import Attachment, Needs, attachments


class Attachments:
    """Of homes by their number."""

    def __init__(self, homes: int, limits: Mapping[int, Mapping[str, int]], held: Mapping[int, Iterable[Attachment]]):
        """`limits` by driver, and what the pods of a home `held` there already."""
        self._homes = homes
        self._room: dict[str, Amounts] = {}
        self._held: dict[Attachment, set[int]] = {}
        for number, of in limits.items():
            for driver, limit in of.items():
                rooms = self._room.setdefault(driver, np.full(homes, UNLIMITED, dtype=np.int64))
                rooms[number] = limit
        for number, there in held.items():
            self._hold(number, there)

    def caps(self, volumes: Volumes, places: int) -> Amounts | None:
        """How many such pods each of so many places takes; None where no limit concerns them."""
        own = dict(volumes.own)
        drivers = {*own, *(driver for driver, _ in volumes.shared)} & self._room.keys()
        if not drivers:
            return None
        caps = np.full(places, UNLIMITED, dtype=np.int64)
        for driver in sorted(drivers):
            coming = self._coming([one for one in volumes.shared if one[0] == driver])
            room, each = self._room[driver] - coming, own.get(driver, 0)
            # What is over its limit already still takes pods that bring nothing new.
            fits = np.maximum(room, 0) // each if each else np.where((room >= 0) | (coming == 0), UNLIMITED, 0)
            caps[: self._homes] = np.minimum(caps[: self._homes], fits)
        return caps

    def take(self, place: int, volumes: Volumes, pods: int) -> None:
        """So many of them go there."""
        if place >= self._homes or volumes is NO_VOLUMES:
            return
        self._hold(place, volumes.shared)
        for driver, each in volumes.own:
            if driver in self._room:
                self._room[driver][place] -= each * pods

    def _hold(self, number: int, wanted: Iterable[Attachment]) -> None:
        for one in set(wanted):
            where = self._held.setdefault(one, set())
            if number not in where and one[0] in self._room:
                self._room[one[0]][number] -= 1
            where.add(number)

    def _coming(self, shared: Iterable[Attachment]) -> Amounts:
        """Per home how many of them are not there yet."""
        coming = np.zeros(self._homes, dtype=np.int64)
        for one in shared:
            coming += 1
            coming[list(self._held.get(one, ()))] -= 1
        return coming


def standing(facts: Facts, homes: Homes) -> tuple[dict[int, Mapping[str, int]], dict[int, set[Attachment]]]:
    """The limits of the homes that have any, and what is attached there for pods that run or are ending."""
    limits, held = dict[int, Mapping[str, int]](), dict[int, set[Attachment]]()
    for number, home in enumerate(homes.homes):
        known = facts.storage.csi_nodes.get(home.name)
        if known is not None and known.limits:
            limits[number] = known.limits
            held[number] = {one for pod in facts.bound_to(home.name) for one in attachments(pod, facts.storage)}
    return limits, held


def alike(found: Mapping[str, Needs], held: Iterable[set[Attachment]]) -> dict[str, Volumes]:
    """By UID what pods' volumes ask for, such that pods which ask for the same are interchangeable."""
    users = Counter(one for needs in found.values() for one in needs.attachments)
    shared = {one for one, times in users.items() if times > 1} | set[Attachment]().union(*held)
    return {
        uid: Volumes(
            needs.alternatives,
            tuple(sorted(Counter(driver for driver, _ in needs.attachments - shared).items())),
            needs.attachments & shared,
        )
        for uid, needs in found.items()
    }
