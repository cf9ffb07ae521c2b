"""The number of a static pool's nodes: when the NodePool workflow takes a step towards it, and when it waits.

The watch tells how many NodeClaims stand and go. While that is what is wanted nothing happens at all; what a step could
not do is tried again when something changed, or when a pause is over that says so.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.nodepool.static_capacity import ReplicaActivities
from tenure.model.extra_capacity import ReplicasAsked, ReplicasKept
from tenure.model.observations import PoolSeen
from tenure.model.workflow_states import PoolState
from tenure.policy.static_capacity import RECENT, pause_after
from workflows.activity_options import REPLICAS, named

AFTER_A_FAULT = timedelta(minutes=1)
AT_ONCE = timedelta(seconds=1)
"""Before the rest of what one step is too short for."""
CONFIRMED = timedelta(seconds=30)
"""By then the watch has told of what a step did; else it is gone again, and nobody told of that."""


class Replicas:
    """`state` and `change` are the NodePool's; `held`: why nothing may be deleted now, and until when."""

    def __init__(
        self,
        state: Callable[[], PoolState],
        change: Callable[..., None],
        held: Callable[[], tuple[str, datetime | None]],
    ) -> None:
        self._state, self._change, self._held = state, change, held
        self._looked: PoolSeen | None = None
        self._again: datetime | None = None

    def due(self) -> bool:
        """A step is to be taken now."""
        moment = self.next()
        return moment is not None and moment <= workflow.now()

    def next(self) -> datetime | None:
        """When the next step is due; None while nothing is to be done before there is news."""
        state, now = self._state(), workflow.now()
        seen = state.seen
        if seen.static != "on" or seen.deleting or not seen.exists:
            return None
        unfinished = bool(state.replicas.plan_id)
        if not unfinished and seen.standing == seen.replicas:
            return None
        if self._looked is None or _differs(seen, self._looked):
            moment = now
        elif self._again is not None:
            moment = self._again
        else:
            return None
        return max(moment, self._held_until() or now)

    def _held_until(self) -> datetime | None:
        """The end of a pause that a person made, or of one because NodeClaims did not last."""
        state = self._state()
        if state.seen.standing > state.seen.replicas:
            return self._held()[1]
        kept = state.replicas
        if kept.plan_id or kept.made_at is None or kept.made_for != _made_for(state.seen):
            return None
        return kept.made_at + pause_after(kept.in_a_row)

    async def step(self, hold: str) -> None:
        """`hold` says why nothing may be deleted now; empty when it may."""
        before = self._state().replicas
        plan_id = before.plan_id or workflow.uuid4().hex[:12]
        seen = self._looked = self._state().seen
        self._again = None
        self._change(replicas=before.model_copy(update={"plan_id": plan_id}))
        try:
            kept = await workflow.execute_activity_method(
                ReplicaActivities.keep_replicas,
                ReplicasAsked(pool=self._state().name, plan_id=plan_id, hold=hold),
                **named(REPLICAS, f"{seen.standing} nodes, {seen.replicas} wanted"),
            )
        except ActivityError as error:
            self._again = workflow.now() + AFTER_A_FAULT
            self._remember(waits_for=f"tried again soon: {error.cause or error}"[:300])
            return
        if kept.more or not kept.waits_for:
            self._again = workflow.now() + (AT_ONCE if kept.more else CONFIRMED)
        self._learn(kept, _made_for(seen), plan_id if kept.more else "", begun=not before.plan_id)

    def _learn(self, kept: ReplicasKept, made_for: str, plan_id: str, *, begun: bool) -> None:
        self._remember(plan_id=plan_id, waits_for=kept.waits_for)
        if not kept.created:
            return
        known, now = self._state().replicas, workflow.now()
        soon = known.made_at is not None and now - known.made_at < RECENT and known.made_for == made_for
        in_a_row = (known.in_a_row if soon else 0) + int(begun or not soon)
        self._remember(made_at=now, made_for=made_for, in_a_row=in_a_row)

    def _remember(self, **fields: object) -> None:
        self._change(replicas=self._state().replicas.model_copy(update=fields))

    def waits_for(self, paused: str) -> str:
        """In words, for people; empty when nothing is missing or too much."""
        state, now = self._state(), workflow.now()
        seen = state.seen
        if seen.static == "off":
            return "the feature gate StaticCapacity, which is off"
        if seen.static != "on" or (seen.standing == seen.replicas and not state.replicas.plan_id):
            return ""
        if seen.standing > seen.replicas and paused:
            return paused
        held = self._held_until()
        if held is not None and held > now and seen.standing < seen.replicas:
            until = held.isoformat(timespec="seconds")
            return f"{until}: the last NodeClaims did not last, {state.replicas.in_a_row} times in a row"
        return state.replicas.waits_for


def _made_for(seen: PoolSeen) -> str:
    """A change of the pool or of its class makes a new beginning."""
    return f"{seen.generation} {seen.node_class_ready}"


def _differs(seen: PoolSeen, looked: PoolSeen) -> bool:
    """In what a step decides by."""
    said = {"number", "usage", "stamps", "freed"}
    return seen.model_dump(exclude=said) != looked.model_dump(exclude=said)
