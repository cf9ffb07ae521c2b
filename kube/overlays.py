"""NodeOverlays: those that are heeded, and the verdict on each of them written down."""

from collections.abc import Sequence
from datetime import datetime

from kube.client import KubeClient
from kube.events import KubeEvents
from kube.facts import overlay_fact
from kube.objects import Objects
from kube.patches import patch_status
from kube.resources import NODE_OVERLAYS
from kube.turns import Teller
from model.kinds import NodeOverlay
from model.labels import NODEOVERLAY_CONDITIONS, VALIDATION_SUCCEEDED
from model.outcomes import ConditionPatch
from model.overlays import OverlayFact, problem_of


class KubeOverlays:
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._overlays = Objects(client, NODE_OVERLAYS)
        self._teller = Teller(events, NODE_OVERLAYS.kind)

    async def heeded(self) -> Sequence[OverlayFact]:
        """All but those that make no sense, and those whose status says of the present spec that they are refused."""
        items = await self._overlays.list()
        facts = [overlay_fact(item) for item in items if not _is_refused(NodeOverlay.from_object(item))]
        return [one for one in facts if not problem_of(one)]

    async def say(self, name: str, uid: str, *, reason: str = "", message: str = "", now: datetime) -> bool:
        """An empty reason: it is heeded. False when it is gone."""
        status = "False" if reason else "True"
        verdict = ConditionPatch(type=VALIDATION_SUCCEEDED, status=status, reason=reason, message=message)
        item = await patch_status(
            self._overlays,
            name,
            uid=uid,
            status=None,
            conditions=[verdict],
            dependents=NODEOVERLAY_CONDITIONS,
            now=now,
            teller=self._teller,
        )
        return item is not None


def _is_refused(overlay: NodeOverlay) -> bool:
    verdict = overlay.condition(VALIDATION_SUCCEEDED)
    now = overlay.metadata.generation
    return verdict is not None and verdict.is_false and verdict.observed_generation in (0, now)
