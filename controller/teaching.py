"""Tells the Provisioning workflow what live Nodes have shown, so that it outlives them and this process.

`session.py` calls it after every change; `learning.py` knows what there is to tell.
"""

from datetime import datetime, timedelta
from typing import Final

from controller.learning import Learning
from controller.signaller import Signal, Signaller, Start
from workflows import ids

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
