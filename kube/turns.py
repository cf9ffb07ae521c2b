"""Conditions that turned, told as events: `kubectl describe` shows the life of an object as the conditions changed.

`patches.py` compares before and after; `claims.py`, `pools.py` and `node_classes.py` tell what it found. Reason and
message are those of Karpenter's status controllers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kube.errors import Json
from kube.events import KubeEvents
from model.labels import READY

_FINALIZED: Final = "Finalized"


@dataclass(frozen=True)
class Turn:
    condition: Json
    before: str

    @property
    def message(self) -> str:
        now = self.condition
        more = f", Message: {now['message']}" if now.get("message") else ""
        return (
            f"Status condition transitioned, Type: {now['type']}, Status: {self.before} -> {now['status']}, "
            f"Reason: {now.get('reason', '')}{more}"
        )


def turns(before: Sequence[Json], after: Sequence[Json], *, dependents: Sequence[str]) -> list[Turn]:
    """What has another status now. Those that readiness depends on are Unknown until they are written first; others
    appear without a turn."""
    held = dict.fromkeys((*dependents, READY), "Unknown") | {one["type"]: one["status"] for one in before}
    return [Turn(one, held[one["type"]]) for one in after if one["type"] in held and held[one["type"]] != one["status"]]


class Teller:
    """Tells about the objects of one kind."""

    def __init__(self, events: KubeEvents, kind: str) -> None:
        self._events, self._kind = events, kind

    async def turned(self, item: Json, found: Sequence[Turn]) -> None:
        metadata = item["metadata"]
        for turn in found:
            await self._say(metadata["name"], metadata["uid"], turn.condition["type"], turn.message)

    async def finalized(self, name: str, uid: str, finalizer: str) -> None:
        await self._say(name, uid, _FINALIZED, f"Finalized {finalizer}")

    async def _say(self, name: str, uid: str, reason: str, message: str) -> None:
        await self._events.publish(kind=self._kind, name=name, uid=uid, reason=reason, message=message)
