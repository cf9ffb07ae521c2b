"""A NodePool's places in the book of permits that all NodePools share, which the Cluster workflow keeps.

Only for NodePools whose LifecyclePolicy limits the nodes of all together (`disruption.clusterNodes`); others send
nothing. A place is booked first and the cluster read after: whoever books second sees the first.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import FailureError

from model.permits import BookAnswered, BookAsked

ANSWERS_WITHIN: Final = timedelta(seconds=20)
NO_ANSWER: Final = "the Cluster workflow, which gives the permits that clusterNodes limits, does not answer"


class Booking:
    """`cluster` is the id of the Cluster workflow."""

    def __init__(self, pool: str, cluster: str) -> None:
        self._pool, self._cluster = pool, cluster
        self._known: Mapping[str, datetime] = {}
        self._answer = BookAnswered()

    def hear(self, answer: BookAnswered) -> None:
        self._answer = answer

    @property
    def until(self) -> datetime | None:
        """When the first of others' places lapses, as the last answer had it."""
        return self._answer.until

    def differs(self, wanted: Mapping[str, datetime]) -> bool:
        """The book has places of this NodePool, and others than it wants."""
        return bool(self._known) and self._known != wanted

    async def book(self, wanted: Mapping[str, datetime]) -> tuple[str, ...] | None:
        """UIDs of what other NodePools booked before; None when nobody answers."""
        token = str(workflow.uuid4())
        if not await self._tell(wanted, token):
            return None
        try:
            await workflow.wait_condition(
                lambda: self._answer.token == token, timeout=ANSWERS_WITHIN, timeout_summary="places for permits"
            )
        except TimeoutError:
            return None
        return self._answer.others

    async def keep(self, wanted: Mapping[str, datetime]) -> None:
        """These places alone. What the Cluster workflow does not hear of lapses by itself."""
        if self.differs(wanted):
            await self._tell(wanted, "")

    async def _tell(self, wanted: Mapping[str, datetime], token: str) -> bool:
        self._known = dict(wanted)
        asked = BookAsked(pool=self._pool, workflow_id=workflow.info().workflow_id, wanted=dict(wanted), token=token)
        with suppress(FailureError):
            await workflow.get_external_workflow_handle(self._cluster).signal("book", asked)
            return True
        return False
