"""Pods that are interchangeable in every respect, as classes with all their readings, in the order they are placed.

Made once per pass from `demand.py` and the pass' `rules.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from tenure.apis.resources import CPU, MEMORY
from tenure.model.facts import HostPort, PodFact
from tenure.scheduling.packing.instance_mix import Sizes
from tenure.scheduling.packing.pod_requirements import NO_VOLUMES, Shape, Volumes
from tenure.scheduling.packing.topology import UNLIMITED, Tally, new_cap
from tenure.scheduling.packing.topology_rules import Book, Reading


@dataclass(slots=True, eq=False)
class PodClass:
    """Oldest first. `pods` shrinks as they find places."""

    pods: list[PodFact]
    requests: dict[str, int]
    readings: tuple[Reading, ...]
    counted: tuple[Tally, ...]
    ports: tuple[HostPort, ...] = ()
    volumes: Volumes = NO_VOLUMES
    size: int = -1
    """Which of the buyer's sizes its pods are; -1 for none."""


def classes_of(pods: Iterable[tuple[Shape, PodFact]], book: Book, policy: str) -> list[PodClass]:
    """By priority, CPU, memory, age and UID (reference 2.4)."""
    alike: dict[tuple[Shape, tuple[Tally, ...], int], list[PodFact]] = {}
    for shape, pod in pods:
        alike.setdefault((shape, book.counted(pod), pod.priority), []).append(pod)
    found = [
        PodClass(
            pods=sorted(members, key=_age),
            requests=dict(shape.requests),
            readings=tuple(book.readings(shape, members[0], policy)),
            counted=counted,
            ports=shape.ports,
            volumes=shape.volumes,
        )
        for (shape, counted, _), members in alike.items()
    ]
    return sorted(found, key=_queue_order)


def least_nodes(classes: Sequence[PodClass]) -> int:
    """Rules about single nodes make so many of them necessary, whatever their size."""
    asked: dict[Tally, int] = {}
    for one in classes:
        for rule in one.readings[0].rules:
            if rule.tally.hostname and new_cap((rule,)) < len(one.pods):
                cap = max(1, new_cap((rule,)))
                asked[rule.tally] = asked.get(rule.tally, 0) + -(-len(one.pods) // cap)
    return max(asked.values(), default=0)


def grain(classes: Sequence[PodClass], resource: str) -> int:
    """How small the pods are that can fill the rest of a node: a fiftieth of what is asked for comes in amounts
    of at most this. What is left of a node beyond a multiple of it will stay unused."""
    asked = sorted((amount, len(one.pods) * amount) for one in classes if (amount := one.requests.get(resource, 0)))
    whole, so_far = sum(total for _, total in asked), 0
    for amount, total in asked:
        so_far += total
        if so_far * 50 >= whole:
            return amount
    return 0


def fullest(classes: Sequence[PodClass], resource: str) -> int:
    """The most that one node can be asked for, since rules limit how many pods of a class go together."""
    return sum(
        one.requests.get(resource, 0) * min(len(one.pods), new_cap(one.readings[0].rules) or len(one.pods))
        for one in classes
    )


def sizes_of(classes: Sequence[PodClass], resources: Sequence[str]) -> Sizes:
    """Gives each class its number."""
    known: dict[tuple[int, ...], int] = {}
    counts, caps = list[int](), list[int]()
    for one in classes:
        vector = tuple(one.requests.get(key, 0) for key in resources)
        one.size = known.setdefault(vector, len(known))
        if one.size == len(counts):
            counts.append(0)
            caps.append(0)
        counts[one.size] += len(one.pods)
        caps[one.size] += min(len(one.pods), new_cap(one.readings[0].rules) or len(one.pods))
    shape = (len(known), len(resources))
    vectors = np.array(list(known), dtype=np.int64).reshape(shape)
    return Sizes(vectors, np.array(counts, dtype=np.int64), np.array(caps, dtype=np.int64))


def _age(pod: PodFact) -> tuple[datetime, str]:
    return pod.created, pod.uid


def _queue_order(one: PodClass) -> tuple[int, bool, int, int, datetime, str]:
    """Those that need nodes of their own come before those that can fill what is left of them."""
    first = one.pods[0]
    anywhere = new_cap(one.readings[0].rules) == UNLIMITED
    return -first.priority, anywhere, -one.requests.get(CPU, 0), -one.requests.get(MEMORY, 0), *_age(first)
