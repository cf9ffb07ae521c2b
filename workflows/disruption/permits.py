"""Permits for voluntary disruption: how the NodePool workflow hands them out, takes them back and calls them back.

A permit is a lease that lapses: a node that never uses it frees it by time. `tenure/policy/disruption/permits.py`
decides; what is left
of budgets, windows and rates is read from live objects whenever somebody wishes for something, whenever the watch tells
that they may have room, and at the times of `tenure/policy/disruption/permits.py`.

What a NodePool with wishes asks of its budgets: for whom, and what it knows that live objects do not show.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.nodepool.budgets import AllowanceActivities
from tenure.model.disruption.commands import PermitRecalled
from tenure.model.disruption.permits import AllowanceAsked, BookAnswered
from tenure.model.signals import DisruptionReason, PermitAnswered, PermitAsked, PermitWithdrawn
from tenure.model.workflow_states import Permit, PoolState
from tenure.policy.disruption.budgets import Allowance
from tenure.policy.disruption.limits import longest_rate
from tenure.policy.disruption.permits import Decision, after, cause_of, decide_permits, is_held_by, key_of, permit_of
from workflows import ids
from workflows.activity_options import PATCH, named
from workflows.disruption.cluster_budget import NO_ANSWER, Booking, Looks
from workflows.rollout import Rollouts


def allowance_asked(state: PoolState, reason: DisruptionReason, booked: tuple[str, ...]) -> AllowanceAsked:
    """`booked`: UIDs of what other NodePools have permits for."""
    wished, out = {one.claim_uid for one in state.asked}, {one.claim_uid for one in state.permits}
    return AllowanceAsked(
        name=state.name,
        reason=reason,
        rules=state.seen.rules,
        unread=state.seen.unread,
        past=state.past,
        permits=state.permits,
        asking=tuple(sorted(wished | out)),
        wishing=tuple(sorted(_by_themselves(state) - out)),
        booked=booked,
    )


def _by_themselves(state: PoolState) -> set[str]:
    """UIDs of the NodeClaims whose own workflows wish, not those of commands."""
    cluster = state.cluster
    return {
        one.claim_uid for one in state.asked if one.workflow_id == ids.nodeclaim(cluster, one.claim_name, one.claim_uid)
    }


LEASE = timedelta(minutes=2)
"""A permit lapses after this long, unless its NodeClaim is being deleted by then and so counts by itself. That of a
command counts until it cannot have begun any more."""
GATHER = timedelta(milliseconds=200)
"""Nodes that empty together are answered together."""
BOOKED_FOR = timedelta(minutes=2)
"""So long a place is kept while it is decided whether it is needed. Half of it is for the decision: a later one is
none, since another NodePool may have the place by the time that is told."""


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
        self._booking = Booking(state().name, ids.cluster(state().cluster))
        self._anew = bool(state().asked)
        self._looks = Looks()
        self._left: dict[str, Allowance] = {}
        """By reason, as the last look found it."""
        self._why: dict[str, str] = {}
        """What wishes wait for, likewise."""
        self._in_book = False
        """Some wait for others' places in the book, or for an answer about them."""
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
        if self._is_known(wish):
            refused = PermitAnswered(
                granted=False, claim_uid=wish.claim_uid, reason=wish.reason, blocked_by=self._why[key]
            )
            self._renewed.append((wish, refused))
            return
        others = tuple(one for one in self._state().asked if key_of(one) != key)
        told = tuple(one for one in self._state().refused if one not in (key, wish.claim_uid))
        self._change(asked=(*others, wish), refused=told)
        self._anew = True

    def _is_known(self, wish: PermitAsked) -> bool:
        """It waits already, and what it waits for was told."""
        key, state = key_of(wish), self._state()
        waits = any(key_of(one) == key and one.reason == wish.reason for one in state.asked)
        return waits and key in state.refused and key in self._why

    def withdraw(self, withdrawn: PermitWithdrawn) -> None:
        """A permit given back is for the next in line at once."""
        uid, who = withdrawn.claim_uid, withdrawn.workflow_id
        state = self._state()
        left = tuple(one for one in state.permits if not _concerns(one.claim_uid, one.workflow_id, uid, who))
        if withdrawn.used:
            went = [one for one in state.permits if one not in left]
            since = workflow.now() - longest_rate(state.seen.rules, state.seen.unread)
            self._change(past=after(state.past, went, state.name, since))
        asked = tuple(one for one in self._state().asked if not _concerns(one.claim_uid, one.workflow_id, uid, who))
        self._anew = self._anew or left != self._state().permits
        self._change(asked=asked, permits=left)

    def booked(self, answer: BookAnswered) -> None:
        """Where other NodePools were before this one."""
        self._booking.hear(answer)

    def recall(self, why: str, claim_uid: str = "") -> int:
        """Call permits back: all of them, or those for one NodeClaim. How many."""
        called = [one for one in self._state().permits if claim_uid in ("", one.claim_uid)]
        # A command may be taking its nodes out of service just now: it gives permits back once it has put them back.
        self._change(permits=tuple(one for one in self._state().permits if one not in called or one.begins_within))
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
        waited_for = self._anew and bool(self._state().asked)
        return bool(self._renewed) or waited_for or self._booking.differs(self._places())

    @property
    def next(self) -> datetime | None:
        """When the budget is due for another look; None while nobody waits for it."""
        return self._looks.again if self._state().asked else None

    @property
    def calling(self) -> bool:
        """Permits are being called back: no moment to roll over."""
        return bool(self._recalls)

    def _due(self) -> bool:
        waited = self._looks.again is None or workflow.now() >= self._looks.again
        return bool(self._state().asked) and (self._anew or waited)

    # --- what is done ---

    async def step(self) -> None:
        """Answer what can be answered."""
        renewed, self._renewed = self._renewed, []
        await asyncio.gather(*(self._answer(wish, answer) for wish, answer in renewed))
        if self._due():
            await self._decide()
        await self._booking.keep(self._places())

    async def call_back(self) -> None:
        """For as long as the run lasts: tell those whose permits were called back. A workflow that is over needs no
        telling."""
        while True:
            await workflow.wait_condition(lambda: bool(self._recalls))
            called = [*self._recalls]
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
        self._looks.begin(anew=self._anew)
        self._anew, self._in_book, self._left = False, False, {}
        decision = await self._judge()
        if decision.granted and self._shares_limits():
            decision = await self._judge_booked(decision)
        answers = self._keep(decision, workflow.now())
        state, booked_until = self._state(), self._booking.until if self._in_book else None
        self._looks.end(
            self._left,
            state.permits,
            self._held(),
            waits=bool(state.asked),
            passing=self._in_book,
            booked_until=booked_until,
        )
        await asyncio.gather(*(self._answer(one, answer) for one, answer in answers))

    async def _judge(
        self, booked: tuple[str, ...] | None = (), only: Mapping[str, PermitAsked] | None = None
    ) -> Decision:
        """By what is left now. `booked`: what other NodePools have, None when that is not known; `only`: these wishes,
        by key."""
        asked = [one for one in self._state().asked if only is None or key_of(one) in only]
        reasons: set[DisruptionReason] = {one.reason for one in asked} or {"Empty"}
        allowances: dict[str, Allowance] = {reason: await self._allowance(reason, booked) for reason in sorted(reasons)}
        held, _ = self._held()
        if "Drifted" in allowances:
            allowances["Drifted"] = await self._rollouts.narrow(allowances["Drifted"], held=held)
            since, _ = self._held()
            held = since
        self._left |= allowances
        now, state = workflow.now(), self._state()
        wishes = [one for one in state.asked if only is None or key_of(one) in only]
        return decide_permits(state.name, wishes, state.permits, allowances, now, held=held)

    async def _judge_booked(self, first: Decision) -> Decision:
        """Again, once places are booked for those that would be granted: another NodePool may have been before."""
        wanted = {key_of(one): one for one in first.granted}
        soon = workflow.now() + BOOKED_FOR
        others = await self._booking.book(
            {**dict.fromkeys((one.claim_uid for one in first.granted), soon), **self._places()}
        )
        second = await self._judge(others, wanted)
        if workflow.now() >= soon - BOOKED_FOR / 2:
            second = replace(second, granted=(), waiting=(*second.granted, *second.waiting))
        self._in_book = bool(second.waiting)
        rest = (one for one in self._state().asked if key_of(one) not in wanted)
        return replace(second, waiting=(*second.waiting, *rest), why={**first.why, **second.why})

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
            why = decision.why[key_of(one)]
            if not {key_of(one), one.claim_uid} & {*state.refused} or self._is_another(key_of(one), why):
                refused = PermitAnswered(granted=False, claim_uid=one.claim_uid, reason=one.reason, blocked_by=why)
                answers.append((one, refused))
        self._why = {key_of(one): decision.why[key_of(one)] for one in read}
        since = now - longest_rate(state.seen.rules, state.seen.unread)
        self._change(
            permits=(
                *(one for one in decision.out if one.claim_uid not in going),
                *(permit_of(one, now, until) for one in decision.granted),
            ),
            past=after(state.past, decision.gone, state.name, since),
            asked=decision.waiting,
            refused=tuple(key_of(one) for one in read),
            causes={key_of(one): cause_of(decision.why[key_of(one)]) for one in read},
            blocked_by=decision.why[key_of(read[0])] if read else "",
        )
        return answers

    def _is_another(self, key: str, why: str) -> bool:
        """What it waits for is not what it was told: that is told again, where counts alone are not."""
        told = self._state().causes.get(key)
        return told is not None and told != cause_of(why)

    def _shares_limits(self) -> bool:
        rules = self._state().seen.rules
        return rules is not None and rules.cluster_nodes is not None

    def _places(self) -> dict[str, datetime]:
        """What this NodePool is to have in the book that all share."""
        return {one.claim_uid: one.counts_until for one in self._state().permits} if self._shares_limits() else {}

    async def _allowance(self, reason: DisruptionReason, booked: tuple[str, ...] | None) -> Allowance:
        state = self._state()
        if booked is None:
            return Allowance(allowed=0, read=False, why=NO_ANSWER)
        asked = allowance_asked(state, reason, booked)
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
