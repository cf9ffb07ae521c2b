"""The log tells each node's story: one line per step, not repeated at replay."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.model.launch import LaunchedInstance
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.policy.lifecycle.transitions import TRANSITIONS
from tenure.policy.lifecycle.verdict import verdict_of
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.nodeclaim_workflows import delete_nodeclaim, ready_nodeclaim
from tests.unit.workflows.meters import BORN, WHO, FakeMeter
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.node_log import step_line

LAUNCHED = LaunchedInstance(
    claim_uid="uid-a",
    image_id="ami-1",
    provider_id="aws:///us-west-2a/i-1",
    instance_type="m6i.large",
    capacity_type="spot",
    zone="us-west-2a",
)


def step_records(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(one) for one in caplog.records if "step" in vars(one)]


async def test_each_step_of_a_node_is_one_line_although_workflows_replay(
    skipping: WorkflowEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "temporalio.workflow")
    async with WorkerHarness.on(skipping, max_cached_workflows=0).running_worker() as fake:
        handle = await ready_nodeclaim(fake)
        await delete_nodeclaim(fake, handle)
        await handle.result()
    records = [one for one in step_records(caplog) if "code" not in one]
    assert [(one["msg"].partition(" (")[0], one["step"]) for one in records] == [
        ("created nodeclaim", "Creation"),
        ("launched nodeclaim", "Launch"),
        ("registered nodeclaim", "Registration"),
        ("initialized nodeclaim", "Initialization"),
        ("draining node", "Ready"),
        ("drained node", "Drain"),
        ("deleted nodeclaim", "Termination"),
    ]
    assert {one["NodeClaim"]["name"] for one in records} == {"a"}
    assert [one.get("Node") for one in records] == [None, None, *[{"name": "node-a"}] * 5]
    assert all(one["provider-id"].startswith("aws:///") and one["instance-type"] for one in records[1:])
    assert records[-1]["reason"] and all(one["duration-seconds"] >= 0 for one in records)


@pytest.mark.parametrize("before", TRANSITIONS)
def test_each_transition_has_a_line_with_duration_and_reason(before: Phase) -> None:
    for after in TRANSITIONS[before]:
        state = NodeClaimState(identity=WHO, phase=before, since=BORN, node_name="node-a", launched=LAUNCHED)
        message, fields = step_line(state, after, "because", BORN + timedelta(seconds=90))
        assert message and fields == {
            "NodeClaim": {"name": "a"},
            "NodePool": {"name": "general"},
            "Node": {"name": "node-a"},
            "provider-id": "aws:///us-west-2a/i-1",
            "instance-type": "m6i.large",
            "zone": "us-west-2a",
            "capacity-type": "spot",
            "step": before.value,
            "duration-seconds": 90.0,
            "reason": "because",
        }


def test_nodeclaim_without_instance_terminates_none() -> None:
    state = NodeClaimState(identity=WHO, since=BORN)
    message, fields = step_line(state, Phase.TERMINATION, "LaunchFailed", BORN)
    assert message == "deleting nodeclaim" and "provider-id" not in fields


def test_created_nodeclaim_names_the_pods_that_need_it() -> None:
    identity = WHO.model_copy(update={"why": "pod web/a"})
    _, fields = step_line(NodeClaimState(identity=identity), Phase.LAUNCH, "created", BORN + timedelta(seconds=2))
    assert (fields["step"], fields["duration-seconds"], fields["reason"]) == ("Creation", 2.0, "pod web/a")


def test_deleted_nodeclaim_names_the_reason_of_its_deletion() -> None:
    state = NodeClaimState(identity=WHO, phase=Phase.TERMINATION, since=BORN, disruption="Expired")
    _, fields = step_line(state, Phase.DELETED, "instance gone", BORN)
    assert fields["reason"] == "Expired"


def test_new_blocker_is_one_line_with_its_code(meter: FakeMeter, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    context = NodeClaimContext(NodeClaimState(identity=WHO, phase=Phase.INITIALIZATION, since=BORN))
    for _ in range(2):
        context.set_blocked_by("NodeNotReady: the kubelet does not report Ready")
        context.publish_status()
    context.mark_overdue()
    records = step_records(caplog)
    assert [(one["levelname"], one["message"], one["code"]) for one in records] == [
        ("INFO", "blocked nodeclaim", "NodeNotReady"),
        ("WARNING", "blocked nodeclaim", "NodeNotReady"),
    ]
    assert records[0]["reason"] == "NodeNotReady: the kubelet does not report Ready"
    assert records[1]["reason"] == getattr(verdict_of(context.state), "sentence", "")
    assert records[0]["NodeClaim"] == {"name": "a"} and records[0]["step"] == "Initialization"


@pytest.mark.parametrize(("code", "lines"), [("LaunchFailed", 2), ("NodeNotReady", 1)])
def test_new_sentence_is_a_line_if_the_node_needs_attention(
    code: str, lines: int, meter: FakeMeter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    context = NodeClaimContext(NodeClaimState(identity=WHO, since=BORN))
    for error in ("denied", "denied", "no subnet"):
        context.set_blocked_by(f"{code}: {error}")
        context.publish_status()
    assert [one["reason"].partition(f"{code}: ")[2] for one in step_records(caplog)] == ["denied", "no subnet"][:lines]
