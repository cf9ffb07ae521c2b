"""When a NodePool reads its budget again, while wishes wait for it: `policy/looks.py` decides, here it is kept."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from temporalio import workflow

from model.coordination import Permit
from policy.budgets import Allowance
from policy.looks import LOOK_AGAIN, is_fixed, next_look

SLOWER: Final = "budget-looks-slower"
"""Histories from before looks came ever more slowly go on with one every 30 s, and one for each wish that is said
again."""


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
        if (self._since > 1 or booked_until or is_fixed(allowances, why)) and waits and workflow.patched(SLOWER):
            self.again = next_look(
                self._since, allowances, permits, now, held=why, until=until, booked_until=booked_until
            )
            return
        usual = now + LOOK_AGAIN
        self.again = min(usual, until) if why and until and until > workflow.now() else usual
