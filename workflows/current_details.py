"""What the Temporal UI shows of each workflow, as Markdown. Set at every transition; never part of a history.

Moments are written with `isoformat`: `strftime` imports a module at each call, which the workflow sandbox makes slow.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from tenure.model.disruption.commands import CommandState, DisruptionState, Proposal
from tenure.model.garbage_collection import UpkeepDone
from tenure.model.interruption.records import InterruptionState, SourceState
from tenure.model.node_health import lasting
from tenure.model.nodeclaim_history import Told
from tenure.model.nodeclaim_state import ClaimState, Phase
from tenure.model.workflow_states import NodeClassState, PoolState, ProvisioningState
from tenure.policy.hooks.messages import lines as hook_lines
from tenure.policy.interruption import decision
from tenure.policy.lifecycle.deadlines import action_of, blocked_by
from tenure.policy.lifecycle.pauses import found_in, holds, words
from tenure.policy.lifecycle.ready import REPLACED_LATER, expiry_of

SHOWN = 10
"""Rows of a list; a thousand nodes would make a page that nobody reads."""
DOES = {
    Phase.LAUNCH: "An instance is being bought",
    Phase.REGISTRATION: "The instance is starting",
    Phase.INITIALIZATION: "The node has joined the cluster and is getting ready",
    Phase.READY: "The node is ready for pods",
    Phase.DRAIN: "Pods are leaving the node, which is on its way out",
    Phase.TERMINATION: "The instance is being ended",
    Phase.GONE: "The node is gone",
}
"""What a life in that phase does, for a reader who knows none of the words."""
WAITS = {
    Phase.LAUNCH: "an instance from EC2",
    Phase.REGISTRATION: "the instance to join the cluster as a Node",
    Phase.INITIALIZATION: "the Node to be Ready, and its startup taints to be gone",
    Phase.READY: "nothing: it stays until it is empty, drifts, expires or is deleted",
    Phase.DRAIN: "its pods to leave, and its volumes to be detached",
    Phase.TERMINATION: "EC2 to end the instance",
    Phase.GONE: "nothing",
}
"""For what, where nothing in particular is found to hold it up."""
NEXT = {
    Phase.LAUNCH: "Registration: the instance starts, and joins the cluster",
    Phase.REGISTRATION: "Initialization: the Node gets ready for pods",
    Phase.INITIALIZATION: "Ready: it runs pods",
    Phase.READY: "Drain, when it is to go: pods leave it",
    Phase.DRAIN: "Termination: EC2 ends the instance",
    Phase.TERMINATION: "the end of this workflow",
    Phase.GONE: "nothing",
}


def of_claim(state: ClaimState) -> str:
    launched, refused, pause = state.launched, state.refused, state.pause
    rows = [
        (
            "phase",
            f"**{state.phase.value}**" + (" — **overdue**" if state.overdue else " — slow" if state.slow else ""),
        ),
        ("since", _moment(state.since)),
        ("deadline", _moment(state.deadline or state.waits_until) if state.deadline or state.waits_until else "none"),
        ("when overdue", action_of(state.seen.rules, state.phase) if state.deadline else "-"),
        ("next step", NEXT[state.phase]),
        ("node", state.node_name or "none yet"),
    ]
    if state.identity.why:
        rows.append(("bought for", state.identity.why))
    if state.identity.group_id:
        rows.append(("launch group", state.identity.group_id))
    if launched:
        rows.append(("instance", f"{launched.provider_id} ({launched.instance_type})"))
        rows.append(("bought as", f"{launched.capacity_type} in {launched.zone}"))
    rows += [("from AWS", line) for line in announced(state)]
    if refused:
        rows.append(("refused", f"{refused.reason}: {refused.message}"))
    if drift := drifted(state):
        rows.append(("drifted", drift))
    if away := absent(state):
        rows.append(("away", away))
    rows += [("drain", line) for line in draining(state)]
    if state.gave_up:
        rows.append(("drain given up", f"{_moment(state.gave_up.at)}: {state.gave_up.why}"))
    if expiry := expiry_of(state):
        rows.append(("expires", _moment(expiry)))
    if pause:
        rows.append(("paused", words(pause)))
    story = "\n".join(f"- {_moment(step.at)} **{step.phase.value}** {step.cause}" for step in state.story[-SHOWN:])
    return f"{_headline(state)}\n\n{_table(rows)}\n\n**How it came here**\n\n{story}"


def _headline(state: ClaimState) -> str:
    """What it does, and what it waits for, before anything else."""
    late = ", past its deadline" if state.overdue else ", longer than such nodes do" if state.slow else ""
    blocked = blocked_by(state)
    waits = f"**Blocked by**: {blocked}" if blocked else f"**Waits for**: {WAITS[state.phase]}"
    return f"**{DOES[state.phase]}{late}.**\n\n{waits}"


def drifted(state: ClaimState) -> str:
    """Why, and what comes of it; empty for a node that has not drifted."""
    return f"{drift(state)}; {REPLACED_LATER}" if state.seen.drift else ""


def drift(state: ClaimState) -> str:
    return f"{state.seen.drift}: {state.seen.drift_message}" if state.seen.drift else ""


def absent(state: ClaimState) -> str:
    """How often, for how long in all, and whether it is now; empty for a node that never was."""
    since, over = lasting(state.absences), [one.until - one.since for one in state.absences if one.until]
    rows = [f"since {_moment(since)}: {state.seen.away_for}, its pods wait within its grace"] if since else []
    if state.flaps:
        lately = f", the latest {len(over)} {'before ' * bool(since)}for {_seconds(over)} s in all" if over else ""
        rows.append(f"{state.flaps} times since it was initialized{lately}")
    if state.reboots:
        rows.append(f"rebooted {state.reboots} times")
    return "; ".join(rows)


def announced(state: ClaimState) -> tuple[str, ...]:
    """What AWS says of its instance, and what people said of that, a line each."""
    return tuple(
        decision.words(event)
        + (f", {'approved' if event.answer.approved else 'rejected'} by {event.answer.by}" if event.answer else "")
        for event in decision.live(state)
    )


def _seconds(stretches: Iterable[timedelta]) -> str:
    return f"{sum(stretches, timedelta()).total_seconds():.0f}"


def draining(state: ClaimState) -> tuple[str, ...]:
    """Its hooks, what the drain waits for, who holds it and what follows, a line each; empty while there is nothing."""
    verdict = state.drain.verdict if state.drain else None
    return (*hook_lines(state), *(verdict.lines if verdict else ()))


def told(state: ClaimState) -> Told:
    """What `tenure why` says of a node that lives."""
    return Told(
        bought_for=state.identity.why,
        events=announced(state),
        paused=words(state.pause) if state.pause else "",
        drain=draining(state),
        drift=drifted(state),
        away=absent(state),
        expires=expiry_of(state),
        left=state.left,
        steps=state.story,
    )


def pauses(state: PoolState, now: datetime) -> tuple[str, ...]:
    """Of a NodePool and of the whole cluster, as its nodes are held by them; a line each."""
    found = ((f"NodePool {state.name}", state.pause), ("the cluster", found_in(state.seen.cluster_pause)))
    return tuple(f"{what} {words(pause)}" for what, pause in found if pause and holds(pause, now))


def of_pool(state: PoolState, paused: str, waits_for: str, rollout: str = "") -> str:
    """`waits_for` is what a static pool waits for that has not as many nodes as it should; `rollout`: how it goes."""
    seen = state.seen
    rows = [
        ("generation", str(seen.generation)),
        ("paused", paused or "no"),
        ("blocked by", state.blocked_by or "nothing"),
    ]
    if rollout:
        rows.append(("roll-out", rollout))
    if seen.static:
        numbers = f"{seen.replicas} desired, **{seen.standing}** running, {seen.going} going"
        rows.append(("static pool", numbers if seen.static == "on" else "no nodes are made"))
        rows.append(("waits for", waits_for or "nothing"))
    permits = _list(state.permits, (f"{one.claim_name} until {_moment(one.until)}" for one in state.permits[:SHOWN]))
    asked = (f"{one.claim_name}: {one.reason} since {_moment(one.since)}" for one in state.asked[:SHOWN])
    return f"{_table(rows)}\n\n**Permits**\n{permits}\n\n**Wishes**\n{_list(state.asked, asked)}"


def of_provisioning(state: ProvisioningState) -> str:
    rows = [
        ("demand", f"{state.demand.pods} pods" if state.demand else "none"),
        ("passes", str(state.passes)),
        ("memory learnt", f"of {state.kept.learnt.count} types under {len(state.kept.learnt.images)} images"),
        ("blocked by", state.blocked_by or "nothing"),
    ]
    groups = (f"{one.group_id}: {len(one.members)} x {one.pool}" for one in state.groups[:SHOWN])
    waiting = (
        f"{one.group_id}: {len(one.members)} x {one.pool}, attempt {one.attempt}"
        + (f" after {one.why}" if one.why else "")
        for one in state.drafts[:SHOWN]
    )
    marks = (
        f"{one.instance_type} {one.capacity_type} {one.zone} until {_moment(one.until)}: {one.reason}"
        for one in state.unavailable[:SHOWN]
    )
    return (
        f"{_table(rows)}\n\n**Launch groups under way**\n{_list(state.groups, groups)}"
        f"\n\n**Launch groups that are prepared, or wait**\n{_list(state.drafts, waiting)}"
        f"\n\n**No capacity**\n{_list(state.unavailable, marks)}"
    )


def of_node_class(state: NodeClassState) -> str:
    return _table(
        [
            ("ready", state.ready or "not known yet"),
            ("why", state.message or "-"),
            ("generation", str(state.resolved_generation)),
            ("NodeClaims", str(state.seen.claims)),
            ("stumbles", _stumbling(state)),
        ]
    )


def of_command(state: CommandState) -> str:
    proposal, over = state.proposal, state.over
    rows = [
        ("step", f"**{state.step}**"),
        ("since", _moment(state.since)),
        ("deadline", _moment(state.deadline) if state.deadline else "none"),
        ("blocked by", state.blocked_by or "nothing"),
        ("reason", f"{proposal.reason} ({proposal.kind}): {proposal.why}"),
        ("price", f"{proposal.price_before:.4f} USD/h before, {proposal.price_after:.4f} after"),
    ]
    if over:
        rows.append(("ends", f"{over.ending}: {over.why}" if over.why else over.ending))
    nodes = (f"{one.node}: {one.instance_type} of {one.pool} in {one.zone}" for one in proposal.candidates[:SHOWN])
    made = (f"{name}: {'ready' if name in state.ready else 'starts'}" for name in state.claims[:SHOWN])
    return (
        f"{_table(rows)}\n\n**Nodes that go**\n{_list(proposal.candidates, nodes)}"
        f"\n\n**Replacements**\n{_list(state.claims, made)}"
    )


def of_cluster(state: DisruptionState) -> str:
    pause = state.pause
    rows = [
        ("paused", words(pause) if pause else "no"),
        ("blocked by", state.blocked_by or "nothing"),
        ("passes", str(state.passes)),
        ("last", _moment(state.last)),
        ("next", _moment(state.again) if state.again else "when something changes"),
        ("nodes", f"{state.eligible} could go, {state.excluded} are kept back"),
    ]
    running = (f"{_proposed(one.under_way.proposal)} since {_moment(one.since)}" for one in state.under_way[:SHOWN])
    bounced = (
        f"{'replacements of NodePool ' + one.pool if one.pool else ', '.join(one.claims[:3])}"
        f" until {_moment(one.until)}, {one.times} times: {one.why}"
        for one in state.bounced[:SHOWN]
    )
    return (
        f"{_table(rows)}\n\n**Commands under way**\n{_list(state.under_way, running)}"
        f"\n\n**Came to nothing**\n{_list(state.bounced, bounced)}"
    )


def of_interruption(state: InterruptionState) -> str:
    queue = f"queue **{state.queue}**" if state.queue else "queue"
    rows = [
        (queue, _reading(state.messages) if state.queue else "none: INTERRUPTION_QUEUE is not set"),
        ("status of instances", _reading(state.statuses)),
    ]
    told = (
        f"{one.instance_id}: {one.notice.kind} {one.notice.code} since {_moment(one.notice.at)}"
        for one in state.told[:SHOWN]
    )
    return f"{_table(rows)}\n\n**Not well, by their status**\n{_list(state.told, told)}"


def _reading(source: SourceState) -> str:
    last = f"{_moment(source.fault_at)}: {source.fault}" if source.fault else ""
    if source.failing_since is None:
        return f"is read; the last fault was at {last}" if last else "is read"
    tries = f"{source.tries} tries" if source.tries > 1 else "1 try"
    return f"**cannot be read** since {_moment(source.failing_since)} ({tries}), last at {last}"


def _proposed(proposal: Proposal) -> str:
    return f"{proposal.reason} of {', '.join(one.node for one in proposal.candidates[:3])}"


def _stumbling(state: NodeClassState) -> str:
    if state.stumbling_since is None:
        return "no"
    return f"**since {_moment(state.stumbling_since)}**, {state.stumbles} looks: {state.stumbles_over}"


def of_upkeep(done: UpkeepDone) -> str:
    rows = [
        ("task", f"**{done.task}**"),
        ("looked at", str(done.looked_at)),
        ("collected", str(done.collected)),
        ("could not be", str(done.failed)),
        ("came to nothing", done.fault or "no"),
    ]
    return f"{_table(rows)}\n\n{_list(done.notes, done.notes)}"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "| | |\n|---|---|\n" + "\n".join(f"| {key} | {value} |" for key, value in rows)


def _list(everything: Sequence[object], lines: Iterable[str]) -> str:
    shown = "\n".join(f"- {line}" for line in lines) or "none"
    more = len(everything) - SHOWN
    return f"{shown}\n- and {more} more" if more > 0 else shown


def _moment(moment: datetime | None) -> str:
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds") + " UTC" if moment else "-"
