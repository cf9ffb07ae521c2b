"""Details of each workflow in the Temporal UI, as Markdown. They are set at every transition and are not in a history.

Times use `isoformat`: `strftime` imports a module at each call, which is slow in the workflow sandbox.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final

from temporalio import workflow

from tenure.model.disruption.commands import CommandState, DisruptionState, Proposal
from tenure.model.garbage_collection import GarbageCollectorState, TaskState
from tenure.model.interruption.records import InterruptionState, SourceState
from tenure.model.node_health import ongoing_since
from tenure.model.nodeclaim.history import NodeClaimExplanation
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.workflow_states import ClusterWatchState, NodeClassState, NodePoolState, ProvisioningState
from tenure.policy.current_steps import (
    describe_cluster_step,
    describe_command_step,
    describe_interruption_step,
    describe_nodeclaim_step,
    describe_nodeclass_step,
    describe_nodepool_step,
    describe_provisioning_step,
)
from tenure.policy.hooks.messages import describe_runs as hook_lines
from tenure.policy.interruption import decision
from tenure.policy.lifecycle.deadlines import action_of
from tenure.policy.lifecycle.pauses import describe_pause, is_pause_active, pause_from_annotation
from tenure.policy.lifecycle.ready import REPLACED_LATER, expiry_of
from tenure.policy.lifecycle.verdict import describe_blocker, verdict_of

MAX_ROWS = 10
"""Rows of a list."""
MAX_HEADLINE_LENGTH = 200
PHASE_WAITS_FOR = {
    Phase.LAUNCH: "an instance from EC2",
    Phase.REGISTRATION: "the instance to join the cluster as a Node",
    Phase.INITIALIZATION: "the Node to become Ready, and its startup taints to be removed",
    Phase.READY: "nothing: it stays until it is empty, drifts, expires or is deleted",
    Phase.DRAIN: "its pods to terminate, and its volumes to detach",
    Phase.TERMINATION: "EC2 to terminate the instance",
    Phase.DELETED: "nothing",
}
"""Shown without a blocker."""
PHASE_NEXT_STEP = {
    Phase.LAUNCH: "Registration: the instance starts and joins the cluster",
    Phase.REGISTRATION: "Initialization: the Node becomes ready for pods",
    Phase.INITIALIZATION: "Ready: it runs pods",
    Phase.READY: "Drain, once it is disrupted or deleted",
    Phase.DRAIN: "Termination: EC2 terminates the instance",
    Phase.TERMINATION: "the end of this workflow",
    Phase.DELETED: "nothing",
}


def render_nodeclaim(state: NodeClaimState) -> str:
    launched, rejection, pause, cancelled = state.launched, state.rejection, state.pause, state.cancelled_drain
    lateness = " — **overdue**" if state.overdue else " — slow" if state.slow else ""
    deadline = state.deadline or state.waits_until
    rows = [
        ("phase", f"**{state.phase.value}**{lateness}"),
        ("since", _format_time(state.since)),
        ("deadline", _format_time(deadline) if deadline else "none"),
        ("when overdue", action_of(state.observed.rules, state.phase) if state.deadline else "-"),
        ("next step", PHASE_NEXT_STEP[state.phase]),
        ("node", state.node_name or "none yet"),
        ("NodePool", state.identity.pool or "none"),
        ("EC2NodeClass", state.identity.node_class or "none"),
    ]
    rows += [("created for", state.identity.why), ("launch group", state.identity.group_id)]
    if launched:
        rows.append(("instance", f"{launched.provider_id} ({launched.instance_type})"))
        rows.append(("launched as", f"{launched.capacity_type} in {launched.zone}"))
    rows += [("from AWS", line) for line in describe_interruption_events(state)]
    rows.append(("launch rejected", f"{rejection.reason}: {rejection.message}" if rejection else ""))
    rows += [("drifted", describe_drift(state)), ("NotReady", describe_not_ready(state))]
    rows += [("drain", line) for line in describe_drain(state)]
    rows.append(("drain cancelled", f"{_format_time(cancelled.at)}: {cancelled.why}" if cancelled else ""))
    expiry = expiry_of(state)
    rows += [("expires", _format_time(expiry) if expiry else ""), ("paused", describe_pause(pause) if pause else "")]
    history = "\n".join(
        f"- {_format_time(step.at)} **{step.phase.value}** {step.cause}" for step in state.history[-MAX_ROWS:]
    )
    return f"{_render_headline(state)}\n\n{_render_table(rows)}\n\n**Phase history**\n\n{history}"


def _render_headline(state: NodeClaimState) -> str:
    """What the node is doing now, and the blocker or the next event."""
    late = ", past its deadline" if state.overdue else ", slower than similar nodes" if state.slow else ""
    blocked = describe_blocker(state)
    blocked_or_waiting = f"**Blocked by**: {blocked}" if blocked else f"**Waits for**: {PHASE_WAITS_FOR[state.phase]}"
    return f"{_headline(f'{describe_nodeclaim_step(state)}{late}')}{blocked_or_waiting}"


def _headline(text: str) -> str:
    """The first line: what the workflow is doing now."""
    return f"**{' '.join(text.split())[:MAX_HEADLINE_LENGTH].rstrip('.')}.**\n\n"


def describe_drift(state: NodeClaimState) -> str:
    """The drift reason and its consequence; empty without drift."""
    return f"{format_drift(state)}; {REPLACED_LATER}" if state.observed.drift else ""


def format_drift(state: NodeClaimState) -> str:
    return f"{state.observed.drift}: {state.observed.drift_message}" if state.observed.drift else ""


def describe_not_ready(state: NodeClaimState) -> str:
    """The current NotReady interval, the number and total duration of earlier ones, and reboots; empty without any."""
    since = ongoing_since(state.not_ready_intervals)
    ended = [one.until - one.since for one in state.not_ready_intervals if one.until]
    seconds = sum(ended, timedelta()).total_seconds()
    recent = f", the latest {len(ended)} {'before ' * bool(since)}for {seconds:.0f} s in all" if ended else ""
    reason = f"{state.observed.not_ready_reason}, its pods wait during its grace period"
    parts = (
        f"since {_format_time(since)}: {reason}" if since else "",
        f"{state.flaps} times since it was initialized{recent}" if state.flaps else "",
        f"rebooted {state.reboots} times" if state.reboots else "",
    )
    return "; ".join(filter(None, parts))


def describe_interruption_events(state: NodeClaimState) -> tuple[str, ...]:
    """One line for each AWS event of the instance, with its approval or rejection."""
    return tuple(
        decision.describe_event(event)
        + (
            f", {'approved' if event.decision.approved else 'rejected'} by {event.decision.by}"
            if event.decision
            else ""
        )
        for event in decision.live_events(state)
    )


def describe_drain(state: NodeClaimState) -> tuple[str, ...]:
    """One line for each hook, drain blocker, deadline and next step; empty outside a drain."""
    status = state.drain.status if state.drain else None
    return (*hook_lines(state), *(status.status_lines if status else ()))


def explain_nodeclaim(state: NodeClaimState) -> NodeClaimExplanation:
    """For `tenure why`, while the NodeClaim exists."""
    return NodeClaimExplanation(
        verdict=verdict_of(state),
        bought_for=state.identity.why,
        events=describe_interruption_events(state),
        paused=describe_pause(state.pause) if state.pause else "",
        drain=describe_drain(state),
        drift=describe_drift(state),
        not_ready=describe_not_ready(state),
        expires=expiry_of(state),
        evicted_pods=state.evicted_pods,
        steps=state.history,
    )


def describe_pauses(state: NodePoolState, now: datetime) -> tuple[str, ...]:
    """One line for each active pause of the NodePool and of the cluster."""
    found = (
        (f"NodePool {state.name}", state.pause),
        ("the cluster", pause_from_annotation(state.observed.cluster_pause)),
    )
    return tuple(f"{what} {describe_pause(pause)}" for what, pause in found if pause and is_pause_active(pause, now))


def render_nodepool(state: NodePoolState, paused: str, waits_for: str, rollout: str = "") -> str:
    """`waits_for`: why a static NodePool lacks or exceeds its replicas. `rollout`: the progress of a rollout."""
    observed = state.observed
    rows = [
        ("generation", str(observed.generation)),
        ("paused", paused or "no"),
        ("blocked by", state.blocked_by or "nothing"),
        ("rollout", rollout),
    ]
    if observed.static:
        numbers = f"{observed.replicas} desired, **{observed.existing}** running, {observed.terminating} terminating"
        rows.append(
            ("static pool", numbers if observed.static == "on" else "no nodes: feature gate StaticCapacity is off")
        )
        rows.append(("waits for", waits_for or "nothing"))
    permits = _render_list(
        state.permits, (f"{one.claim_name} until {_format_time(one.until)}" for one in state.permits[:MAX_ROWS])
    )
    pending_requests = (
        f"{one.claim_name}: {one.reason} since {_format_time(one.since)}" for one in state.pending_requests[:MAX_ROWS]
    )
    requests = _render_list(state.pending_requests, pending_requests)
    headline = _headline(describe_nodepool_step(state, paused, waits_for, rollout))
    return f"{headline}{_render_table(rows)}\n\n**Permits**\n{permits}\n\n**Pending requests**\n{requests}"


def render_provisioning(state: ProvisioningState) -> str:
    rows = [
        ("demand", f"{state.demand.pods} pods" if state.demand else "none"),
        ("passes", str(state.passes)),
        (
            "discovered memory",
            f"of {state.discovered_capacity.discovered.entry_count} instance types with "
            f"{len(state.discovered_capacity.discovered.images)} images",
        ),
        ("blocked by", state.blocked_by or "nothing"),
    ]
    groups = (f"{one.group_id}: {len(one.members)} x {one.pool}" for one in state.groups[:MAX_ROWS])
    waiting = (
        f"{one.group_id}: {len(one.members)} x {one.pool}, attempt {one.attempt}"
        + (f" after {one.why}" if one.why else "")
        for one in state.drafts[:MAX_ROWS]
    )
    unavailable_offerings = (
        f"{one.instance_type} {one.capacity_type} {one.zone} until {_format_time(one.until)}: {one.reason}"
        for one in state.unavailable[:MAX_ROWS]
    )
    backoffs = [one for one in state.backoffs if one.pods]
    described = (f"{one.pod}: {one.describe()}" for one in backoffs[:MAX_ROWS])
    waiting_pods = f"\n\n**No node is launched**\n{_render_list(backoffs, described)}" if backoffs else ""
    table = f"{_headline(describe_provisioning_step(state))}{_render_table(rows)}"
    return (
        f"{table}{waiting_pods}\n\n**Launch groups in progress**\n{_render_list(state.groups, groups)}"
        f"\n\n**Pending launch groups**\n{_render_list(state.drafts, waiting)}"
        f"\n\n**Unavailable offerings**\n{_render_list(state.unavailable, unavailable_offerings)}"
    )


def render_nodeclass(state: NodeClassState) -> str:
    return _headline(describe_nodeclass_step(state)) + _render_table(
        [
            ("ready", state.ready or "unknown"),
            ("message", state.message or "-"),
            ("generation", str(state.resolved_generation)),
            ("NodeClaims", str(state.observed.claims)),
            ("consecutive errors", _describe_errors(state)),
        ]
    )


def render_command(state: CommandState) -> str:
    proposal, finished = state.proposal, state.over
    rows = [
        ("step", f"**{state.step}**"),
        ("since", _format_time(state.since)),
        ("deadline", _format_time(state.deadline) if state.deadline else "none"),
        ("blocked by", state.blocked_by or "nothing"),
        ("reason", f"{proposal.reason} ({proposal.kind}): {proposal.why}"),
        ("price", f"{proposal.price_before:.4f} USD/h before, {proposal.price_after:.4f} after"),
        ("result", ": ".join(filter(None, (finished.ending, finished.why))) if finished else ""),
    ]
    nodes = (f"{one.node}: {one.instance_type} of {one.pool} in {one.zone}" for one in proposal.candidates[:MAX_ROWS])
    replacements = (f"{name}: {'ready' if name in state.ready else 'starting'}" for name in state.claims[:MAX_ROWS])
    table = f"{_headline(describe_command_step(state))}{_render_table(rows)}"
    return (
        f"{table}\n\n**Candidates**\n{_render_list(proposal.candidates, nodes)}"
        f"\n\n**Replacements**\n{_render_list(state.claims, replacements)}"
    )


def render_cluster(state: DisruptionState) -> str:
    pause = state.pause
    rows = [
        ("paused", describe_pause(pause) if pause else "no"),
        ("blocked by", state.blocked_by or "nothing"),
        ("passes", str(state.passes)),
        ("last", _format_time(state.last)),
        ("next", _format_time(state.next_pass_at) if state.next_pass_at else "after the next change"),
        ("nodes", f"{state.eligible} eligible, {state.excluded} ineligible"),
    ]
    running = (
        f"{_describe_proposal(one.under_way.proposal)} since {_format_time(one.since)}"
        for one in state.under_way[:MAX_ROWS]
    )
    backoffs = (
        f"{'replacements of NodePool ' + one.pool if one.pool else ', '.join(one.claims[:3])}"
        f" until {_format_time(one.until)}, {one.times} times: {one.why}"
        for one in state.backoffs[:MAX_ROWS]
    )
    table = f"{_headline(describe_cluster_step(state))}{_render_table(rows)}"
    return (
        f"{table}\n\n**Commands in progress**\n{_render_list(state.under_way, running)}"
        f"\n\n**Recently failed commands**\n{_render_list(state.backoffs, backoffs)}"
    )


def render_interruption(state: InterruptionState) -> str:
    queue = f"queue **{state.queue}**" if state.queue else "queue"
    rows = [
        (queue, _describe_source(state.messages) if state.queue else "none: INTERRUPTION_QUEUE is not set"),
        ("instance status", _describe_source(state.statuses)),
    ]
    unhealthy = (
        f"{one.instance_id}: {one.message.kind} {one.message.code} since {_format_time(one.message.at)}"
        for one in state.open_interruptions[:MAX_ROWS]
    )
    headline = _headline(describe_interruption_step(state))
    instances = _render_list(state.open_interruptions, unhealthy)
    return f"{headline}{_render_table(rows)}\n\n**Unhealthy instances**\n{instances}"


def render_cluster_watch(state: ClusterWatchState) -> str:
    host, invalid = state.host, state.invalid_objects
    if host is None:
        lines = [f"Waiting for a worker that hosts the watch of cluster **{state.cluster}**."]
    elif host.fault:
        lines = [f"Worker `{host.identity}` cannot host the watch since {_format_time(host.at)}: {host.fault}"]
    else:
        since = _format_time(host.at)
        lines = [f"Worker `{host.identity}` hosts the watch of cluster **{state.cluster}** since {since}."]
    if invalid.objects:
        lines.append("\n**Invalid objects**\n")
    lines += [f"- {one.kind} `{one.name}`: {one.message}" for one in invalid.objects]
    if invalid.omitted:
        lines.append(f"- and {invalid.omitted} more")
    return "\n".join(lines)


def _describe_source(source: SourceState) -> str:
    last = f"{_format_time(source.fault_at)}: {source.fault}" if source.fault else ""
    if source.failing_since is None:
        return f"readable; last error at {last}" if last else "readable"
    return f"**unreadable** since {_format_time(source.failing_since)}; last error at {last}"


def _describe_proposal(proposal: Proposal) -> str:
    return f"{proposal.reason} of {', '.join(one.node for one in proposal.candidates[:3])}"


def _describe_errors(state: NodeClassState) -> str:
    if state.failing_since is None:
        return "none"
    return f"{state.consecutive_failures} **since {_format_time(state.failing_since)}**: {state.failure_message}"


def render_garbage_collection(
    state: GarbageCollectorState,
    descriptions: Mapping[str, str],
    running: Collection[str],
    next_wakeup: datetime | None,
) -> str:
    """`descriptions`: of all tasks, by name. `running`: names of the tasks that run now."""
    waits = f"Waiting for the next sweep at {_format_time(next_wakeup)}" if next_wakeup else "All tasks are paused"
    step = f"Running {', '.join(running)}" if running else waits
    header = "| task | last run | next run | checked | collected | failed | error |\n|---|---|---|---|---|---|---|"
    rows = [_render_task_row(name, state.tasks.get(name, TaskState())) for name in descriptions]
    notes = [f"{name}: {note}" for name, one in state.tasks.items() for note in one.result.notes]
    lines = "\n".join(f"- **{name}** {description}" for name, description in descriptions.items())
    failures = f"\n\n**First failures**\n{_render_list(notes, notes[:MAX_ROWS])}" if notes else ""
    return f"{_headline(step)}{chr(10).join([header, *rows])}{failures}\n\n**Tasks**\n{lines}"


def _render_task_row(name: str, task: TaskState) -> str:
    result, next_run = task.result, "paused" if task.paused else _format_time(task.next_run)
    return (
        f"| {name} | {_format_time(task.last_run)} | {next_run} | {result.checked} | {result.collected} "
        f"| {result.failed} | {result.fault or 'none'} |"
    )


def _render_table(rows: Iterable[tuple[str, str]]) -> str:
    """Without rows that have no value."""
    return "| | |\n|---|---|\n" + "\n".join(f"| {key} | {value} |" for key, value in rows if value)


def _render_list(items: Sequence[object], lines: Iterable[str]) -> str:
    rendered = "\n".join(f"- {line}" for line in lines) or "none"
    more = len(items) - MAX_ROWS
    return f"{rendered}\n- and {more} more" if more > 0 else rendered


def _format_time(at: datetime | None) -> str:
    return at.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds") + " UTC" if at else "-"


CANCELLATION_SIGNAL: Final = "cancellation_requested"


class IgnoresCancellation:
    """A workflow that ends only with its object or its installation, also after "Request Cancellation" in the Temporal
    UI. `OrderedWorkflowRunner` delivers the request as a signal (docs/decisions/workflow-runner.md)."""

    how_to_stop: ClassVar[str]
    """The end of a sentence that begins with `To stop it, `."""
    cancellation_requested: datetime | None = None

    @workflow.signal(name=CANCELLATION_SIGNAL, description="From Temporal: a request to cancel this workflow")
    def record_cancellation_request(self) -> None:
        """Temporal accepts one request per run."""
        self.cancellation_requested = workflow.now()
        workflow.logger.warning("cancellation request not followed", extra={"remedy": self.how_to_stop})
        publish_details(workflow.get_current_details())


def publish_details(details: str) -> None:
    """Set the current details of a long-lived workflow, after a notice about a cancellation request."""
    running = workflow.instance()
    if isinstance(running, IgnoresCancellation) and running.cancellation_requested:
        at = _format_time(running.cancellation_requested)
        notice = f"**Cancellation requested at {at} and not followed.** To stop it, {running.how_to_stop}."
        details = f"{notice}\n\n{details}"
    workflow.set_current_details(details)
