"""`tenure why` explains a node in readable lines."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowQueryFailedError

from tenure.cli.nodes import why
from tenure.cli.nodes.timeline import CALLS, ActivityCall, NodeExplanation, explain_completed
from tenure.cli.nodes.why import PodExplanation
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.base import Message
from tenure.model.blockers import Verdict
from tenure.model.disruption.commands import CommandState, Proposal
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.disruption.drain import CancelledDrain, DrainState, DrainStatus, EvictionBlocker
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.interruption.records import ApprovalDecision, TrackedInterruption
from tenure.model.node_health import NotReadyInterval
from tenure.model.nodeclaim.history import NodeClaimExplanation
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimOutcome, NodeClaimState, Phase, Step
from tenure.model.observations import ObservedNodeClaim
from tenure.model.operator_requests import DisruptionStatus
from tenure.model.signals import REPEAT_QUERY
from workflows.current_details import (
    describe_drain,
    describe_drift,
    describe_interruption_events,
    describe_not_ready,
    explain_nodeclaim,
    render_nodeclaim,
)

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
IDENTITY = NodeClaimIdentity(cluster="demo", name="one", uid="1", created=START)


def nodeclaim(phase: str = "Ready", **fields: Any) -> NodeClaimSummary:
    return NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase=phase, since=START, **fields)


def state(**fields: Any) -> NodeClaimState:
    return NodeClaimState(identity=IDENTITY, **fields)


def lines_of(
    summary: NodeClaimSummary, *steps: Step, remark: str = "", calls: Sequence[ActivityCall] = (), **fields: Any
) -> list[str]:
    found = NodeExplanation(summary, NodeClaimExplanation(steps=steps, **fields), remark=remark, calls=calls)
    return found.format_text().splitlines()


def test_pending_pod_shows_its_verdict_with_times_and_action() -> None:
    verdict = Verdict(
        code="Nominated",
        sentence="Pod should schedule on: nodeclaim/one",
        since=START,
        clears_by_itself=True,
        remedy="wait",
        deadline=START + timedelta(minutes=15),
    )
    found = PodExplanation(DisruptionStatus(pod="shop/web", verdict=verdict))
    assert found.format_text(START + timedelta(minutes=6)).splitlines() == [
        "Pod shop/web",
        "  pending     Nominated: Pod should schedule on: nodeclaim/one",
        "  since       2026-01-01 12:00:00 UTC, 6m00s ago",
        "  deadline    2026-01-01 12:15:00 UTC, in 9m00s",
        "  action      wait",
    ]
    assert found.as_json()["verdict"]["code"] == "Nominated"


def test_blocked_node_shows_since_when() -> None:
    lines = blocked_lines("VolumesAttached", "volume of default/web")
    assert "  blocked by  VolumesAttached: volume of default/web" in lines
    assert "  blocked     since 2026-01-01 12:00:00 UTC, 6m00s ago" in lines
    assert "  action      check the CSI driver's controller" in lines


def test_action_is_not_repeated() -> None:
    lines = blocked_lines("EvictionRefused", "403")
    assert [line for line in lines if "check admission webhooks" in line] == [
        "  blocked by  EvictionRefused: needs attention: check admission webhooks and the worker's permissions; 403"
    ]


def blocked_lines(code: str, blocked_by: str) -> list[str]:
    """`tenure why` of a draining node, six minutes later."""
    blocked = explain_nodeclaim(state(phase=Phase.DRAIN, since=START, blocked_by=blocked_by, blocked_code=code))
    found = NodeExplanation(nodeclaim("Drain"), blocked)
    return found.format_text(START + timedelta(minutes=6)).splitlines()


def test_waiting_node_shows_blocker_and_deadline() -> None:
    drains = nodeclaim(
        "Drain",
        deadline=START + timedelta(hours=1),
        overdue=True,
        blocked_by="pdb default/web",
        node_name="ip-10-0-0-1",
    )
    lines = lines_of(drains, Step(phase=Phase.DRAIN, at=START, cause="Empty"))
    assert lines[0] == "NodeClaim one · node ip-10-0-0-1"
    assert "  phase       Drain (overdue)" in lines
    assert "  deadline    2026-01-01 13:00:00 UTC" in lines
    assert "  blocked by  pdb default/web" in lines
    assert lines[-1].split() == ["2026-01-01", "12:00:00", "UTC", "Drain", "Empty"]


def test_pods_that_a_drain_waits_for_are_not_shown_as_evicted() -> None:
    pods = ("default/web-0",)
    assert not [line for line in lines_of(nodeclaim("Drain"), evicted_pods=pods) if "evicted" in line]
    assert "  evicted     default/web-0" in lines_of(nodeclaim("Termination"), evicted_pods=pods)


def test_known_page_of_the_workflow_is_a_line() -> None:
    assert "  workflow    https://ui/w" in lines_of(nodeclaim(url="https://ui/w"))
    assert not [line for line in lines_of(nodeclaim()) if "workflow" in line]


def test_deleted_node_is_explained_from_outcome() -> None:
    completed = nodeclaim("Gone", status="COMPLETED")
    pods = tuple(f"default/web-{number}" for number in range(10))
    outcome = NodeClaimOutcome(
        name="one",
        uid="1",
        reason="spot_interrupted",
        events=("spotInterruption",),
        drift="AMIDrift: ami-1",
        evicted_pods=pods,
    )
    lines = explain_completed(completed, outcome).format_text().splitlines()
    assert "  from AWS    spotInterruption" in lines and "  drifted     AMIDrift: ami-1" in lines
    assert "  reason      spot_interrupted" in lines
    assert not [line for line in lines if "deadline" in line or "tenure history" in line]
    (drained,) = [line for line in lines if line.startswith("  evicted     default/web-0, ")]
    assert drained.endswith("default/web-7 and 2 more")
    assert explain_completed(completed, outcome).as_json()["drainedOf"] == list(pods)


def test_latest_calls_are_listed_with_history_command() -> None:
    made = [ActivityCall(START, f"call-{number}", "completed", 0.5) for number in range(CALLS)]
    all_lines = lines_of(nodeclaim("Drain"), calls=made)
    assert all_lines[-CALLS - 1] == "  calls; with waits and signals: tenure history one"
    assert all_lines[-1] == f"  2026-01-01 12:00:00 UTC  call-{CALLS - 1} completed, 0.5 s"
    more = lines_of(nodeclaim("Drain"), calls=[*made, ActivityCall(START, "drain")])
    assert more[-CALLS - 1] == f"  the last {CALLS} of {CALLS + 1} calls; with waits and signals: tenure history one"
    assert more[-1] == "  2026-01-01 12:00:00 UTC  drain is running"


DRIFTED = ObservedNodeClaim(drift="AMIDrift", drift_message="m6i.large runs ami-1")
INTERVALS = tuple(NotReadyInterval(since=START, until=START + timedelta(seconds=lasted)) for lasted in (50, 40))
NOT_READY = ObservedNodeClaim(not_ready_since=START, not_ready_reason="NotReady")
BLOCKER = EvictionBlocker(
    subject="default/web", owner="ReplicaSet web-5", cause="budget", what="PDB web", passes="never"
)
DRAINING = state(
    phase=Phase.DRAIN,
    drain=DrainState(
        status=DrainStatus(eviction_blockers=(BLOCKER,), pods=3, pods_in_later_groups=2, follows="escalates at noon")
    ),
)
REJECTED = state(
    interruptions=(
        TrackedInterruption(
            message=InterruptionMessage(kind="scheduledChange", id="e-1", at=START, starts=START, code="instance-stop"),
            received_at=START,
            decision=ApprovalDecision(approved=False, by="ann", at=START),
        ),
    )
)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({}, []),
        ({"remark": "no poller"}, ["  note        no poller"]),
        (
            {"drift": describe_drift(state(observed=DRIFTED))},
            ["  drifted     AMIDrift: m6i.large runs ami-1; waits for its replacement to be planned"],
        ),
        ({"drift": describe_drift(state())}, []),
        ({"bought_for": "default/web: m5.large"}, ["  bought for  default/web: m5.large"]),
        ({"not_ready": describe_not_ready(state())}, []),
        (
            {"drain": describe_drain(DRAINING)},
            [
                "  drain       default/web (ReplicaSet web-5): PDB web; will not clear on its own",
                "  drain       pods of later groups that wait for these: 2",
                "  drain       escalates at noon",
            ],
        ),
        (
            {"events": describe_interruption_events(REJECTED)},
            ["  from AWS    scheduledChange instance-stop at 2026-01-01T12:00:00+00:00, rejected by ann"],
        ),
    ],
    ids=[
        "ready",
        "remark",
        "drifted",
        "not drifted",
        "bought for",
        "never NotReady",
        "blocked drain",
        "rejected event",
    ],
)
def test_each_fact_is_one_line(fields: dict[str, Any], lines: list[str]) -> None:
    """There are no lines for other facts."""
    assert lines_of(nodeclaim(), **fields)[4:] == lines and "  phase       Ready" in lines_of(nodeclaim(), **fields)


def test_flapping_node_shows_count_and_duration() -> None:
    flapping = state(flaps=3, not_ready_intervals=(*INTERVALS, NotReadyInterval(since=START)), observed=NOT_READY)
    [line] = lines_of(nodeclaim(), not_ready=describe_not_ready(flapping))[4:]
    assert line.startswith("  NotReady  ") and "since 2026-01-01 12:00:00 UTC: NotReady" in line
    assert "3 times since it was initialized, the latest 2 before for 90 s in all" in line


def test_details_page_shows_drain_and_decisions() -> None:
    assert "| drain | escalates at noon |" in render_nodeclaim(DRAINING)
    assert "rejected by ann" in render_nodeclaim(REJECTED)
    over = state(
        cancelled_drain=CancelledDrain(at=START, retry_at=START + timedelta(hours=1), why="default/web: PDB web")
    )
    assert "| drain cancelled | 2026-01-01 12:00:00 UTC: default/web: PDB web |" in render_nodeclaim(over)
    assert describe_drain(state()) == ()


@pytest.mark.parametrize(
    ("disruption", "lines"),
    [
        (["not disrupted (Paused; blocks Empty): NodePool web is paused: by ann: audit, until 12:00"], 1),
        (["unknown: no worker responded"], 2),
    ],
)
def test_pause_is_stated_once(disruption: Sequence[str], lines: int) -> None:
    explanation = NodeExplanation(
        nodeclaim(), disruption=disruption, pauses=["NodePool web is paused by ann until 12:00: audit"]
    )
    stated = [line for line in explanation.format_text().splitlines() if "paused" in line or "unknown" in line]
    assert len(stated) == lines and sum("by ann" in line for line in stated) == 1


def test_command_of_the_node_is_a_line() -> None:
    waits = "Drifted (step Permit): the budget allows 0"
    explanation = NodeExplanation(nodeclaim(), commands=(waits,))
    assert f"  command     {waits}" in explanation.format_text().splitlines()
    assert explanation.as_json()["commands"] == [waits]


class FakeCommands:
    """Visibility and queries of running commands, by workflow ID."""

    def __init__(self, **states: CommandState) -> None:
        self.states = states

    async def list_workflows(self, query: str, page_size: int) -> AsyncIterator[Any]:
        for name in self.states:
            yield SimpleNamespace(id=name)

    def get_workflow_handle(self, workflow_id: str) -> Any:
        stored = self.states[workflow_id].model_dump(mode="json")

        async def query(name: str, result_type: type[Message], rpc_timeout: timedelta) -> Message:
            return result_type.model_validate(stored)

        return SimpleNamespace(query=query)


async def test_only_commands_of_the_node_are_described() -> None:
    def command(claim: str) -> CommandState:
        candidate = CommandCandidate(node="n", claim=claim, pool="web")
        proposal = Proposal(id=claim, reason="Drifted", kind="drift", candidates=(candidate,))
        return CommandState(cluster="demo", proposal=proposal, blocked_by="the budget allows 0")

    client = cast(Client, cast(Any, FakeCommands(a=command("one"), b=command("other"))))
    (found,) = await why._describe_commands(client, "demo", "one")
    assert found == "Drifted (step Permit): the budget allows 0"


def test_json_explanation_is_complete() -> None:
    step = Step(phase=Phase.LAUNCH, at=START, cause="created")
    state = NodeClaimExplanation(steps=(step,), drift="AMIDrift", expires=START)
    explanation = NodeExplanation(nodeclaim(price=0.25), state)
    result = json.loads(json.dumps(explanation.as_json()))
    assert (result["nodeClaim"], result["pricePerHour"], result["drift"]) == ("one", 0.25, "AMIDrift")
    assert result["expires"] == START.isoformat() and result["steps"][0]["cause"] == "created"


def test_details_page_starts_with_phase_and_blocker() -> None:
    on_time = render_nodeclaim(state(phase=Phase.INITIALIZATION, node_name="ip-1")).splitlines()
    assert on_time[0] == "**Waiting for Node ip-1 to be ready for pods.**"
    assert on_time[2] == "**Waits for**: the Node to become Ready, and its startup taints to be removed"
    blocked = state(phase=Phase.DRAIN, overdue=True, blocked_by="pdb default/web allows 0")
    late = render_nodeclaim(blocked).splitlines()
    assert late[0] == "**Draining its Node, past its deadline.**"
    assert late[2].startswith("**Blocked by**: needs attention: ") and late[2].endswith("pdb default/web allows 0")


# --- the query ---


class FakeWorkflow:
    """A workflow whose first queries fail with these errors."""

    def __init__(self, *errors: str) -> None:
        self.errors, self.query_count = list(errors), 0

    def get_workflow_handle(self, workflow_id: str) -> "FakeWorkflow":
        return self

    async def query(
        self, name: str, result_type: type[NodeClaimExplanation], rpc_timeout: timedelta
    ) -> NodeClaimExplanation:
        self.query_count += 1
        if self.errors:
            raise WorkflowQueryFailedError(self.errors.pop(0))
        return NodeClaimExplanation.model_construct()


@pytest.mark.parametrize(
    ("errors", "queries", "expected"),
    [
        (["events came with a query, before their workflow task: repeat the query"], 2, ""),
        (["unknown query told"], 1, "older version"),
        ([REPEAT_QUERY] * 9, 4, REPEAT_QUERY),
    ],
    ids=["event before its workflow task", "unknown query", "keeps failing"],
)
async def test_only_early_query_is_repeated(
    errors: list[str], queries: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why, "RETRY_DELAYS_SECONDS", (0.0, 0.0, 0.0))
    workflow = FakeWorkflow(*errors)
    response = await why.query_explanation(cast(Client, cast(Any, workflow)), nodeclaim())
    assert workflow.query_count == queries
    assert expected in response if isinstance(response, str) else not expected
