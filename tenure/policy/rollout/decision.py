"""Rollouts of drift in a NodePool: waves, health checks, halt on failure, and rollback if possible.

The caller evaluates a rollout after changes, and at the time that the last decision states. The decision limits how
many drifted nodes may be disrupted, in addition to budgets. Every state has a time for the next decision, or names the
operator's action.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError

from tenure.model.rollout import (
    ObservedRollout,
    RollBack,
    RolloutDecision,
    RolloutEvent,
    RolloutEventReason,
    RolloutHalt,
    RolloutPlan,
    RolloutState,
    RolloutTarget,
)
from tenure.policy.rollout.plan import images_back, plan_id, plan_wave
from tenure.policy.rollout.rules import Rules, Wave, problems_of, resolve_rules
from tenure.policy.rollout.status import HealthStatus, RolloutText, format_timestamp, health_of

STALLED: Final = timedelta(hours=24)
"""A wave without a disrupted node for this long is overdue."""
SLOW: Final = timedelta(hours=1)
"""A wave that cannot end this long after its soak time is overdue; so is a rollback that does not start."""
SETTLED: Final = timedelta(minutes=15)
"""Time after a change until all drifted nodes are known (`tenure/controller/drift.py` checks all nodes every 5 min)."""
IDLE: Final = timedelta(minutes=15)
"""Interval between evaluations of a started rollout while none of its nodes is being replaced."""


def evaluate_rollout(pool: str, state: RolloutState, observed: ObservedRollout, now: datetime) -> RolloutDecision:
    """Without rules, there is no state, and drifted nodes are replaced as in Karpenter."""
    if observed.rules is None:
        return RolloutDecision(state=RolloutState())
    problems = problems_of(observed.rules, "rollout")
    if problems:
        why = f"the LifecyclePolicy is invalid, and rollouts wait until it is valid: {problems[0]}"
        return RolloutDecision(state=state, headroom=0, why=why, overdue=True)
    if observed.target is None:
        why = "the target is unknown: the EC2NodeClass is not resolved in its current generation"
        return RolloutDecision(state=state, headroom=0, why=why, next_check_at=now + IDLE if observed.drifted else None)
    return _RolloutEvaluation(pool, state, observed, observed.target, resolve_rules(observed.rules), now).evaluate()


@dataclass
class _RolloutEvaluation:
    pool: str
    state: RolloutState
    observed: ObservedRollout
    target: RolloutTarget
    rules: Rules
    now: datetime
    events: tuple[RolloutEvent, ...] = ()

    def evaluate(self) -> RolloutDecision:
        self._switch_target()
        if self.state.finished:
            return self._result(None)
        self._count_replaced()
        if self.state.halted is not None:
            return self._halted_result(self.state.halted)
        if not self.size:
            return self._without_drift()
        if self.state.wave_began is None:
            self._begin_rollout()
        health = health_of(self.rules, self.state, self.observed, self.now)
        if health.gates_to_query and self._is_watched():
            return self._result(
                0,
                f"{self.text.current_wave}: its gates are queried",
                next_check_at=self._next_check_at(),
                gates_to_query=health.gates_to_query,
            )
        if self._has_failed(health):
            return self._halt(health.failing)
        while self._is_wave_complete():
            if health.failing or not self._is_soaked(health):
                return self._wait_for_soak(health)
            if self.state.wave >= self.last_wave:
                return self._finish_rollout()
            self._next_wave()
        return self._proceed(health)

    # --- target and size ---

    @property
    def size(self) -> int:
        return len(self.observed.drifted) + self.state.done

    @property
    def last_wave(self) -> int:
        return len(self.rules.waves) - 1

    @property
    def current_wave(self) -> Wave:
        """The last wave if the rules now have fewer waves."""
        return self.rules.waves[min(self.state.wave, self.last_wave)]

    def wave_goal(self, wave: Wave) -> int:
        without = self.state.discounted
        return without + wave.node_goal(self.size - without)

    def _switch_target(self) -> None:
        """A new target starts with the first wave. The last good target counts as finished."""
        if self.state.target is None:
            self.state = _restore_state(self.observed)
        known = self.state
        if known.target == self.target:
            return
        first = known.target is None and known.good is None
        good = self.target if first and not self.observed.drifted else known.good
        if known.target is not None and not known.finished and (known.granted_at or known.halted):
            back = (
                " That is the last good state: budgets limit the remaining replacements." if good == self.target else ""
            )
            self._add_event("RolloutSuperseded", f"{self.text.subject} was superseded after {known.done} nodes.{back}")
        self.state = RolloutState(
            target=self.target,
            good=good,
            finished=good == self.target,
            began=self.now,
            counted_from=self.now,
            plans=known.plans,
        )

    def _count_replaced(self) -> None:
        drifted, out = {*self.observed.drifted}, {*self.observed.departing}
        moving = tuple(uid for uid in self.state.moving if uid in drifted and uid in out)
        replaced = sum(uid not in drifted for uid in self.state.moving)
        if moving != self.state.moving:
            self._update_state(moving=moving, done=self.state.done + replaced)

    def _begin_rollout(self) -> None:
        self._update_state(wave_began=self.now)
        self._add_event(
            "RolloutBegan", f"{self.text.subject} starts: {self.size} nodes have drifted, {self.last_wave + 1} waves"
        )

    def _without_drift(self) -> RolloutDecision:
        """If no existing node has drifted after SETTLED, the target did not change the nodes, so it is finished."""
        settled = (self.state.began or self.now) + SETTLED
        if self.observed.updated_nodes and self.now >= settled:
            self._update_state(finished=True, good=self.target)
            return self._result(None)
        check_times = [settled] if self.observed.updated_nodes else []
        check_times += [self.now + self.rules.every] if self.observed.is_requested else []
        return self._result(0, "no drifted node is known yet", next_check_at=min(check_times, default=None))

    # --- waves ---

    def _is_wave_complete(self) -> bool:
        """All nodes of the wave are gone. A wave that left no new node proves nothing, so it is repeated."""
        if self.state.moving:
            return False
        if not self.observed.drifted or self.state.soaking_since is not None:
            return True
        if self.state.done >= self.wave_goal(self.current_wave) and not self.observed.updated_nodes:
            self._update_state(discounted=self.state.done)
        return self.state.done >= self.wave_goal(self.current_wave)

    def _is_watched(self) -> bool:
        plan, needed = self.state.plan, self.rules.approvers
        can_proceed = self.observed.is_requested and (not needed or (plan is not None and plan.is_approved))
        return bool(self.state.moving or self.state.failing_since or can_proceed or self._is_wave_complete())

    def _is_soaked(self, health: HealthStatus) -> bool:
        if self.state.soaking_since is None:
            self._update_state(soaking_since=self.now)
            if self.current_wave.soak:
                until = format_timestamp(self.now + self.current_wave.soak)
                self._add_event("RolloutWaveSoaks", f"{self.text.current_wave} soaks until {until}")
        since = self.state.soaking_since or self.now
        return self.now >= since + self.current_wave.soak and not (health.unknown or health.gates_to_query)

    def _next_wave(self) -> None:
        self._add_event("RolloutWaveDone", f"{self.text.current_wave} is done: {self.text.wave_progress}")
        after = self.state.wave + 1
        while after < self.last_wave and self.wave_goal(self.rules.waves[after]) <= self.state.done:
            after += 1
        self._update_state(wave=after, wave_began=self.now, soaking_since=None)

    def _finish_rollout(self) -> RolloutDecision:
        self._add_event("RolloutFinished", f"{self.text.subject} is complete: {self.text.wave_progress}")
        self._update_state(finished=True, good=self.target, plan=None, gate_results=(), failing_since=None)
        return self._result(None)

    def _wait_for_soak(self, health: HealthStatus) -> RolloutDecision:
        since = self.state.soaking_since
        if since is None:
            return self._result(
                0, f"{self.text.current_wave} is blocked: {health.failing}", next_check_at=self._next_check_at()
            )
        end = since + self.current_wave.soak
        why = f"{self.text.current_wave} soaks until {format_timestamp(end)}"
        if self.now >= end:
            why = f"{self.text.current_wave} cannot end: {health.unknown}"
        check_at = min(self._next_check_at(), end) if end > self.now else self._next_check_at()
        return self._result(0, why, next_check_at=check_at, overdue=self.now >= end + SLOW)

    def _proceed(self, health: HealthStatus) -> RolloutDecision:
        goal, plan = self.wave_goal(self.current_wave), self._update_plan()
        active = bool(self.observed.is_requested or self.state.moving or self.state.failing_since)
        since = max(filter(None, (self.state.wave_began, self.state.granted_at)), default=self.now)
        overdue = active and self.now >= since + STALLED
        check_at = self._next_proceed_at(plan, active)
        if not plan.is_approved:
            why = self.text.describe_waiting(plan, goal - self.state.done)
            return self._result(0, why, next_check_at=check_at, overdue=overdue)
        blocked_by = (
            health.failing
            or health.unknown
            or ("its gates are queried before a node is replaced" if health.gates_to_query else "")
        )
        if blocked_by:
            return self._result(
                0, f"{self.text.current_wave} is blocked: {blocked_by}", next_check_at=check_at, overdue=overdue
            )
        headroom = max(0, goal - self.state.done - len(self.state.moving))
        return self._result(headroom, self.text.proceeding(goal, plan), next_check_at=check_at, overdue=overdue)

    def _next_proceed_at(self, plan: RolloutPlan, active: bool) -> datetime | None:
        check_times = [plan.until] if plan.approvers else []
        if active:
            check_times.append(self._next_check_at())
        elif self.state.granted_at is not None:
            check_times.append(self.now + IDLE)
        return min(check_times, default=None)

    def _update_plan(self) -> RolloutPlan:
        plan = plan_wave(self.pool, self.state, self.target, self.rules, self.size, self.now)
        if plan != self.state.plan:
            self._update_state(plan=plan, plans=self.state.plans + 1)
            if plan.approvers:
                self._add_event(
                    "RolloutWaits",
                    self.text.describe_waiting(plan, self.wave_goal(self.current_wave) - self.state.done),
                )
        return plan

    # --- failure ---

    def _has_failed(self, health: HealthStatus) -> bool:
        """Only a failure that lasts for `failing_for` after a first permit counts. Before that, it delays the start."""
        if not health.failing or self.state.granted_at is None:
            self._update_state(failing_since=None)
            return False
        since = self.state.failing_since or self.now
        # The soak time restarts when the rollout is healthy again.
        self._update_state(failing_since=since, soaking_since=None)
        return self.now >= since + self.rules.failing_for

    def _halt(self, why: str) -> RolloutDecision:
        back, _ = images_back(self.state)
        rolls = self.rules.rolls_back and bool(back)
        plan = plan_id(self.pool, self.state, self.target)
        halted = RolloutHalt(why=why, since=self.now, plan=plan, rolling_back=rolls)
        self._update_state(halted=halted, failing_since=None, plans=self.state.plans + 1)
        self._add_event("RolloutRollsBack" if rolls else "RolloutHalted", self.text.describe_halt(halted))
        return self._halted_result(halted)

    def _halted_result(self, halted: RolloutHalt) -> RolloutDecision:
        back, _ = images_back(self.state)
        why = self.text.describe_halt(halted)
        if not halted.rolling_back or not back:
            return self._result(0, why, overdue=True)
        rolls = RollBack(node_class=self.target.node_class, images=back, why=halted.why)
        overdue = self.now >= halted.since + SLOW
        return self._result(0, why, next_check_at=self.now + self.rules.every, roll_back=rolls, overdue=overdue)

    def _next_check_at(self) -> datetime:
        failed = self.state.failing_since and self.state.failing_since + self.rules.failing_for
        return min(self.now + self.rules.every, failed or self.now + self.rules.every)

    @property
    def text(self) -> RolloutText:
        return RolloutText(self.state, self.target, self.rules, self.size)

    def _add_event(self, reason: RolloutEventReason, message: str) -> None:
        self.events = (*self.events, RolloutEvent(reason=reason, message=message))

    def _update_state(self, **fields: object) -> None:
        self.state = self.state.model_copy(update=fields)

    def _result(self, headroom: int | None, why: str = "", **more: Any) -> RolloutDecision:
        return RolloutDecision(state=self.state, headroom=headroom, why=why, events=self.events, **more)


def _restore_state(observed: ObservedRollout) -> RolloutState:
    """The state in the NodePool's annotation, with terminating nodes as `moving`; an empty state if it is invalid."""
    try:
        restored = RolloutState.model_validate_json(observed.stored_state) if observed.stored_state else RolloutState()
    except ValidationError:
        return RolloutState()
    return (
        restored
        if restored.finished or restored.target is None
        else restored.model_copy(update={"moving": observed.departing})
    )
