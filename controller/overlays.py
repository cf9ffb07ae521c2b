"""The planner's verdicts on NodeOverlays, written onto them: once for each that is new or other than before.

`planning.py` hands them over whenever they may have changed; what could not be written is tried again next time.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

import structlog

from controller.caches import Caches
from model.faults import Fault
from scheduling.overlays import Verdict

log = structlog.get_logger(__name__)


class Overlays(Protocol):
    """NodeOverlays' status; `kube.overlays` satisfies it."""

    async def say(self, name: str, uid: str, *, reason: str = "", message: str = "", now: datetime) -> bool:
        """An empty reason: it is heeded. Nothing is written where nothing changes. False when it is gone."""
        ...


class OverlayVerdicts:
    def __init__(self, caches: Caches, overlays: Overlays, now: Callable[[], datetime]) -> None:
        self._caches, self._overlays, self._now = caches, overlays, now
        self._said: dict[str, tuple[str, int, Verdict]] = {}

    async def say(self, verdicts: Mapping[str, Verdict]) -> None:
        """A verdict speaks of the overlay as it stands in the caches. Faults are logged."""
        self._said = {name: said for name, said in self._said.items() if name in verdicts}
        for name, verdict in verdicts.items():
            known = self._caches.overlays.get(name)
            if known is None or self._said.get(name) == (known.uid, known.generation, verdict):
                continue
            try:
                await self._overlays.say(
                    name, known.uid, reason=verdict.reason, message=verdict.message, now=self._now()
                )
            except Fault as fault:
                log.warning("status of a NodeOverlay not written", name=name, fault=str(fault))
                continue
            self._said[name] = (known.uid, known.generation, verdict)
            if verdict.reason:
                log.warning("NodeOverlay is not heeded", name=name, reason=verdict.reason, message=verdict.message)
