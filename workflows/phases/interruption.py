"""Interrupted: what AWS says of a node's instance is remembered, told, and acted upon. Beside the phases before drain.

`tenure/policy/interruption/decision.py` decides. A node that AWS says nothing of has no event of this; one that
waits for its time
waits in its phase, by a durable timer.

Recorded: what AWS said of a node, and what was done, stands in its workflow's memo. Beside the phases.

`tenure/policy/interruption/messages.py` has the words, `tenure events` shows them. A node that AWS says nothing of
has no event of
this.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from temporalio import workflow

from activities.interruption.activities import NodeInterruptionActivities
from tenure.model.base import Value
from tenure.model.disruption.drain import DrainState, PodsHeld
from tenure.model.interruption.notices import Notice, Notices
from tenure.model.interruption.records import MEMO, EventRecord, NoticesTold
from tenure.model.nodeclaim_state import ENDING, ClaimState, Phase
from tenure.policy.interruption.decision import (
    ACTING,
    Interrupted,
    decide_event,
    decide_interruption,
    drained_for,
    expected_back,
    held_pods,
    overrides,
    overtaking,
)
from tenure.policy.interruption.events import noted, recalled, settled, written
from tenure.policy.interruption.messages import due, records_of, told
from workflows import metrics
from workflows.activity_options import PATCH, leaving, named
from workflows.nodeclaim_context import Life
from workflows.phases.background_status import whenever
from workflows.phases.failure import disrupt, ref

_PHASES = (Phase.REGISTRATION, Phase.INITIALIZATION, Phase.READY, Phase.DRAIN)


def note_notices(life: Life, told: Notices) -> None:
    """Take into the memory what came. What is said of another instance is nobody's."""
    launched = life.state.launched
    if launched is None or launched.provider_id.endswith(f"/{told.instance_id}"):
        mine = [one for one in told.notices if not _is_own(life.state, one)]
        notices = noted(life.state.notices, mine, workflow.now())
        if notices != life.state.notices:
            life.change(notices=notices)
            settle(life)
        life.note_left(told.left)


def settle(life: Life) -> None:
    """The node was seen: one that is Ready since it was stopped is back."""
    state = life.state
    if state.notices and state.seen.node_ready:
        life.change(notices=settled(state.notices, state.seen.ready_since))


def _is_own(state: ClaimState, notice: Notice) -> bool:
    """It was stopped by Tenure itself."""
    stop = state.stop
    if notice.kind != "instanceStopping" or stop is None or stop.step == "drain":
        return False
    return notice.at >= stop.since and (stop.until is None or notice.at <= stop.until)


def recall_notices(life: Life, text: str) -> None:
    """Of a life that is begun anew: what its NodeClaim says of the time before."""
    if text:
        life.change(notices=recalled(text, life.state.notices), notices_written=text)


def starting(life: Life) -> Interrupted:
    """What follows for a node that runs no pods yet: there is nobody to ask for it, and nothing to keep."""
    verdict = decide_interruption(life.state, life.now)
    return verdict if verdict.do in ("drain", "terminate", "wait") else Interrupted()


def goes(verdict: Interrupted) -> bool:
    return verdict.do in ("drain", "terminate")


def changed(life: Life) -> Callable[[], bool]:
    """Whether something else follows by now, for one that starts."""
    known = starting(life)
    return lambda: starting(life) != known


async def leave(life: Life) -> Phase:
    """The NodeClaim is deleted by its drain; what a policy holds back of its pods keeps it until then."""
    verdict = decide_interruption(life.state, life.now)
    life.change(disruption=verdict.reason, interrupted=verdict.key)
    if life.state.phase is Phase.REGISTRATION:
        await disrupt(life, reason=verdict.reason)
        return Phase.TERMINATION
    if verdict.do == "terminate":
        await disrupt(life, reason=verdict.reason, at_once=True)
    life.change(drain=DrainState(keep=True) if holding(life).held else None)
    return Phase.DRAIN


async def tell_notices(life: Life) -> None:
    """For as long as the run lasts: whenever there is something to say or to write down, do that."""
    await whenever(life, _is_news, _tell, about="what AWS says")


def _is_news(state: ClaimState) -> bool:
    if not state.notices and not state.notices_written:
        return False
    if state.phase not in _PHASES or not state.seen.exists or (state.keeps_records and leaves(state)):
        return False
    return _is_unwritten(state) or bool(due(state, workflow.now()))


def leaves(state: ClaimState) -> bool:
    """Something makes it go, and its drain is only about to begin: then all there is to say is said at once."""
    return not state.interrupted and state.phase not in ENDING and goes(decide_interruption(state, workflow.now()))


def _is_unwritten(state: ClaimState) -> bool:
    """Of a node that goes it does not matter any more."""
    if state.phase is Phase.DRAIN:
        return False
    return (written(state.notices), expected_back(state)) != (state.notices_written, state.expected_back)


async def _tell(life: Life) -> None:
    """What acts at once is told beside its drain, and not written."""
    state, now = life.state, life.now
    write = _is_unwritten(state) and not goes(decide_interruption(state, now))
    said, after = due(state, now), told(state, now)
    asked = NoticesTold(
        claim=ref(life),
        said=tuple(said.values()),
        write=write,
        text=written(state.notices),
        expected_back=expected_back(state),
    )
    if said or write:
        await workflow.execute_activity_method(NodeInterruptionActivities.tell_notices, asked, **_options(state))
    for topic in said:
        if topic.endswith("|status"):
            metrics.count_event(state, topic.partition("|")[0].partition("@")[0])
    life.change(notices_told=after, notices_written=asked.text, expected_back=asked.expected_back)


def _options(state: ClaimState) -> Any:
    """Of hundreds that go at once, each is told of beside its drain."""
    summary = "tell what AWS says"
    beside = state.keeps_records and bool(state.interrupted)
    return leaving(PATCH, state.identity.cluster, summary) if beside else named(PATCH, summary)


# --- in a drain for an event ---


class Holding(Value):
    """What a drain for an event does otherwise than others."""

    held: tuple[PodsHeld, ...] = ()
    override: bool = False

    @property
    def until(self) -> datetime | None:
        return min((one.until for one in self.held if one.held and one.until), default=None)


def holding(life: Life) -> Holding:
    event = drained_for(life.state)
    if event is None:
        return Holding()
    return Holding(held=held_pods(life.state, event, life.now), override=overrides(life.state))


def called_off(life: Life) -> str:
    """Why a drain that kept its NodeClaim for held pods is given up; empty where it goes on."""
    state = life.state
    if not state.interrupted or state.drain is None or not state.drain.keep or drained_for(state):
        return ""
    return "AWS does not do any more what the node was drained for"


def forced(life: Life) -> bool:
    """The drain is for an event that asks nobody: neither a pause nor a budget that holds a pod ends it."""
    event = drained_for(life.state)
    return event is not None and decide_event(life.state, event, life.now).do in ACTING


def is_overtaken(life: Life) -> bool:
    return overtaking(life.state, life.now) is not None


async def overtake(life: Life) -> None:
    """The drain goes on for what came last; why the node goes stays what it was."""
    verdict = overtaking(life.state, life.now)
    assert verdict is not None
    if verdict.do == "terminate":
        # First: what could not be written is tried again by the drain's next beginning.
        await disrupt(life, reason=verdict.reason, at_once=True)
    life.change(interrupted=verdict.key)


def go_on(life: Life) -> None:
    """No pod is held back any more: from here on it goes as other drains do."""
    drain = life.state.drain
    if drain and drain.keep and forced(life) and not holding(life).held:
        life.change(drain=drain.model_copy(update={"keep": False}))


_MANY = TypeAdapter(tuple[EventRecord, ...])


async def record_events(life: Life) -> None:
    """For as long as the run lasts: whenever something else is so, keep it. One event each time; a mark that the code
    of before replays by would be two more, for each node of a storm. A run that goes on from another one finds its
    memo, or writes it anew."""
    if not life.state.keeps_records:
        return
    await workflow.wait_condition(lambda: bool(life.state.notices))
    kept = _MANY.validate_python(workflow.memo_value(MEMO, []))

    def found() -> tuple[EventRecord, ...]:
        return records_of(life.state, kept, workflow.now())

    def is_news() -> bool:
        """One that is about to go is kept once it does."""
        return found() != kept and not leaves(life.state)

    while True:
        await workflow.wait_condition(is_news)
        kept = found()
        workflow.upsert_memo({MEMO: _MANY.dump_python(kept, mode="json", exclude_defaults=True)})
