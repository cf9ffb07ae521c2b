"""What a phase holds in its hands: the claim's state, the clock, and the ways to wait, show and remember.

`nodeclaim.py` makes one per run and walks the phases with it. Handlers only replace `state`; phases do the rest.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import ActivityError, RetryState, is_cancelled_exception

from tenure.model.nodeclaim_requests import TOLD_OF
from tenure.model.nodeclaim_state import ClaimState, Phase, Step
from tenure.policy.lifecycle.deadlines import action_of, is_alarmed, slow_at
from tenure.policy.lifecycle.transitions import deadline_of, may_follow
from workflows import current_details, ids, metrics, visibility
from workflows.activity_options import roll_due

T = TypeVar("T")
AGAIN_IN = timedelta(seconds=20)
"""Before a phase begins again after a fault that retries could not help."""


class RollOver(Exception):
    """Raised out of a calm wait: the run continues as new with the state as it stands."""


class Life:
    def __init__(self, state: ClaimState) -> None:
        self.state = state
        self.telling = 0
        """Things that are being written beside the phases, so that this is no moment to roll over."""
        self.moved = False
        """A LifecyclePolicy moved the deadline, ..."""
        self.insisting = False
        """... and an activity runs that knows the one before."""
        self._shown: dict[str, SearchAttributeUpdate[Any]] = {}

    @property
    def now(self) -> datetime:
        return workflow.now()

    @property
    def name(self) -> str:
        return self.state.identity.name

    @property
    def uid(self) -> str:
        return self.state.identity.uid

    @property
    def leaving(self) -> bool:
        """The NodeClaim is being deleted, or gone."""
        return self.state.seen.deleting or not self.state.seen.exists

    def change(self, **fields: Any) -> None:
        """Replace fields of the state."""
        self.state = self.state.model_copy(update=fields)

    def note_left(self, pods: Iterable[str]) -> None:
        """These were told to go, as `namespace/name`."""
        self.change(left=tuple(dict.fromkeys((*self.state.left, *pods)))[:TOLD_OF])

    def begin(self) -> None:
        """At the top of every run: what a run does not inherit is set again."""
        if self.state.since is None:
            self.enter(Phase.LAUNCH, "created")
            return
        self._shown = visibility.of_claim(self.state)
        self._describe()

    def enter(self, phase: Phase, cause: str) -> None:
        """Step into a phase: its time starts, its deadline is known, and everyone can see it.

        The first phase is in the start's own attributes, and a life that is over shows as a closed workflow.
        """
        before = self.state.phase
        if self.state.since is not None and not may_follow(before, phase):
            raise AssertionError(f"{before} may not be followed by {phase}")
        metrics.time_startup(self.state, phase)
        if metrics.count_disrupted(self.state, phase):
            self.change(counted=True)
        if phase is Phase.GONE:
            metrics.count_terminated(self.state)
            metrics.time_end(self.state)
        now = self.now
        self.change(
            phase=phase,
            since=now,
            deadline=deadline_of(self.state, phase, now),
            overdue=False,
            slow=False,
            blocked_by="",
            waits_until=None,
            story=(*self.state.story, Step(phase=phase, at=now, cause=cause)),
        )
        if phase in (Phase.LAUNCH, Phase.GONE):
            # An answer may have come before the first phase began: it is not in the start's attributes.
            self._shown = visibility.of_claim(self.state.model_copy(update={"launched": None}))
            self._describe()
        else:
            self.show()

    def show(self) -> None:
        """One batched upsert of the search attributes that changed, and the details for the Temporal UI."""
        shown = visibility.of_claim(self.state)
        changed = [update for name, update in shown.items() if not _same(self._shown.get(name), update)]
        self._shown = shown
        if changed:
            workflow.upsert_search_attributes(changed)
        self._describe()

    def block(self, why: str) -> None:
        """Say what is waited for; seen as TenureBlockedBy and in the details."""
        if why != self.state.blocked_by:
            self.change(blocked_by=why)
            self.show()

    def overdue(self) -> bool:
        deadline = self.state.deadline
        return deadline is not None and self.now >= deadline

    def mark_overdue(self) -> None:
        """Seen as TenureOverdue, and counted in the worker's metrics."""
        if not self.state.overdue:
            self.change(overdue=True)
            self.show()
            metrics.count_overdue(self.state)

    def raise_alarm(self) -> bool:
        """The deadline has passed: True where nothing follows but that a person is waited for."""
        if action_of(self.state.seen.rules, self.state.phase) != "alarm":
            return False
        self.mark_overdue()
        return True

    def alarmed(self) -> bool:
        """It is overdue, and waits for a person."""
        return is_alarmed(self.state)

    def retime(self) -> None:
        """Other rules hold: the deadline counts from when it always did, and may be past now, or no more."""
        state = self.state
        if state.since is None:
            return
        deadline = deadline_of(state, state.phase, state.since)
        if deadline != state.deadline:
            overdue = state.overdue and deadline is not None and self.now >= deadline
            self.change(deadline=deadline, overdue=overdue)
            self.moved = True
        self.show()

    def moved_since(self) -> Callable[[], bool]:
        """Whether a LifecyclePolicy has since changed what a wait within the phase goes by."""
        known = (self.state.deadline, self.alarmed())
        return lambda: (self.state.deadline, self.alarmed()) != known

    def next_mark(self) -> datetime | None:
        """When time alone makes the phase slow, or overdue; None for one that waits for a person."""
        moments = (slow_at(self.state), None if self.alarmed() else self.state.deadline)
        return min((moment for moment in moments if moment), default=None)

    def notice_slow(self) -> bool:
        """Show it, once, if it is so; it costs no event before."""
        moment = slow_at(self.state)
        if moment is None or self.now < moment:
            return False
        self.change(slow=True)
        self.show()
        return True

    async def insist(self, call: Callable[[Any], Awaitable[T]], options: Any) -> T:
        """Run an activity for as long as it takes; when its retries pass the deadline, the phase shows as overdue.

        Costs no timer. Raises ActivityError for a fault that no retry can help.
        """
        self.insisting, self.moved = True, False
        try:
            return await self._insist(call, options)
        finally:
            self.insisting = False

    async def _insist(self, call: Callable[[Any], Awaitable[T]], options: Any) -> T:
        bound = None
        while self.state.deadline not in (None, bound) and not self.overdue():
            bound = self.state.deadline
            try:
                return await call(self.bounded(options))
            except ActivityError as error:
                if error.retry_state is not RetryState.TIMEOUT:
                    raise
                if not self.state.blocked_by:
                    self.change(blocked_by=str(error.cause or error)[:200])
        if self.state.deadline is not None:
            self.mark_overdue()
            self.show()
        return await call(options)

    async def stumble(self, error: ActivityError) -> None:
        """A fault that retries cannot help: a life is not ended by it. Say so, and let the phase begin again."""
        if is_cancelled_exception(error):
            raise error
        self.block(str(error.cause or error)[:200])
        if self.overdue():
            self.mark_overdue()
        await self.wait(lambda: False, until=self.now + AGAIN_IN, summary="before trying again")

    def bounded(self, options: Any) -> Any:
        """The same options, with no retry beyond the phase's deadline."""
        deadline = self.state.deadline
        return {**options, "schedule_to_close_timeout": deadline - self.now} if deadline else options

    async def wait(self, happened: Callable[[], bool], *, until: datetime | None, summary: str) -> bool:
        """Sleep until something happened or the time is there; False for the latter. Calm: the run may roll over.

        Without `until` no timer is made, so a node that waits for nothing but news costs no event.
        """
        if happened():
            return True
        if until is not None and until <= self.now:
            return False
        timeout = until - self.now if until is not None else None
        self.roll_if_due()
        try:
            await workflow.wait_condition(
                lambda: happened() or roll_due(), timeout=timeout, timeout_summary=summary if timeout else None
            )
        except TimeoutError:
            return False
        if not happened():
            raise RollOver
        return True

    async def wait_in_time(self, happened: Callable[[], bool], *, sooner: datetime | None = None, summary: str) -> bool:
        """`wait` until the phase's deadline, wherever it is moved to, or until `sooner`; a phase that takes long is
        marked slow on the way. One that waits for a person has no deadline."""
        while True:
            until = min((moment for moment in (sooner, self.next_mark()) if moment), default=None)
            if await self.wait(_either(happened, self.moved_since()), until=until, summary=summary):
                if happened():
                    return True
            elif (sooner and self.now >= sooner) or not self.notice_slow():
                return False

    async def wait_or_alarm(self, happened: Callable[[], bool], *, summary: str) -> bool:
        """`wait_in_time`, and on past the deadline where then a person is waited for."""
        while not await self.wait_in_time(happened, summary=summary):
            if not self.raise_alarm():
                return False
        return True

    def roll_if_due(self) -> None:
        """In a calm moment of a phase that goes round without ever waiting here."""
        if roll_due():
            raise RollOver

    def pool_workflow(self) -> str:
        return ids.nodepool(self.state.identity.cluster, self.state.identity.pool)

    def _describe(self) -> None:
        workflow.set_current_details(current_details.of_claim(self.state))


def _either(one: Callable[[], bool], other: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: one() or other()


def _same(before: SearchAttributeUpdate[Any] | None, after: SearchAttributeUpdate[Any]) -> bool:
    return before is not None and before.value == after.value
