"""The first line of a workflow's details says what happens now."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.model.disruption.commands import CommandFinished, CommandState, DisruptionState, Proposal
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.disruption.drain import DrainState, DrainStatus
from tenure.model.interruption.records import InterruptionState, SourceState
from tenure.model.launch import LaunchedInstance, LaunchRejection
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState, Phase
from tenure.model.observations import ObservedNodeClaim
from tenure.model.workflow_states import NodeClassState, NodePoolState, ProvisioningState
from tenure.policy.current_steps import (
    describe_cluster_step,
    describe_command_step,
    describe_interruption_step,
    describe_nodeclaim_step,
    describe_nodeclass_step,
    describe_nodepool_step,
    describe_provisioning_step,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = NodeClaimIdentity(cluster="demo", name="a", uid="u", created=NOW)
GROUPED = WHO.model_copy(update={"group_id": "plan-0"})
LAUNCHED = LaunchedInstance(
    claim_uid="u",
    provider_id="aws:///us-west-2a/i-1",
    instance_type="m6i.large",
    capacity_type="spot",
    zone="us-west-2a",
    image_id="ami-1",
)
SEEN = ObservedNodeClaim(node_name="n")
READY: dict[str, Any] = {"phase": Phase.READY, "registered": True, "observed": SEEN}
DRAIN: dict[str, Any] = {"phase": Phase.DRAIN, "disruption": "Empty"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "Preparing the launch"),
        ({"identity": GROUPED}, "Waiting for an instance from launch group plan-0"),
        (
            {"launch_attempt": 3, "rejection": LaunchRejection(reason="LaunchFailed", message="x", final=False)},
            "Waiting before the next launch, attempt 3: LaunchFailed",
        ),
        ({"phase": Phase.REGISTRATION}, "Waiting for instance i-1 (m6i.large) to join as a Node"),
        ({"phase": Phase.INITIALIZATION}, "Waiting for Node n to be ready for pods"),
        (READY, "Node n runs pods"),
        ({**READY, "observed": SEEN.model_copy(update={"empty": True})}, "Node n runs no pods"),
        ({**READY, "observed": ObservedNodeClaim()}, "Looking for Node n, which no longer exists"),
        (
            {**READY, "observed": SEEN.model_copy(update={"not_ready_since": NOW, "not_ready_reason": "NotReady"})},
            "Waiting for Node n to recover: NotReady",
        ),
        (
            {**READY, "permit_requested_at": NOW, "permit_for": "Empty"},
            "Waiting for the permit to delete Node n: Empty",
        ),
        (DRAIN, "Draining Node n (Empty)"),
        ({**DRAIN, "drain": DrainState(status=DrainStatus(pods=3))}, "Draining Node n (Empty): 3 pods left"),
        (
            {**DRAIN, "drain": DrainState(status=DrainStatus())},
            "Draining Node n (Empty): waiting for its volumes to detach",
        ),
        ({"phase": Phase.TERMINATION}, "Terminating instance i-1 (m6i.large)"),
        ({"phase": Phase.TERMINATION, "launched": None}, "Deleting a NodeClaim without an instance"),
        ({"phase": Phase.DELETED}, "Deleted"),
    ],
)
def test_node_step_names_what_it_waits_for(fields: dict[str, Any], expected: str) -> None:
    defaults = {"identity": WHO, "node_name": "n", "launched": LAUNCHED}
    assert describe_nodeclaim_step(NodeClaimState.model_validate({**defaults, **fields})) == expected


def test_nodepool_step_prefers_replicas_then_rollout_then_permits() -> None:
    state = NodePoolState(cluster="demo", name="web")
    assert describe_nodepool_step(state, "", "2 of 3 launching", "wave 1") == "Waiting for replicas: 2 of 3 launching"
    assert describe_nodepool_step(state, "", "", "wave 1") == "Rollout: wave 1"
    assert describe_nodepool_step(state, "by ann", "", "") == "Disruption is paused"
    assert describe_nodepool_step(state, "", "", "") == "No node is disrupted or waits for a permit"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("Permit", "Waiting for the disruption permits of 1 node"),
        ("Begin", "Tainting 1 node"),
        ("Replace", "Creating 2 replacements for 1 node"),
        ("Wait", "Waiting for replacements: 1 of 2 ready"),
        ("Finish", "Deleting 1 node"),
        ("Undo", "Rolling back: returning 1 node to service"),
        ("Over", "Finished: done"),
    ],
)
def test_command_step_counts_nodes_and_replacements(step: str, expected: str) -> None:
    candidate = CommandCandidate.model_construct(node="n", claim="a", pool="web")
    proposal = Proposal.model_construct(id="p", reason="Drifted", kind="drift", candidates=(candidate,), replacements=2)
    fields: dict[str, Any] = {"step": step, "claims": ("b", "c"), "ready": ("b",)}
    over = CommandFinished(proposal_id="p", ending="done")
    state = CommandState.model_construct(cluster="demo", proposal=proposal, over=over, **fields)
    assert describe_command_step(state) == expected


def test_other_workflows_name_their_blocker_or_current_work() -> None:
    assert describe_provisioning_step(ProvisioningState(cluster="demo")) == "No pod waits for a node"
    blocked = ProvisioningState(cluster="demo", blocked_by="no planner")
    assert describe_provisioning_step(blocked) == "Planning is blocked: no planner"
    failing = NodeClassState(cluster="demo", name="c", ready="False", message="no subnet")
    assert describe_nodeclass_step(failing) == "Not ready: no subnet"
    assert describe_cluster_step(DisruptionState(cluster="demo", eligible=1)).endswith("1 node eligible for disruption")
    down = InterruptionState(cluster="demo", queue="q", messages=SourceState(failing_since=NOW))
    assert describe_interruption_step(down) == "Waiting until AWS responds: queue q unreadable"
    assert describe_interruption_step(InterruptionState(cluster="demo")) == "Reading the instance status"
