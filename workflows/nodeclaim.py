"""A NodeClaim's whole life, one durable workflow: launch, register, initialize, ready, drain, terminate.

The watch starts it by signal, whoever made the NodeClaim. Each phase is one file in `phases/` and answers with the
phase that follows; `tenure/policy/lifecycle/transitions.py` has the table of what may follow what.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from tenure.model.disruption.commands import PermitRecalled
from tenure.model.interruption.notices import Notices
from tenure.model.launch import Launched
from tenure.model.nodeclaim_history import Told
from tenure.model.nodeclaim_state import ClaimOutcome, ClaimState, Phase
from tenure.model.observations import ClaimSeen
from tenure.model.signals import GroupAnswered, PermitAnswered
from tenure.policy.interruption.decision import drained_for, words
from tenure.policy.lifecycle.repair import noted
from workflows import current_details
from workflows.approvals import Answering
from workflows.nodeclaim_context import Life, RollOver
from workflows.pausable import Braked
from workflows.phases.background_status import (
    keep_time,
    last_words,
    note_absence,
    tell_absences,
    tell_drift,
    tell_overdue,
)
from workflows.phases.drain import drain
from workflows.phases.failure import tell_replaced
from workflows.phases.initialization import initialization
from workflows.phases.interruption import note_notices, record_events, settle, tell_notices
from workflows.phases.launch import launch
from workflows.phases.pause import brake_of, give_back
from workflows.phases.ready import ready
from workflows.phases.recovery import stands
from workflows.phases.registration import registration
from workflows.phases.termination import termination

PHASES: dict[Phase, Callable[[Life], Awaitable[Phase]]] = {
    Phase.LAUNCH: launch,
    Phase.REGISTRATION: registration,
    Phase.INITIALIZATION: initialization,
    Phase.READY: ready,
    Phase.DRAIN: drain,
    Phase.TERMINATION: termination,
}


@workflow.defn
class NodeClaimWorkflow(Braked, Answering):
    @workflow.init
    def __init__(self, state: ClaimState) -> None:
        self._life = Life(state)
        self._brake = brake_of(self._life)

    @workflow.run
    async def run(self, state: ClaimState) -> ClaimOutcome:
        life = self._life
        life.begin()
        tellers = (tell_drift, tell_absences, tell_overdue, tell_notices, record_events, keep_time)
        beside = [asyncio.create_task(tell(life)) for tell in tellers]
        beside.append(asyncio.create_task(self._brake.keep()))
        try:
            while life.state.phase is not Phase.GONE:
                try:
                    following = await PHASES[life.state.phase](life)
                except ActivityError as error:
                    await life.stumble(error)
                else:
                    life.enter(following, _cause(life.state, following))
                    await tell_replaced(life)
            await last_words(life)
        except RollOver:
            await workflow.wait_condition(
                lambda: workflow.all_handlers_finished() and not life.telling and not self._brake.busy
            )
            # Temporal hands on the memo of the first run alone.
            carried = life.state.model_copy(update={"keeps_records": True})
            workflow.continue_as_new(carried, memo=workflow.memo())
        finally:
            for task in beside:
                task.cancel()
        return _outcome(life.state)

    @workflow.signal(description="From the watch: the NodeClaim and its Node as they are now")
    async def seen(self, seen: ClaimSeen) -> None:
        """What the watch saw. Older observations are dropped, and that the NodeClaim is gone is not taken on trust."""
        if self._is_news(seen) and (seen.exists or not await stands(self._life)) and self._is_news(seen):
            known = self._life.state
            note_absence(self._life, seen)
            self._life.change(
                seen=self._remembered(seen),
                unready_since=self._unready_since(seen),
                looks=0 if seen.node_ready else known.looks,
                health=noted(known, seen.unhealthy, seen.rules, workflow.now()),
                expected=known.expected or seen.expected,
            )
            settle(self._life)
            if self._life.state.seen.rules != known.seen.rules:
                self._life.retime()
            if seen.exists:
                self._brake.see(seen.pause)

    def _remembered(self, seen: ClaimSeen) -> ClaimSeen:
        """A watch that just began does not know since when a node is empty; its time runs on. Rules outlive the
        NodeClaim."""
        before, seen = self._life.state.seen, seen.model_copy(update={"expected": None})
        if not seen.exists:
            known = ("rules", "event_policies", "events_unread")
            return seen.model_copy(update={name: getattr(before, name) for name in known})
        if seen.empty_since_unseen and before.empty and before.empty_since:
            return seen.model_copy(update={"empty_since": before.empty_since})
        return seen

    def _unready_since(self, seen: ClaimSeen) -> datetime | None:
        return None if seen.node_ready or not seen.node_name else self._life.state.unready_since or workflow.now()

    def _is_news(self, seen: ClaimSeen) -> bool:
        return seen.number > self._life.state.seen.number

    @workflow.signal(description="From the launch: the instance, or why there is none")
    def answered(self, answer: GroupAnswered) -> None:
        """What the launch group was answered; only the first answer counts."""
        state = self._life.state
        if state.launched or (state.refused and state.refused.final):
            return
        if isinstance(answer.result, Launched):
            self._life.change(launched=answer.result)
        else:
            self._life.change(refused=answer.result)

    @workflow.signal(description="From its NodePool: a permit to go, or why not now")
    def permitted(self, answer: PermitAnswered) -> None:
        if self._life.state.permit_asked:
            self._life.change(permit=answer)

    @workflow.signal(description="From its NodePool: the permit is called back")
    def recalled(self, recalled: PermitRecalled) -> None:
        """Its NodePool called the permit back: what has not begun does not begin."""
        give_back(self._life, recalled.why)

    @workflow.signal(description="From AWS: what it announced of the instance")
    def noticed(self, notices: Notices) -> None:
        """What AWS says of its instance; repeats and any order are harmless."""
        note_notices(self._life, notices)

    @workflow.query(description="All that the workflow knows")
    def state(self) -> ClaimState:
        return self._life.state

    @workflow.query(description="Why the node is where it is, in words, and how it came there")
    def told(self) -> Told:
        return current_details.told(self._life.state)


def _cause(state: ClaimState, phase: Phase) -> str:
    """The line of the story for entering a phase."""
    launched = state.launched
    if state.phase is Phase.LAUNCH and phase in (Phase.INITIALIZATION, Phase.READY):
        return f"{state.node_name} was there already"
    match phase:
        case Phase.REGISTRATION if launched:
            return f"{launched.instance_type} {launched.capacity_type} in {launched.zone}"
        case Phase.INITIALIZATION:
            return f"{state.node_name} joined" if not state.initialized else f"{state.node_name} rebooted"
        case Phase.READY if state.phase is Phase.DRAIN:
            return "the drain was given up"
        case Phase.READY:
            return "initialized"
        case Phase.DRAIN | Phase.TERMINATION:
            event = drained_for(state)
            return f"{state.disruption}: {words(event)}" if event else state.disruption
        case _:
            return "instance gone"


def _outcome(state: ClaimState) -> ClaimOutcome:
    launched = state.launched
    return ClaimOutcome(
        name=state.identity.name,
        uid=state.identity.uid,
        reason=state.disruption,
        provider_id=launched.provider_id if launched else "",
        instance_type=launched.instance_type if launched else "",
        story=state.story,
        why=state.identity.why,
        events=current_details.announced(state),
        drift=current_details.drift(state),
        left=state.left,
    )
