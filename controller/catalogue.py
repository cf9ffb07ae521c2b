"""Instance types for the planner: asked for when a NodeClass changes or they grow old, sent only when they differ."""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from activities.ports import Offerings
from controller.caches import Caches
from controller.digests import short
from model import labels
from model.catalogue import Catalogue
from model.kinds import EC2NodeClass

FRESH_FOR: Final = timedelta(minutes=5)


class CatalogueFeed:
    def __init__(self, caches: Caches, offerings: Offerings, now: Callable[[], datetime]) -> None:
        self._caches, self._offerings, self._now = caches, offerings, now
        self._asked_for: dict[str, str] = {}
        self._asked_at: datetime | None = None
        self._catalogue = Catalogue()
        self._digest = _digest(self._catalogue)
        self._sent = ""

    def forget(self) -> None:
        """The planner is a new one and knows nothing."""
        self._sent = ""

    def unknown(self) -> list[str]:
        """NodeClasses of usable pools whose instance types nobody has asked for yet."""
        used = {view.fact.node_class for view in self._caches.pools.values() if view.fact.ready}
        return sorted(name for name in used if name in self._caches.node_classes and name not in self._asked_for)

    async def news(self) -> Catalogue | None:
        """The catalogue, if the planner does not have it. Raises what the port raises when there is none at all."""
        wanted = {name: _shape(one) for name, one in self._caches.node_classes.items()}
        if wanted != self._asked_for or self._old():
            await self._ask(wanted)
        if self._digest == self._sent:
            return None
        self._sent = self._digest
        return self._catalogue

    async def _ask(self, wanted: dict[str, str]) -> None:
        await self._offerings.refresh()
        self._catalogue = await self._offerings.catalogue(list(self._caches.node_classes.values()))
        self._digest = _digest(self._catalogue)
        self._asked_for, self._asked_at = wanted, self._now()

    def _old(self) -> bool:
        return self._asked_at is None or self._now() - self._asked_at >= FRESH_FOR


def _shape(node_class: EC2NodeClass) -> str:
    """What its instance types depend on: the spec, and what the selectors resolved to, not conditions or versions."""
    ready = node_class.condition(labels.READY)
    resolved = node_class.status.model_copy(update={"conditions": ()})
    return short(f"{node_class.metadata.generation} {ready and ready.status} {resolved.model_dump_json()}")


def _digest(catalogue: Catalogue) -> str:
    return hashlib.sha256(catalogue.model_dump_json().encode()).hexdigest()
