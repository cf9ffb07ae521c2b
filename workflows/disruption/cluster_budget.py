"""A NodePool's places in the book of permits that all NodePools share, which the Cluster workflow keeps.

Only for NodePools whose LifecyclePolicy limits the nodes of all together (`disruption.clusterNodes`); others send
nothing. A place is booked first and the cluster read after: whoever books second sees the first.

When a NodePool reads its budget again, while wishes wait for it: `tenure/policy/disruption/permits.py` decides, here
it is kept.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import FailureError

from tenure.model.disruption.permits import BookAnswered, BookAsked
from tenure.model.workflow_states import Permit
from tenure.policy.disruption.budgets import Allowance
from tenure.policy.disruption.permits import LOOK_AGAIN, is_fixed, next_look

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


class Looks:
    def __init__(self) -> None:
        self._since = 0
        """How many since the last change."""
        self._began: datetime | None = None
        self.again: datetime | None = None
        """When the next is due; None before the first."""

    def begin(self, *, anew: bool) -> None:
        """`anew`: something changed since the last."""
        self._since = 1 if anew else self._since + 1
        self._began = workflow.now()

    def end(
        self,
        allowances: Mapping[str, Allowance],
        permits: Sequence[Permit],
        held: tuple[str, datetime | None],
        *,
        waits: bool,
        passing: bool,
        booked_until: datetime | None,
    ) -> None:
        """`waits`: some wish does; `passing`: for what is over within minutes, untold; `booked_until`: when others'
        places in the book begin to lapse."""
        now = self._began or workflow.now()
        why, until = held
        if passing:
            self._since = 1
        if (self._since > 1 or booked_until or is_fixed(allowances, why)) and waits:
            self.again = next_look(
                self._since, allowances, permits, now, held=why, until=until, booked_until=booked_until
            )
            return
        usual = now + LOOK_AGAIN
        self.again = min(usual, until) if why and until and until > workflow.now() else usual
