"""The current step of each workflow, for the first line of its details in the Temporal UI."""

from tenure.model.base import format_count
from tenure.model.disruption.commands import CommandState, DisruptionState
from tenure.model.interruption.records import InterruptionState, SourceState
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.model.workflow_states import NodeClassState, NodePoolState, ProvisioningState
from tenure.policy.lifecycle.pauses import describe_pause


def describe_nodeclaim_step(state: NodeClaimState) -> str:
    """One clause with the objects involved, such as `Draining Node node-a (Empty): 3 pods left`."""
    node = f"Node {state.node_name}" if state.node_name else "its Node"
    match state.phase:
        case Phase.LAUNCH:
            return _launch_step(state)
        case Phase.REGISTRATION:
            return f"Waiting for {_instance(state)} to join as a Node"
        case Phase.INITIALIZATION:
            return f"Waiting for {node} to be ready for pods"
        case Phase.READY:
            return _ready_step(state, node)
        case Phase.DRAIN:
            return _drain_step(state, node)
        case Phase.TERMINATION:
            return f"Terminating {_instance(state)}" if state.launched else "Deleting a NodeClaim without an instance"
        case Phase.DELETED:
            return "Deleted"


def _launch_step(state: NodeClaimState) -> str:
    attempt = f", attempt {state.launch_attempt}" if state.launch_attempt > 1 else ""
    if state.group:
        return f"Calling CreateFleet{attempt}"
    if state.rejection and not state.rejection.final:
        return f"Waiting before the next launch{attempt}: {state.rejection.reason}"
    if state.identity.group_id and state.launch_attempt == 1:
        return f"Waiting for an instance from launch group {state.identity.group_id}"
    return f"Preparing the launch{attempt}"


def _ready_step(state: NodeClaimState, node: str) -> str:
    observed = state.observed
    if state.stop and state.stop.step in ("stop", "start", "back"):
        return f"Stopping and starting {_instance(state)}"
    if not observed.node_name and state.registered:
        return f"Looking for {node}, which no longer exists"
    if observed.not_ready_since:
        return f"Waiting for {node} to recover: {observed.not_ready_reason}"
    if state.permit_requested_at:
        return f"Waiting for the permit to delete {node}: {state.permit_for}"
    activity = f"{node} runs no pods" if observed.empty else f"{node} runs pods"
    return f"{activity}; {describe_pause(state.pause)}" if state.pause else activity


def _drain_step(state: NodeClaimState, node: str) -> str:
    reason = f" ({state.disruption})" if state.disruption else ""
    status = state.drain.status if state.drain else None
    if status is None:
        return f"Draining {node}{reason}"
    if status.pods:
        return f"Draining {node}{reason}: {format_count(status.pods, 'pod')} left"
    return f"Draining {node}{reason}: waiting for its volumes to detach"


def _instance(state: NodeClaimState) -> str:
    if state.launched is None:
        return "an instance"
    return f"instance {state.launched.instance_id} ({state.launched.instance_type})"


def describe_nodepool_step(state: NodePoolState, paused: str, waits_for: str, rollout: str) -> str:
    """`waits_for`: why a static NodePool lacks or exceeds its replicas. `rollout`: the progress of a rollout."""
    if waits_for:
        return f"Waiting for replicas: {waits_for}"
    if rollout:
        return f"Rollout: {rollout}"
    if state.permits:
        return f"Disrupting {format_count(len(state.permits), 'node')}"
    if state.pending_requests:
        waiting = f"{format_count(len(state.pending_requests), 'node')} waiting for a disruption permit"
        return f"{waiting}: {state.blocked_by or paused}" if state.blocked_by or paused else waiting
    return "Disruption is paused" if paused else "No node is disrupted or waits for a permit"


def describe_provisioning_step(state: ProvisioningState) -> str:
    if state.blocked_by:
        return f"Planning is blocked: {state.blocked_by}"
    if state.groups:
        number = sum(len(one.members) for one in state.groups)
        return f"Launching {format_count(number, 'node')} in {format_count(len(state.groups), 'launch group')}"
    if state.drafts:
        return f"{format_count(len(state.drafts), 'launch group')} waiting for the next attempt"
    return f"Planning nodes for {format_count(state.demand.pods, 'pod')}" if state.demand else "No pod waits for a node"


def describe_nodeclass_step(state: NodeClassState) -> str:
    if state.ready == "True":
        return "Ready"
    return f"Not ready: {state.message}" if state.ready else "Resolving images, subnets and security groups"


def describe_command_step(state: CommandState) -> str:
    nodes = format_count(len(state.proposal.candidates), "node")
    match state.step:
        case "Permit":
            return f"Waiting for the disruption permits of {nodes}"
        case "Begin":
            return f"Tainting {nodes}"
        case "Replace":
            return f"Creating {format_count(state.proposal.replacements, 'replacement')} for {nodes}"
        case "Wait":
            return f"Waiting for replacements: {len(state.ready)} of {len(state.claims)} ready"
        case "Finish":
            return f"Deleting {nodes}"
        case "Undo":
            return f"Rolling back: returning {nodes} to service"
        case "Over":
            return f"Finished: {state.over.ending}" if state.over else "Finished"


def describe_cluster_step(state: DisruptionState) -> str:
    if state.pause:
        return f"Disruption of the cluster {describe_pause(state.pause)}"
    if state.blocked_by:
        return f"Disruption is blocked: {state.blocked_by}"
    if state.under_way:
        return f"{format_count(len(state.under_way), 'disruption command')} in progress"
    return f"Waiting for the next pass; {format_count(state.eligible, 'node')} eligible for disruption"


def describe_interruption_step(state: InterruptionState) -> str:
    unreadable = [name for name, source in _sources(state) if source.failing_since]
    if unreadable:
        return f"Waiting until AWS responds: {' and '.join(unreadable)} unreadable"
    return f"Reading {' and '.join(name for name, _ in _sources(state))}"


def _sources(state: InterruptionState) -> list[tuple[str, SourceState]]:
    queue = [(f"queue {state.queue}", state.messages)] if state.queue else []
    return [*queue, ("the instance status", state.statuses)]
