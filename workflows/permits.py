"""Permits for voluntary disruption: how the NodePool workflow hands them out, takes them back and calls them back.

A permit is a lease that lapses: a node that never uses it frees it by time. `policy/permits.py` decides; what is left
of budgets, windows and rates is read from live objects whenever somebody wishes for something.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.allowances import AllowanceActivities
from model.coordination import Permit, PoolState
from model.disrupting import PermitRecalled
from model.messages import DisruptionReason, PermitAnswered, PermitAsked, PermitWithdrawn
from model.permits import AllowanceAsked
from policy.allowances import longest_rate
from policy.budgets import Allowance
from policy.permits import Decision, after, decide_permits, is_held_by, key_of, permit_of
from workflows.options import PATCH, named
from workflows.rollouts import Rollouts

LEASE = timedelta(minutes=2)
"""A permit lapses after this long, unless its NodeClaim is being deleted by then and so counts by itself."""
LOOK_AGAIN = timedelta(seconds=30)
"""While wishes wait for a budget it is read again after this long, and whenever the pool changes."""
GATHER = timedelta(milliseconds=200)
"""Nodes that empty together are answered together."""
RECALLS = "permits-recalled"
"""Histories from before permits were called back go on without."""


class Permits:
    """`state` and `change` are the NodePool's; `held` says why nothing goes at all, and until when."""

    def __init__(
        self,
        state: Callable[[], PoolState],
        change: Callable[..., None],
        held: Callable[[], tuple[str, datetime | None]],
        rollouts: Rollouts,
    ) -> None:
        self._state, self._change, self._held = state, change, held
        self._rollouts = rollouts
        self._anew = bool(state().asked)
        self._again: datetime | None = None
        self._renewed: list[tuple[PermitAsked, PermitAnswered]] = []
        self._recalls: list[tuple[Permit, str]] = []

    # --- what is heard ---

    def ask(self, wish: PermitAsked) -> None:
        """A wish takes the place of an earlier one of the same workflow; one that has the permit keeps it longer."""
        now = workflow.now()
        held = next((one for one in self._state().permits if is_held_by(one, wish) and one.until > now), None)
        if held is not None:
            self._renew(held, wish, now + LEASE)
            return
        key = key_of(wish)
        others = tuple(one for one in self._state().asked if key_of(one) != key)
        told = tuple(one for one in self._state().refused if one not in (key, wish.claim_uid))
        self._change(asked=(*others, wish), refused=told)
        self._anew = True

    def withdraw(self, withdrawn: PermitWithdrawn) -> None:
        """A permit given back is for the next in line at once."""
        uid, who = withdrawn.claim_uid, withdrawn.workflow_id
        left = tuple(one for one in self._state().permits if not _concerns(one.claim_uid, one.workflow_id, uid, who))
        asked = tuple(one for one in self._state().asked if not _concerns(one.claim_uid, one.workflow_id, uid, who))
        self._anew = self._anew or left != self._state().permits
        self._change(asked=asked, permits=left)

    def recall(self, why: str, claim_uid: str = "") -> int:
        """Call permits back: all of them, or those for one NodeClaim. How many."""
        called = [one for one in self._state().permits if claim_uid in ("", one.claim_uid)]
        self._change(permits=tuple(one for one in self._state().permits if one not in called))
        self._recalls += [(one, why) for one in called]
        return len(called)

    def look_again(self, *, told_anew: bool = False) -> None:
        """Something changed that wishes depend on. `told_anew`: those who wait are told what they wait for now."""
        self._anew = True
        if told_anew:
            self._change(refused=())

    # --- when something is due ---

    @property
    def news(self) -> bool:
        """A change that nobody wishes anything of is no reason to wake."""
        return bool(self._renewed) or (self._anew and bool(self._state().asked))

    @property
    def next(self) -> datetime | None:
        """When the budget is due for another look; None while nobody waits for it."""
        return self._again if self._state().asked else None

    @property
    def calling(self) -> bool:
        """Permits are being called back: no moment to roll over."""
        return bool(self._recalls)

    def _due(self) -> bool:
        waited = self._again is None or workflow.now() >= self._again
        return bool(self._state().asked) and (self._anew or waited)

    # --- what is done ---

    async def step(self) -> None:
        """Answer what can be answered."""
        renewed, self._renewed = self._renewed, []
        await asyncio.gather(*(self._answer(wish, answer) for wish, answer in renewed))
        if self._due():
            await self._decide()

    async def call_back(self) -> None:
        """For as long as the run lasts: tell those whose permits were called back. A workflow that is over needs no
        telling."""
        while True:
            await workflow.wait_condition(lambda: bool(self._recalls))
            called = [*self._recalls]
            if workflow.patched(RECALLS):
                await asyncio.gather(*(self._tell(permit, why) for permit, why in called))
            del self._recalls[: len(called)]

    async def _tell(self, permit: Permit, why: str) -> None:
        if permit.workflow_id:
            holder = workflow.get_external_workflow_handle(permit.workflow_id)
            with suppress(ApplicationError):
                await holder.signal("recalled", PermitRecalled(claim_uid=permit.claim_uid, why=why))

    async def _decide(self) -> None:
        """Read what is left now, and answer every wish, oldest first."""
        await workflow.sleep(GATHER, summary="gather wishes")
        self._anew = False
        self._again = workflow.now() + LOOK_AGAIN
        reasons: set[DisruptionReason] = {one.reason for one in self._state().asked} or {"Empty"}
        allowances: dict[str, Allowance] = {reason: await self._allowance(reason) for reason in sorted(reasons)}
        held, until = self._held()
        if "Drifted" in allowances:
            allowances["Drifted"] = await self._rollouts.narrow(allowances["Drifted"], held=held)
        now, state = workflow.now(), self._state()
        if held and until and until > now:
            self._again = min(self._again, until)
        decision = decide_permits(state.name, state.asked, state.permits, allowances, now, held=held)
        answers = self._keep(decision, now)
        await asyncio.gather(*(self._answer(one, answer) for one, answer in answers))

    def _keep(self, decision: Decision, now: datetime) -> list[tuple[PermitAsked, PermitAnswered]]:
        """Take the decision into the state; who is to be told. What makes one wait is told once."""
        state, until = self._state(), now + LEASE
        going = {one.claim_uid for one in decision.granted}
        self._rollouts.granted(one.claim_uid for one in decision.granted if one.reason == "Drifted")
        answers = [
            (one, PermitAnswered(granted=True, claim_uid=one.claim_uid, reason=one.reason, until=until))
            for one in decision.granted
        ]
        read = [one for one in decision.waiting if key_of(one) in decision.why]
        for one in read:
            if key_of(one) not in state.refused and one.claim_uid not in state.refused:
                why = decision.why[key_of(one)]
                refused = PermitAnswered(granted=False, claim_uid=one.claim_uid, reason=one.reason, blocked_by=why)
                answers.append((one, refused))
        since = now - longest_rate(state.seen.rules)
        self._change(
            permits=(
                *(one for one in decision.out if one.claim_uid not in going),
                *(permit_of(one, now, until) for one in decision.granted),
            ),
            past=after(state.past, decision.gone, state.name, since),
            asked=decision.waiting,
            refused=tuple(key_of(one) for one in read),
            blocked_by=decision.why[key_of(read[0])] if read else "",
        )
        return answers

    async def _allowance(self, reason: DisruptionReason) -> Allowance:
        state = self._state()
        asked = AllowanceAsked(
            name=state.name,
            reason=reason,
            rules=state.seen.rules,
            past=state.past,
            permits=state.permits,
            asking=tuple(sorted({*(one.claim_uid for one in state.asked), *(one.claim_uid for one in state.permits)})),
        )
        try:
            return await workflow.execute_activity_method(
                AllowanceActivities.read_allowance, asked, **named(PATCH, "read the budget")
            )
        except ActivityError as error:
            return Allowance(allowed=0, read=False, why=f"the budget could not be read: {error.cause or error}")

    def _renew(self, held: Permit, wish: PermitAsked, until: datetime) -> None:
        permits = self._state().permits
        self._change(permits=tuple(one.model_copy(update={"until": until}) if one is held else one for one in permits))
        answer = PermitAnswered(granted=True, claim_uid=wish.claim_uid, reason=wish.reason, until=until)
        self._renewed.append((wish, answer))

    async def _answer(self, wish: PermitAsked, answer: PermitAnswered) -> None:
        """A node that is gone needs no answer; its lease lapses."""
        try:
            await workflow.get_external_workflow_handle(wish.workflow_id).signal("permitted", answer)
        except ApplicationError:
            self.withdraw(PermitWithdrawn(claim_uid=wish.claim_uid, workflow_id=wish.workflow_id))


def _concerns(claim_uid: str, workflow_id: str, uid: str, who: str) -> bool:
    return claim_uid == uid and (not who or workflow_id in ("", who))
