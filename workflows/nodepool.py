"""NodePool: keeps the pool's status, and a static pool's number of nodes; hands out permits for voluntary disruption.

Launch, interruption, drain and clean-up never ask here, so a pool in trouble freezes only its own voluntary steps.
`permits.py` has the permits, `brakes.py` its pauses, `replicas.py` the nodes of a static pool.
"""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodepool.status import PoolActivities
from tenure.model.disruption.commands import PermitRecalled
from tenure.model.disruption.permits import BookAnswered, Went
from tenure.model.nodeclaim_requests import PoolAsked
from tenure.model.observations import PoolSeen, StartEnded
from tenure.model.operator_requests import MirrorAsked
from tenure.model.signals import PermitAsked, PermitWithdrawn
from tenure.model.workflow_states import PoolState
from tenure.policy.disruption.limits import longest_rate
from tenure.policy.disruption.permits import merged
from tenure.policy.lifecycle.pauses import again_at, found_in, holds, words
from tenure.policy.nodepool import added
from workflows import current_details
from workflows.activity_options import PATCH, named, roll_due
from workflows.approvals import Approving
from workflows.disruption.permits import Permits
from workflows.pausable import Brake, Braked
from workflows.rollout import Rollouts
from workflows.static_capacity import Replicas


@workflow.defn
class NodePoolWorkflow(Braked, Approving):
    @workflow.init
    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._told = PoolSeen()
        self._failed_anew = False
        """A NodeClaim failed to start since the status was last written."""
        target = MirrorAsked(kind="NodePool", name=state.name)
        self._brake = Brake(lambda: target, lambda: self._state, self._change, changed=self._braked, note=self._note)
        self._rollouts = Rollouts(lambda: self._state, self._change, opened=lambda: self._permits.look_again())
        self._permits = Permits(lambda: self._state, self._change, self._held, self._rollouts)
        self._replicas = Replicas(lambda: self._state, self._change, self._held)

    @workflow.run
    async def run(self, state: PoolState) -> None:
        beside = [asyncio.create_task(task) for task in (self._brake.keep(), self._permits.call_back())]
        try:
            while self._state.seen.exists:
                await self._turn()
        finally:
            for task in beside:
                task.cancel()

    async def _turn(self) -> None:
        self._describe()
        await self._news()
        if self._state.seen != self._told or self._failed_anew:
            if not self._failed_anew and self._state.seen.is_room_alone(self._told):
                self._told = self._state.seen
            else:
                await self._status()
            self._permits.look_again()
        if self._replicas.due():
            await self._replicas.step(self._held()[0])
        if self._rollouts.due():
            await self._rollouts.step()
        await self._permits.step()
        if roll_due():
            await workflow.wait_condition(
                lambda: workflow.all_handlers_finished() and not (self._brake.busy or self._permits.calling)
            )
            workflow.continue_as_new(self._state)

    @workflow.signal(description="From the watch: the NodePool as it is now")
    def seen(self, seen: PoolSeen) -> None:
        if seen.number <= self._state.seen.number:
            return
        before = self._state.seen
        self._change(seen=seen)
        if not seen.exists:
            return
        self._brake.see(seen.pause)
        if seen.cluster_pause != before.cluster_pause:
            self._braked()

    @workflow.signal(description="From a node: may it go?")
    def asked(self, asked: PermitAsked) -> None:
        self._permits.ask(asked)

    @workflow.signal(description="From a node: it needs its permit no more, or has used it")
    def withdrawn(self, withdrawn: PermitWithdrawn) -> None:
        self._permits.withdraw(withdrawn)

    @workflow.signal(description="From a node that was paused: its permits are void")
    def recall(self, recalled: PermitRecalled) -> None:
        """One of its NodeClaims is paused: whoever has a permit for it gives it back."""
        self._permits.recall(recalled.why, recalled.claim_uid)

    @workflow.signal(description="From the Cluster workflow: how many permits may be given")
    def booked(self, answer: BookAnswered) -> None:
        self._permits.booked(answer)

    @workflow.signal(description="From a node: it never joined the cluster")
    def start_failed(self, failed: StartEnded) -> None:
        """One of its NodeClaims never came to be a Node."""
        self._change(registrations=added(self._state.registrations, (failed,)))
        self._failed_anew = True

    @workflow.query(description="All that the workflow knows")
    def state(self) -> PoolState:
        return self._state

    @workflow.query(description="Who holds disruption of its nodes: the pauses of the NodePool and of the cluster")
    def pauses(self) -> tuple[str, ...]:
        return current_details.pauses(self._state, workflow.now())

    async def _news(self) -> None:
        """Sleep until something changed; while wishes wait, also until the budget is due for another look."""
        budget = self._permits.next
        moments = [one for one in (budget, self._replicas.next(), self._rollouts.next()) if one is not None]
        try:
            await workflow.wait_condition(
                lambda: (
                    self._state.seen != self._told
                    or self._failed_anew
                    or self._permits.news
                    or self._replicas.due()
                    or self._rollouts.due()
                    or roll_due()
                ),
                timeout=max(min(moments) - workflow.now(), timedelta(0)) if moments else None,
                timeout_summary="look at the budget again" if budget else "before the next step to spec.replicas",
            )
        except TimeoutError:
            return

    async def _status(self) -> None:
        self._told, self._failed_anew = self._state.seen, False
        if not self._told.exists:
            return
        span = longest_rate(self._told.rules, self._told.unread)
        asked = PoolAsked(
            name=self._state.name,
            gate_off=self._told.static == "off",
            registrations=self._state.registrations,
            went=Went(over=span, past=self._state.past, permits=self._state.permits) if span else Went(),
        )
        try:
            written = await workflow.execute_activity_method(
                PoolActivities.update_pool, asked, **named(PATCH, "write the status")
            )
            if written.registrations:
                # What failed meanwhile counts too.
                self._change(registrations=added(written.registrations, self._state.registrations.outcomes))
            if written.went.past:
                past = merged(written.went.past, self._state.past, since=workflow.now() - span)
                self._change(past=past)
        except ActivityError as error:
            self._change(blocked_by=f"the status could not be written: {error.cause or error}"[:200])

    def _held(self) -> tuple[str, datetime | None]:
        """Why no node of the pool goes voluntarily for now, and until when; empty when nothing keeps them."""
        now, state = workflow.now(), self._state
        whole = found_in(state.seen.cluster_pause)
        if whole and holds(whole, now):
            return f"the cluster {words(whole)}", again_at(whole)
        return self._brake.words(now), again_at(state.pause)

    def _braked(self) -> None:
        """It is paused, or goes on: what has not begun stops, and who waits is told why."""
        held, _ = self._held()
        if held:
            self._permits.recall(held)
        self._permits.look_again(told_anew=True)
        self._describe()

    def _change(self, **fields: object) -> None:
        self._state = self._state.model_copy(update=fields)

    def _note(self) -> str:
        return "Permits that were out are called back; nodes whose NodeClaim is being deleted go on"

    def _describe(self) -> None:
        held, _ = self._held()
        waits_for = self._replicas.waits_for(held)
        workflow.set_current_details(current_details.of_pool(self._state, held, waits_for, self._rollouts.words))
