"""The budget of one pass, so that the constraints of one class of pods cannot use up the time of a plan.

A step is the work for one topology domain, about 1 µs. Steps do not depend on the load of the machine, so the same
facts lead to the same plan.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PASS_STEPS: Final = 2_000_000
"""About 3 s. After 60 s, the planner is replaced."""
FREE_STEPS: Final = 5_000
FREE_STEPS_PER_POD: Final = 1_000
"""Not taken from the budget of the pass. The classes of `benchmarks.planner` need at most 150 steps per pod."""
_LARGEST_SHARE: Final = 4
"""One class gets at most this part of the remaining budget, so that some is left for every other class."""
PLACEMENT_STEPS: Final = 100
"""To choose nodes within one domain."""
MEASUREMENT_STEPS: Final = 10
"""To find out how many pods fit in a domain."""
ALTERNATIVE_STEPS: Final = 25
"""To combine a required term with preferences and a topology of volumes."""
TERM_STEPS: Final = 5
"""To compare a term with the labels of a class."""
MULTIPLE_ATTEMPTS_STEPS: Final = 300_000
"""A pass that has taken more makes no further attempts."""


class BudgetExceededError(Exception):
    """The class of pods that is being placed has used its share."""


class PlanningBudget:
    def __init__(self) -> None:
        self._remaining, self._own, self.spent = PASS_STEPS, 0, 0
        self.exceeded: dict[str, str] = {}
        """By the UID of each pod that exceeded its share, the reason. It is not planned again in this pass."""

    @contextmanager
    def share(self, pods: int) -> Iterator[None]:
        """The share of a class with this number of pods."""
        share = self._remaining // _LARGEST_SHARE
        self._own = FREE_STEPS + pods * FREE_STEPS_PER_POD + share
        try:
            yield
        finally:
            self._remaining -= max(0, share - max(0, self._own))

    def spend(self, steps: int) -> None:
        """Raises BudgetExceededError."""
        self._own -= steps
        self.spent += steps
        if self._own < 0:
            raise BudgetExceededError
