"""The roll-out of drift through a NodePool: when its workflow looks, whom it asks, and how many drifted nodes may go.

`tenure/policy/rollout/decision.py` decides on what `activities/nodepool/rollout.py` sees. While no node drifts, or
no LifecyclePolicy speaks of
roll-outs, nothing happens here at all. `permits.py` asks `narrow` before it gives permits for Drifted.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodeclass import NodeClassActivities
from activities.nodepool.rollout import GateActivities, RolloutActivities
from tenure.model.rollout import (
    ApproveRollout,
    Gate,
    GateAnswer,
    News,
    PinAsked,
    RejectRollout,
    RollBack,
    RolloutAsked,
    RolloutLook,
    RolloutSeen,
    RolloutState,
    RolloutTold,
)
from tenure.model.signals import Verdict
from tenure.model.workflow_states import PoolState
from tenure.policy.disruption.budgets import Allowance
from tenure.policy.rollout.decision import look
from tenure.policy.rollout.plan import approve, granted, heard, refusal_of, reject
from workflows import metrics, search_attributes, visibility
from workflows.activity_options import GATE, LOOK, PATCH, RESOLVE, named

PINNED_FOR: Final = timedelta(days=30)
"""Then an image that failed is tried once more, beginning with the first wave."""
FRESH: Final = timedelta(minutes=1)
"""For so long a look that let no node go need not be repeated for every wish."""
AFTER_A_FAULT: Final = timedelta(minutes=1)
HEALTH: Final = "the health of the roll-out"


class Rollouts:
    """`state` and `change` are the NodePool's; `opened` is called when wishes for Drifted may be granted now."""

    def __init__(
        self, state: Callable[[], PoolState], change: Callable[..., None], *, opened: Callable[[], None]
    ) -> None:
        self._state, self._change, self._opened = state, change, opened
        self._last: RolloutLook | None = None
        self._at: datetime | None = None
        """Of the last look."""
        self._again: datetime | None = None
        self._base: tuple[object, ...] = ()
        """Of the NodePool, as it was then."""
        self._anew = True
        self._wished = False
        self._news: tuple[News, ...] = ()
        """Told with the next look."""

    # --- what is heard ---

    def check(self, said: ApproveRollout | RejectRollout) -> None:
        """Raises ValueError with the reason where this cannot be done."""
        if refused := refusal_of(self._state().rollout, said, workflow.now()):
            raise ValueError(refused)

    def approve(self, said: ApproveRollout) -> Verdict:
        if refused := refusal_of(self._state().rollout, said, workflow.now()):
            return self._refuse(said, refused)
        self._remember(approve(self._state().rollout, said, workflow.now()))
        plan = self._state().rollout.plan
        waits = plan is not None and plan.id == said.plan and not plan.approved
        message = f"plan {said.plan} is approved by {said.by}" + (", and waits for others" if waits else "")
        return self._heard(News(reason="RolloutApproved", message=_with(message, said.reason)))

    def reject(self, said: RejectRollout) -> Verdict:
        if refused := refusal_of(self._state().rollout, said, workflow.now()):
            return self._refuse(said, refused)
        self._remember(reject(self._state().rollout, said, workflow.now()))
        back = ", and the last good image is taken again" if said.roll_back else ""
        message = _with(f"plan {said.plan} is rejected by {said.by}{back}", said.reason)
        return self._heard(News(reason="RolloutRejected", message=message, warning=True))

    def granted(self, uids: Iterable[str]) -> None:
        """These NodeClaims got permits for Drifted."""
        self._remember(granted(self._state().rollout, tuple(uids), workflow.now()))

    def _heard(self, news: News) -> Verdict:
        self._news = (*self._news, news)
        self._anew = True
        return Verdict(message=news.message)

    def _refuse(self, said: ApproveRollout | RejectRollout, why: str) -> Verdict:
        """A signal has no answer: it is told as an event."""
        self._heard(News(reason="RolloutRefused", message=f"{said.by or 'nobody'}: {why}", warning=True))
        return Verdict(accepted=False, message=why)

    # --- when something is due ---

    def due(self) -> bool:
        """A look is to be taken now."""
        moment = self.next()
        return moment is not None and moment <= workflow.now()

    def next(self) -> datetime | None:
        """When; None while nothing is to be done before there is news."""
        state = self._state()
        if not state.seen.exists:
            return None
        if state.seen.rollout is None:
            # Rules that cannot be read are not gone: what the roll-out has come to is kept for when they can.
            over = state.rollout != RolloutState() and not state.seen.unread.rollout
            return workflow.now() if over else None
        return workflow.now() if self._anew or self._base != self._basis() else self._again

    def _basis(self) -> tuple[object, ...]:
        """What a look may find something new by. Its nodes are none of it while no roll-out goes on."""
        state = self._state()
        seen, rollout = state.seen, state.rollout
        fixed = (seen.rollout, seen.generation, seen.node_class, seen.node_class_ready, seen.class_generation)
        return fixed if rollout.finished else (*fixed, seen.usage, state.registrations.outcomes)

    # --- what is done ---

    async def step(self) -> None:
        """Look, and say so where more may go now."""
        before = self._last.room if self._last else 0
        if self._state().seen.rollout is None:
            await self._end()
            return
        wishes = any(one.reason == "Drifted" for one in self._state().asked)
        found = await self._look(wished=self._wished and wishes)
        if wishes and before is not None and (found.room is None or found.room > before):
            self._opened()

    async def narrow(self, allowance: Allowance, *, held: str = "") -> Allowance:
        """What budgets leave to drift, and the roll-out's waves of that; `held`: why nothing goes at all.

        Permits that are out and not used yet are taken off again by who decides, as for budgets."""
        state = self._state()
        if state.seen.rollout is None:
            return allowance
        found = await self._room(wished=allowance.allowed > 0 and not held)
        if found.room is None:
            return allowance
        unused = {*allowance.count.standing} - {*allowance.count.consuming}
        now = workflow.now()
        left = found.room + sum(one.counts_until > now and one.claim_uid in unused for one in self._state().permits)
        if left >= allowance.allowed:
            return allowance
        return allowance.model_copy(update={"allowed": left, "why": found.why})

    @property
    def words(self) -> str:
        """For people: what goes on, or what it waits for; empty when nothing does."""
        return self._last.why if self._last and self._state().seen.rollout else ""

    @property
    def overdue(self) -> bool:
        return bool(self._last and self._last.overdue)

    async def _room(self, *, wished: bool) -> RolloutLook:
        """Of the last look, where it was just now and let nobody go."""
        last, now = self._last, workflow.now()
        fresh = last is not None and self._at is not None and now - self._at < FRESH
        if fresh and last is not None and last.room == 0 and not self.due() and wished <= self._wished:
            return last
        self._wished = wished
        return await self._look(wished=wished)

    async def _look(self, *, wished: bool) -> RolloutLook:
        self._anew, self._base = False, self._basis()
        try:
            seen = await self._seen(wished)
        except ActivityError as error:
            why = f"its roll-out could not be looked at: {error.cause or error}"[:300]
            found = RolloutLook(state=self._state().rollout, room=0, why=why, again=workflow.now() + AFTER_A_FAULT)
            return self._keep(found)
        # A NodePool that changes during a look and changes back needs another look.
        self._anew = self._anew or self._base != self._basis()
        found = self._decide(seen)
        if found.ask:
            answers = await asyncio.gather(*(self._ask(gate) for gate in found.ask))
            self._remember(heard(self._state().rollout, tuple(answers)))
            found = self._decide(seen)
        await self._tell(seen.kept)
        if found.roll_back is not None:
            await self._roll_back(found.roll_back)
        return self._keep(found)

    async def _seen(self, wished: bool) -> RolloutSeen:
        """With what the workflow itself knows."""
        rules = self._state().seen.rollout
        pods = bool(rules and rules.health and rules.health.pods_ready)
        seen: RolloutSeen = await workflow.execute_activity_method(
            RolloutActivities.look_at_rollout,
            RolloutAsked(name=self._state().name, pods=pods),
            **named(LOOK, "how the roll-out goes"),
        )
        state, now = self._state(), workflow.now()
        permits = {one.claim_uid for one in state.permits if one.counts_until > now and one.reason == "Drifted"}
        since = state.rollout.counted_from
        failed = [one for one in state.registrations.outcomes if not one.registered and since and one.at >= since]
        known = {"rules": state.seen.rollout, "wished": wished, "failed_starts": len(failed)}
        return seen.model_copy(update={**known, "out": tuple(sorted({*seen.out, *permits}))})

    def _decide(self, seen: RolloutSeen) -> RolloutLook:
        found = look(self._state().name, self._state().rollout, seen, workflow.now())
        self._remember(found.state)
        self._news = (*self._news, *found.news)
        for one in found.news:
            metrics.count_rollout(self._state().name, one.reason)
        return found

    async def _ask(self, gate: Gate) -> GateAnswer:
        """Whatever fails is an answer that holds."""
        try:
            answer: GateAnswer = await workflow.execute_activity_method(
                GateActivities.ask_gate, gate, **named(GATE, f"ask {gate.name}"[:100])
            )
        except ActivityError as error:
            answer = GateAnswer(outcome="unknown", why=f"it could not be asked: {error.cause or error}"[:200])
        return answer.model_copy(update={"gate": gate.id, "at": workflow.now()})

    async def _tell(self, written: str) -> None:
        """Events, and the state onto the NodePool; what cannot be written now is with the next look."""
        kept, news = _kept(self._state().rollout), self._news
        if kept == written and not news:
            return
        try:
            told = RolloutTold(name=self._state().name, news=news, kept=kept)
            await workflow.execute_activity_method(
                RolloutActivities.tell_rollout, told, **named(LOOK, "tell of the roll-out")
            )
            self._news = self._news[len(news) :]
        except ActivityError:
            return

    async def _roll_back(self, back: RollBack) -> None:
        """Tried again with the next look while the class has not got it."""
        halted = self._state().rollout.halted
        by = (halted and halted.by) or HEALTH
        asked = PinAsked(node_class=back.node_class, images=back.images, by=by, why=back.why, lasts=PINNED_FOR)
        try:
            await workflow.execute_activity_method(
                NodeClassActivities.pin_images, asked, **named(RESOLVE, f"take {' '.join(back.images.values())} again")
            )
        except ActivityError:
            return

    async def _end(self) -> None:
        """The rules are gone, and the state with them."""
        self._remember(RolloutState())
        self._keep(RolloutLook(state=RolloutState()))
        self._news, self._anew = (), True
        told = RolloutTold(name=self._state().name)
        await workflow.execute_activity_method(
            RolloutActivities.tell_rollout, told, **named(PATCH, "the roll-out is over")
        )
        self._opened()

    def _keep(self, found: RolloutLook) -> RolloutLook:
        self._last, self._at, self._again = found, workflow.now(), found.again
        self._show()
        if found.state.finished:
            self._base = self._basis()
        return found

    def _show(self) -> None:
        """One that waits for a person is found as nodes are."""
        shown = workflow.info().typed_search_attributes
        known = (bool(shown.get(search_attributes.OVERDUE)), shown.get(search_attributes.BLOCKED_BY))
        wanted = visibility.of_rollout(self.overdue, self.words)
        if known != tuple(one.value for one in wanted) and (self.overdue or known[0]):
            workflow.upsert_search_attributes(wanted)

    def _remember(self, rollout: RolloutState) -> None:
        if rollout != self._state().rollout:
            self._change(rollout=rollout)


def _kept(state: RolloutState) -> str:
    """What a workflow that has lost its state takes up: not what the next look finds by itself."""
    found = state.model_copy(update={"moving": (), "answers": (), "failing_since": None})
    return found.model_dump_json(exclude_defaults=True) if found != RolloutState() else ""


def _with(message: str, reason: str) -> str:
    return f"{message}: {reason}" if reason else message
