"""How a roll-out of drift goes through a NodePool: in waves, watched, halted when it fails, and back where it can.

`look` is asked when something changed and at the moment that it named itself. It decides how many drifted nodes may go
beside what budgets say; `rollout_heard.py` takes in permits, answers of Prometheus, and what people say. Pure. Every
state has a moment to look again, or names what a person is to do.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError

from tenure.model.rollout import (
    Halted,
    News,
    NewsReason,
    RollBack,
    RolloutLook,
    RolloutPlan,
    RolloutSeen,
    RolloutState,
    Target,
)
from tenure.policy.rollout.plan import images_back, plan_id, planned
from tenure.policy.rollout.rules import Rules, Wave, problems_of, read
from tenure.policy.rollout.status import Health, Words, health_of, moment

STALLED: Final = timedelta(hours=24)
"""A wave in which no node goes for so long is overdue."""
SLOW: Final = timedelta(hours=1)
"""So long after its soak time a wave that cannot be ended is overdue; likewise a roll-back that does not begin."""
SETTLED: Final = timedelta(minutes=15)
"""After a change: by then all that drifts from it is known (`tenure/controller/drift.py` looks at everything every 5
min)."""
IDLE: Final = timedelta(minutes=15)
"""Between looks at a roll-out that has begun, while no node of it moves."""


def look(pool: str, state: RolloutState, seen: RolloutSeen, now: datetime) -> RolloutLook:
    """Without rules drift goes as with Karpenter, and nothing is remembered."""
    if seen.rules is None:
        return RolloutLook(state=RolloutState())
    wrong = problems_of(seen.rules, "rollout")
    if wrong:
        why = f"the LifecyclePolicy cannot be read, and nothing is rolled out until it can: {wrong[0]}"
        return RolloutLook(state=state, room=0, why=why, overdue=True)
    if seen.target is None:
        why = "what nodes are made from cannot be told: the EC2NodeClass is not resolved as it is now"
        return RolloutLook(state=state, room=0, why=why, again=now + IDLE if seen.drifted else None)
    return _Rollout(pool, state, seen, seen.target, read(seen.rules), now).look()


@dataclass
class _Rollout:
    """One look. The state is replaced as things are found."""

    pool: str
    state: RolloutState
    seen: RolloutSeen
    target: Target
    rules: Rules
    now: datetime
    news: tuple[News, ...] = ()

    def look(self) -> RolloutLook:
        self._turn_to_target()
        if self.state.finished:
            return self._answer(None)
        self._count()
        if self.state.halted is not None:
            return self._halted(self.state.halted)
        if not self.size:
            return self._without_drift()
        if self.state.wave_began is None:
            self._begin()
        health = health_of(self.rules, self.state, self.seen, self.now)
        if health.ask and self._is_watched():
            return self._answer(0, f"{self.words.wave}: its gates are asked", again=self._next(), ask=health.ask)
        if self._has_failed(health):
            return self._fail(health.failing)
        while self._complete():
            if health.failing or not self._soaked(health):
                return self._soaking(health)
            if self.state.wave >= self.last:
                return self._finish()
            self._next_wave()
        return self._going(health)

    # --- what it is about ---

    @property
    def size(self) -> int:
        """Drifted nodes, those that have gone among them."""
        return len(self.seen.drifted) + self.state.done

    @property
    def last(self) -> int:
        return len(self.rules.waves) - 1

    @property
    def wave(self) -> Wave:
        """The rules may have fewer waves by now."""
        return self.rules.waves[min(self.state.wave, self.last)]

    def goal(self, wave: Wave) -> int:
        without = self.state.discounted
        return without + wave.goal(self.size - without)

    def _turn_to_target(self) -> None:
        """A newer target starts over with the first wave; one that ran well before is trusted."""
        if self.state.target is None:
            self.state = _restored(self.seen)
        known = self.state
        if known.target == self.target:
            return
        first = known.target is None and known.good is None
        good = self.target if first and not self.seen.drifted else known.good
        if known.target is not None and not known.finished and (known.granted_at or known.halted):
            back = " That ran well before: what differs goes by budgets alone." if good == self.target else ""
            self._tell("RolloutSuperseded", f"{self.words.what} is superseded after {known.done} nodes.{back}")
        self.state = RolloutState(
            target=self.target,
            good=good,
            finished=good == self.target,
            began=self.now,
            counted_from=self.now,
            plans=known.plans,
        )

    def _count(self) -> None:
        """Of those that got permits some are gone, and some have given theirs back."""
        drifted, out = {*self.seen.drifted}, {*self.seen.out}
        moving = tuple(uid for uid in self.state.moving if uid in drifted and uid in out)
        gone = sum(uid not in drifted for uid in self.state.moving)
        if moving != self.state.moving:
            self._change(moving=moving, done=self.state.done + gone)

    def _begin(self) -> None:
        self._change(wave_began=self.now)
        self._tell("RolloutBegan", f"{self.words.what} begins: {self.size} nodes have drifted, {self.last + 1} waves")

    def _without_drift(self) -> RolloutLook:
        """Nodes that are there and have not drifted for a while are what is asked for: it changed nothing for them."""
        settled = (self.state.began or self.now) + SETTLED
        if self.seen.new and self.now >= settled:
            self._change(finished=True, good=self.target)
            return self._answer(None)
        looks = [settled] if self.seen.new else []
        looks += [self.now + self.rules.every] if self.seen.wished else []
        return self._answer(0, "no drifted node is seen yet", again=min(looks, default=None))

    # --- waves ---

    def _complete(self) -> bool:
        """All of the wave are gone. One that left no new node behind has shown nothing: as many go again."""
        if self.state.moving:
            return False
        if not self.seen.drifted or self.state.soaking_since is not None:
            return True
        if self.state.done >= self.goal(self.wave) and not self.seen.new:
            self._change(discounted=self.state.done)
        return self.state.done >= self.goal(self.wave)

    def _is_watched(self) -> bool:
        """Whether it matters now what Prometheus says."""
        plan, needed = self.state.plan, self.rules.approvers
        may_go = self.seen.wished and (not needed or (plan is not None and plan.approved))
        return bool(self.state.moving or self.state.failing_since or may_go or self._complete())

    def _soaked(self, health: Health) -> bool:
        if self.state.soaking_since is None:
            self._change(soaking_since=self.now)
            if self.wave.soak:
                until = moment(self.now + self.wave.soak)
                self._tell("RolloutWaveSoaks", f"{self.words.wave} is watched until {until}")
        since = self.state.soaking_since or self.now
        return self.now >= since + self.wave.soak and not (health.unknown or health.ask)

    def _next_wave(self) -> None:
        """Those whose goal is reached already have nothing to show."""
        self._tell("RolloutWaveDone", f"{self.words.wave} is done: {self.words.progress}")
        after = self.state.wave + 1
        while after < self.last and self.goal(self.rules.waves[after]) <= self.state.done:
            after += 1
        self._change(wave=after, wave_began=self.now, soaking_since=None)

    def _finish(self) -> RolloutLook:
        self._tell("RolloutFinished", f"{self.words.what} is through: {self.words.progress}")
        self._change(finished=True, good=self.target, plan=None, answers=(), failing_since=None)
        return self._answer(None)

    def _soaking(self, health: Health) -> RolloutLook:
        """Watched, or held up by its health."""
        since = self.state.soaking_since
        if since is None:
            return self._answer(0, f"{self.words.wave} is held: {health.failing}", again=self._next())
        end = since + self.wave.soak
        why = f"{self.words.wave} is watched until {moment(end)}"
        if self.now >= end:
            why = f"{self.words.wave} cannot be ended: {health.unknown}"
        again = min(self._next(), end) if end > self.now else self._next()
        return self._answer(0, why, again=again, overdue=self.now >= end + SLOW)

    def _going(self, health: Health) -> RolloutLook:
        """Nodes of the wave may go, unless something holds it."""
        goal, plan = self.goal(self.wave), self._planned()
        active = bool(self.seen.wished or self.state.moving or self.state.failing_since)
        since = max(filter(None, (self.state.wave_began, self.state.granted_at)), default=self.now)
        overdue = active and self.now >= since + STALLED
        again = self._next_going(plan, active)
        if not plan.approved:
            why = self.words.waits_for(plan, goal - self.state.done)
            return self._answer(0, why, again=again, overdue=overdue)
        held = health.failing or health.unknown or ("its gates are asked when a node is to go" if health.ask else "")
        if held:
            return self._answer(0, f"{self.words.wave} is held: {held}", again=again, overdue=overdue)
        room = max(0, goal - self.state.done - len(self.state.moving))
        return self._answer(room, self.words.goes(goal, plan), again=again, overdue=overdue)

    def _next_going(self, plan: RolloutPlan, active: bool) -> datetime | None:
        """Often while nodes move or wait to, now and then once it has begun, else when the plan ends."""
        looks = [plan.until] if plan.approvers else []
        if active:
            looks.append(self._next())
        elif self.state.granted_at is not None:
            looks.append(self.now + IDLE)
        return min(looks, default=None)

    def _planned(self) -> RolloutPlan:
        plan = planned(self.pool, self.state, self.target, self.rules, self.size, self.now)
        if plan != self.state.plan:
            self._change(plan=plan, plans=self.state.plans + 1)
            if plan.approvers:
                self._tell("RolloutWaits", self.words.waits_for(plan, self.goal(self.wave) - self.state.done))
        return plan

    # --- failure ---

    def _has_failed(self, health: Health) -> bool:
        """Only what goes on for a time, and only once a node was touched: before, it merely keeps it from beginning."""
        if not health.failing or self.state.granted_at is None:
            self._change(failing_since=None)
            return False
        since = self.state.failing_since or self.now
        # The soak begins anew once it is well again.
        self._change(failing_since=since, soaking_since=None)
        return self.now >= since + self.rules.failing_for

    def _fail(self, why: str) -> RolloutLook:
        back, _ = images_back(self.state)
        rolls = self.rules.rolls_back and bool(back)
        plan = plan_id(self.pool, self.state, self.target)
        halted = Halted(why=why, since=self.now, plan=plan, rolling_back=rolls)
        self._change(halted=halted, failing_since=None, plans=self.state.plans + 1)
        self._tell("RolloutRollsBack" if rolls else "RolloutHalted", self.words.halted(halted), warning=True)
        return self._halted(halted)

    def _halted(self, halted: Halted) -> RolloutLook:
        back, _ = images_back(self.state)
        why = self.words.halted(halted)
        if not halted.rolling_back or not back:
            return self._answer(0, why, overdue=True)
        rolls = RollBack(node_class=self.target.node_class, images=back, why=halted.why)
        overdue = self.now >= halted.since + SLOW
        return self._answer(0, why, again=self.now + self.rules.every, roll_back=rolls, overdue=overdue)

    def _next(self) -> datetime:
        failed = self.state.failing_since and self.state.failing_since + self.rules.failing_for
        return min(self.now + self.rules.every, failed or self.now + self.rules.every)

    @property
    def words(self) -> Words:
        return Words(self.state, self.target, self.rules, self.size)

    def _tell(self, reason: NewsReason, message: str, *, warning: bool = False) -> None:
        self.news = (*self.news, News(reason=reason, message=message, warning=warning))

    def _change(self, **fields: object) -> None:
        self.state = self.state.model_copy(update=fields)

    def _answer(self, room: int | None, why: str = "", **more: Any) -> RolloutLook:
        return RolloutLook(state=self.state, room=room, why=why, news=self.news, **more)


def _restored(seen: RolloutSeen) -> RolloutState:
    """What the NodePool itself carries, with those that are on their way; nothing where it cannot be read."""
    try:
        kept = RolloutState.model_validate_json(seen.kept) if seen.kept else RolloutState()
    except ValidationError:
        return RolloutState()
    return kept if kept.finished or kept.target is None else kept.model_copy(update={"moving": seen.out})
