"""What live Nodes show of their machines: learnt here, kept by the Provisioning workflow, heeded by plans and launches.

The key is the image that the instance runs, as its NodeClaim says, and not one that is looked for anew: there is no
comparison that could fail unnoticed. `planning.py` looks before each plan, `session.py` tells the workflow.

Tells the Provisioning workflow what live Nodes have shown, so that it outlives them and this process.

`session.py` calls it after every change; `learning.py` knows what there is to tell.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from tenure.apis.ec2nodeclass import ResolvedAmi
from tenure.apis.labels import INSTANCE_TYPE, NODECLASS_HASH, REGISTERED
from tenure.apis.resources import MEMORY
from tenure.aws.amifamily.images import ImageMap
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.signals.digests import short
from tenure.controller.signals.signaller import Signal, Signaller, Start
from tenure.model.discovered_capacity import MOST_ENTRIES, Learnt, LearntSeen, under
from tenure.model.facts import ClaimFact, NodeFact
from tenure.scheduling.snapshot import Change
from workflows import ids

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Lesson:
    image_id: str
    instance_type: str
    memory: int
    """Bytes."""


class Learning:
    """Over the caches. What was learnt stays when the Node goes."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._images: dict[str, tuple[tuple[ResolvedAmi, ...], ImageMap]] = {}
        self._doubted: set[str] = set()
        self._kept = Learnt()
        self._digest: tuple[Learnt, tuple[str, ...], str] | None = None
        self.learnt = Learnt()
        """All that is known: what this host saw, and what the workflow kept."""

    def look(self, claims: Collection[str]) -> Learnt:
        """Learn from the Nodes of these NodeClaims: what is new, or smaller than was known."""
        self._look_at_new_nodes(claims)
        images: dict[str, dict[str, int]] = {}
        for one in self._lessons(claims):
            types = images.setdefault(one.image_id, {})
            types[one.instance_type] = min(one.memory, types.get(one.instance_type, one.memory))
        return self._take(images)

    def look_at(self, changes: Iterable[Change]) -> Learnt:
        """Learn from what changed in the caches."""
        claims = {one.key for one in changes if one.kind == "claim"}
        claims |= {self._caches.claim_of(one.key) for one in changes if one.kind == "node"}
        return self.look(sorted(claims - {""}))

    def _look_at_new_nodes(self, claims: Collection[str]) -> None:
        for claim in filter(None, map(self._caches.claims.get, claims)):
            nodes = self._caches.nodes_of(claim) if claim.initialized_at is None else ()
            if len(nodes) == 1:
                self.miss(claim, nodes[0])

    def miss(self, claim: ClaimFact, node: NodeFact) -> None:
        """A Node that just came leaves its pods less memory than its NodeClaim promised: so do others of its kind."""
        lesson = lesson_of(claim, node)
        spec_hash = claim.annotations.get(NODECLASS_HASH, "")
        overhead = claim.capacity.get(MEMORY, 0) - claim.allocatable.get(MEMORY, 0)
        if lesson is None or not spec_hash or overhead <= 0 or not self._is_sound(claim, node):
            return
        memory = node.allocatable.get(MEMORY, 0) + overhead
        if node.allocatable.get(MEMORY) and memory < lesson.memory:
            self._take({under(lesson.image_id, spec_hash): {lesson.instance_type: memory}})

    def specs(self) -> Mapping[str, str]:
        """The hash of each EC2NodeClass's spec."""
        known = self._caches.node_classes.values()
        return {one.name: one.metadata.annotations.get(NODECLASS_HASH, "") for one in known}

    def _take(self, images: dict[str, dict[str, int]]) -> Learnt:
        news = Learnt(images=images).beyond(self.learnt)
        if news.images:
            self.learnt = self.learnt.merged(news)
            log.info("memory learnt", images=news.images)
        return news

    def heed(self, kept: Learnt) -> None:
        """What the workflow keeps, as it said last. What it let go goes here too, unless somebody uses or runs it."""
        self._kept = kept
        live = {*self._in_use(), *(one.image_id for one in self._caches.claims.values())}
        self.learnt = self.learnt.only(live | kept.images.keys()).merged(kept)

    def seen(self) -> LearntSeen:
        """What the workflow may not know yet, and which images are in use."""
        return LearntSeen(learnt=self.learnt.beyond(self._kept), images=self._in_use())

    @property
    def full(self) -> bool:
        """Whether the workflow keeps as much as it may."""
        return self._kept.count >= MOST_ENTRIES

    def digest(self) -> str:
        """Of all that the workflow should know."""
        held, in_use = self._digest, self._in_use()
        if held is None or held[0] is not self.learnt or held[1] != in_use:
            said = sorted((image, sorted(types.items())) for image, types in self.learnt.images.items())
            held = self._digest = (self.learnt, in_use, short(f"{said} {in_use}"))
        return held[2]

    def _in_use(self) -> tuple[str, ...]:
        return tuple(sorted({ami.id for one in self._caches.node_classes.values() for ami in one.status.amis}))

    def _lessons(self, claims: Iterable[str]) -> Iterator[Lesson]:
        for claim in filter(None, map(self._caches.claims.get, claims)):
            nodes = self._caches.nodes_of(claim)
            lesson = lesson_of(claim, nodes[0]) if len(nodes) == 1 else None
            if lesson is not None and self._is_new(lesson) and self._is_sound(claim, nodes[0]):
                yield lesson

    def _is_new(self, lesson: Lesson) -> bool:
        known = self.learnt.memory(lesson.image_id, lesson.instance_type)
        return known is None or lesson.memory < known

    def _is_sound(self, claim: ClaimFact, node: NodeFact) -> bool:
        """False for a Node whose labels call for another of its class's images than the one that it runs."""
        known = self._caches.node_classes.get(claim.node_class)
        amis = known.status.amis if known else ()
        if all(ami.id != claim.image_id for ami in amis):
            return True
        marks = {key: (value,) for key, value in _labels(claim, node).items()}
        wanted = self._map(claim.node_class, amis).image_for(marks)
        if wanted != claim.image_id and claim.uid not in self._doubted:
            self._doubted.add(claim.uid)
            log.warning("not learnt from: its labels are for another image", node=node.name, wanted=wanted)
        return wanted == claim.image_id

    def _map(self, node_class: str, amis: tuple[ResolvedAmi, ...]) -> ImageMap:
        held = self._images.get(node_class)
        if held is None or held[0] != amis:
            held = self._images[node_class] = (amis, ImageMap(amis))
        return held[1]


def lesson_of(claim: ClaimFact, node: NodeFact) -> Lesson | None:
    """What a Node shows of its kind of machine, from its first moment on: from then plans count on its real room."""
    instance_type, memory = _labels(claim, node).get(INSTANCE_TYPE, ""), node.capacity.get(MEMORY, 0)
    same = instance_type and instance_type == claim.labels.get(INSTANCE_TYPE)
    if not (same and claim.image_id and memory > 0):
        return None
    return Lesson(claim.image_id, instance_type, memory)


def _labels(claim: ClaimFact, node: NodeFact) -> Mapping[str, str]:
    """Until registration the NodeClaim says what the Node's labels will be."""
    registered = node.labels.get(REGISTERED) == "true"
    return node.labels if registered else {**node.labels, **claim.labels}


PAUSE: Final = timedelta(seconds=2)
"""Between two signals: many nodes that come up together teach in one."""
TOPIC: Final = "learnt"


class Teaching:
    def __init__(self, cluster: str, learning: Learning, signaller: Signaller) -> None:
        self._workflow_id = ids.provisioning(cluster)
        self._learning, self._signaller = learning, signaller
        self._told_at: datetime | None = None
        self.again: datetime | None = None
        """When to be called though nothing changed; None while there is nothing to tell."""

    def tell(self, start: Start, now: datetime) -> None:
        """Offer what the workflow may not know. Nothing at all before anything was learnt."""
        self.again = None
        digest = self._learning.digest()
        if not self._learning.learnt.images or digest == self._signaller.told(self._key):
            return
        if self._told_at is not None and now < self._told_at + PAUSE:
            self.again = self._told_at + PAUSE
            return
        signal = Signal(self._workflow_id, TOPIC, self._learning.seen(), digest, start, topic=TOPIC)
        if self._signaller.offer(signal):
            self._told_at = now

    def check(self) -> bool:
        """After a plan, which says what the workflow knows: True when it has to be told again, as after a loss.

        One that is full is not told again and again."""
        lacks = bool(self._learning.seen().learnt.images) and not self._learning.full
        if lacks:
            self._signaller.withdraw(self._key)
        return lacks

    @property
    def _key(self) -> str:
        return f"{self._workflow_id}#{TOPIC}"
