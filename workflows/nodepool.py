"""NodePool: keeps the pool's status, and a static pool's number of nodes; hands out permits for voluntary disruption.

A permit is a lease that lapses: a node that never uses it frees it by time. Launch, interruption, drain and
clean-up never ask here, so a pool in trouble freezes only its own voluntary steps.
"""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.pools import PoolActivities
from model.coordination import Permit, PoolState
from model.messages import DisruptionReason, Pause, PermitAnswered, PermitAsked, PermitWithdrawn, Resume, Verdict
from model.observations import PoolSeen
from model.registrations import StartEnded
from model.steps import PoolAsked
from policy.budgets import Allowance
from policy.registrations import added
from workflows import details
from workflows.options import PATCH, ROLL_AT_EVENTS, named
from workflows.replicas import Replicas

LEASE = timedelta(minutes=2)
"""A permit lapses after this long, unless its NodeClaim is being deleted by then and so counts by itself."""
LOOK_AGAIN = timedelta(seconds=30)
"""While wishes wait for a budget it is read again after this long, and whenever the pool changes."""
GATHER = timedelta(milliseconds=200)
"""Nodes that empty together are answered together."""


@workflow.defn
class NodePoolWorkflow:
    @workflow.init
    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._told = PoolSeen()
        self._again: datetime | None = None
        self._asked_anew = bool(state.asked)
        self._failed_anew = False
        """A NodeClaim failed to start since the status was last written."""
        self._replicas = Replicas(lambda: self._state, self._change)

    @workflow.run
    async def run(self, state: PoolState) -> None:
        while self._state.seen.exists:
            self._describe()
            await self._news()
            if self._state.seen != self._told or self._failed_anew:
                await self._status()
                self._asked_anew = True
            if self._replicas.due():
                await self._replicas.step(self._paused(workflow.now()))
            if self._state.asked and self._due():
                await self._permits()
            if self._roll_due():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._state)

    @workflow.signal
    def seen(self, seen: PoolSeen) -> None:
        if seen.number > self._state.seen.number:
            self._change(seen=seen)

    @workflow.signal
    def asked(self, asked: PermitAsked) -> None:
        others = tuple(one for one in self._state.asked if one.claim_uid != asked.claim_uid)
        told = tuple(uid for uid in self._state.refused if uid != asked.claim_uid)
        self._change(asked=(*others, asked), refused=told)
        self._asked_anew = True

    @workflow.signal
    def start_failed(self, failed: StartEnded) -> None:
        """One of its NodeClaims never came to be a Node."""
        self._change(registrations=added(self._state.registrations, (failed,)))
        self._failed_anew = True

    @workflow.signal
    def withdrawn(self, withdrawn: PermitWithdrawn) -> None:
        """A permit given back is for the next in line at once."""
        uid = withdrawn.claim_uid
        left = tuple(one for one in self._state.permits if one.claim_uid != uid)
        self._asked_anew = self._asked_anew or left != self._state.permits
        self._change(asked=tuple(one for one in self._state.asked if one.claim_uid != uid), permits=left)

    @workflow.update
    def pause(self, pause: Pause) -> Verdict:
        """Hold voluntary disruption in this pool until a moment."""
        self._change(pause=pause, refused=())
        self._asked_anew = True
        return Verdict(message=f"NodePool {self._state.name} is paused until {pause.until.isoformat()}")

    @pause.validator
    def _check_pause(self, pause: Pause) -> None:
        if pause.until <= workflow.now():
            raise ValueError(f"until: {pause.until.isoformat()} is past; write a moment to come")

    @workflow.signal
    def pause_disruption(self, pause: Pause) -> None:
        self._change(pause=pause, refused=())
        self._asked_anew = True

    @workflow.update
    def resume(self, resume: Resume) -> Verdict:
        self._change(pause=None)
        self._asked_anew = True
        return Verdict(message=f"NodePool {self._state.name} goes on")

    @workflow.signal
    def resume_disruption(self, resume: Resume) -> None:
        self._change(pause=None)
        self._asked_anew = True

    @workflow.query
    def state(self) -> PoolState:
        return self._state

    async def _news(self) -> None:
        """Sleep until something changed; while wishes wait, also until the budget is due for another look."""
        budget = self._again if self._state.asked else None
        moments = [moment for moment in (budget, self._replicas.next()) if moment is not None]
        try:
            await workflow.wait_condition(
                lambda: (
                    self._state.seen != self._told
                    or self._failed_anew
                    or self._anew()
                    or self._replicas.due()
                    or self._roll_due()
                ),
                timeout=max(min(moments) - workflow.now(), timedelta(0)) if moments else None,
                timeout_summary="look at the budget again" if budget else "before the next step to spec.replicas",
            )
        except TimeoutError:
            return

    def _anew(self) -> bool:
        """A change that nobody wishes anything of is no reason to wake."""
        return self._asked_anew and bool(self._state.asked)

    def _due(self) -> bool:
        return self._asked_anew or self._again is None or workflow.now() >= self._again

    async def _status(self) -> None:
        self._told, self._failed_anew = self._state.seen, False
        if not self._told.exists:
            return
        asked = PoolAsked(
            name=self._state.name, gate_off=self._told.static == "off", registrations=self._state.registrations
        )
        try:
            written = await workflow.execute_activity_method(
                PoolActivities.update_pool, asked, **named(PATCH, "write the status")
            )
            if written.registrations:
                # What failed meanwhile counts too.
                self._change(registrations=added(written.registrations, self._state.registrations.outcomes))
        except ActivityError as error:
            self._change(blocked_by=f"the status could not be written: {error.cause or error}"[:200])

    async def _permits(self) -> None:
        """Read what the budget allows now, less the leases out, and answer every wish, oldest first."""
        await workflow.sleep(GATHER, summary="gather wishes")
        self._asked_anew = False
        self._again = workflow.now() + LOOK_AGAIN
        reasons: set[DisruptionReason] = {one.reason for one in self._state.asked} or {"Empty"}
        allowances = {reason: await self._allowance(reason) for reason in sorted(reasons)}
        allowance = next((one for one in allowances.values() if one.read), allowances[min(reasons)])
        now = workflow.now()
        unused = {*allowance.count.standing} - {*allowance.count.consuming}
        leases = tuple(
            one for one in self._state.permits if one.until > now and (one.claim_uid in unused or not allowance.read)
        )
        paused = self._paused(now)
        room = {reason: 0 if paused else one.allowed - len(leases) for reason, one in allowances.items()}
        why = {
            reason: paused or f"NodePool {self._state.name}: {one.why}, {len(leases)} permits out"
            for reason, one in allowances.items()
        }
        # Nodes that went another way do not take their wishes back.
        known = {*allowance.count.standing}
        standing = [one for one in self._state.asked if one.claim_uid in known or not allowance.read]
        wishes = sorted(standing, key=lambda one: (one.since, one.claim_uid))
        granted: list[PermitAsked] = []
        for wish in wishes:
            # A budget counts every node that goes, for whichever reason.
            if wish.reason in room and len(granted) < room[wish.reason]:
                granted.append(wish)
        going = {one.claim_uid for one in granted}
        waiting = [one for one in wishes if one.claim_uid not in going]
        until = now + LEASE
        permits = (
            Permit(claim_name=one.claim_name, claim_uid=one.claim_uid, reason=one.reason, until=until)
            for one in granted
        )
        answers = [(one, PermitAnswered(granted=True, reason=one.reason, until=until)) for one in granted]
        read = [one for one in waiting if one.reason in why]
        untold = [one for one in read if one.claim_uid not in self._state.refused]
        answers += [
            (one, PermitAnswered(granted=False, reason=one.reason, blocked_by=why[one.reason])) for one in untold
        ]
        self._change(
            permits=(*leases, *permits),
            asked=tuple(waiting),
            refused=tuple(one.claim_uid for one in read),
            blocked_by=why[read[0].reason] if read else "",
        )
        await asyncio.gather(*(self._answer(one, answer) for one, answer in answers))

    async def _allowance(self, reason: DisruptionReason) -> Allowance:
        try:
            return await workflow.execute_activity_method(
                PoolActivities.read_allowance,
                PoolAsked(name=self._state.name, reason=reason),
                **named(PATCH, "read the budget"),
            )
        except ActivityError as error:
            return Allowance(allowed=0, read=False, why=f"the budget could not be read: {error.cause or error}")

    async def _answer(self, wish: PermitAsked, answer: PermitAnswered) -> None:
        """A node that is gone needs no answer; its lease lapses."""
        try:
            await workflow.get_external_workflow_handle(wish.workflow_id).signal("permitted", answer)
        except ApplicationError:
            self.withdrawn(PermitWithdrawn(claim_uid=wish.claim_uid))

    def _paused(self, now: datetime) -> str:
        pause = self._state.pause
        if pause is None or now >= pause.until:
            return ""
        return f"NodePool {self._state.name} is paused by {pause.by} until {pause.until.isoformat()}: {pause.reason}"

    def _change(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _roll_due(self) -> bool:
        info = workflow.info()
        return info.is_continue_as_new_suggested() or info.get_current_history_length() >= ROLL_AT_EVENTS

    def _describe(self) -> None:
        paused = self._paused(workflow.now())
        workflow.set_current_details(details.of_pool(self._state, paused, self._replicas.waits_for(paused)))
