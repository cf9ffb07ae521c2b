"""`tenure why` tells a node's story in lines that need no explanation."""

import json
from datetime import UTC, datetime, timedelta

from tenure.cli.nodes.timeline import CALLS, ActivityCall, NodeExplanation, explain_completed
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.disruption.drain import CancelledDrain, DrainState, DrainStatus, EvictionBlocker
from tenure.model.interruption.notices import InterruptionMessage
from tenure.model.interruption.records import ApprovalDecision, TrackedInterruption
from tenure.model.node_health import NotReadyInterval
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimOutcome, NodeClaimState, Phase, Step
from tenure.model.observations import ObservedNodeClaim
from workflows.current_details import (
    describe_drain,
    describe_drift,
    describe_interruption_events,
    describe_not_ready,
    render_nodeclaim,
)

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def test_a_node_that_waits_says_for_what_and_until_when() -> None:
    nodeclaim = NodeClaimSummary(
        workflow_id="demo/nodeclaim/one/1",
        name="one",
        phase="Drain",
        since=START,
        deadline=START + timedelta(hours=1),
        overdue=True,
        blocked_by="pdb default/web",
        node_name="ip-10-0-0-1",
    )
    lines = NodeExplanation(nodeclaim, (Step(phase=Phase.DRAIN, at=START, cause="Empty"),)).format_text().splitlines()
    assert lines[0] == "NodeClaim one · node ip-10-0-0-1"
    assert "  phase       Drain (overdue)" in lines
    assert "  deadline    2026-01-01 13:00:00 UTC" in lines
    assert "  blocked by  pdb default/web" in lines
    assert lines[-1].split() == ["2026-01-01", "12:00:00", "UTC", "Drain", "Empty"]


def test_a_node_that_is_gone_says_what_it_went_for() -> None:
    nodeclaim = NodeClaimSummary(
        workflow_id="demo/nodeclaim/one/1", name="one", phase="Gone", since=START, status="COMPLETED"
    )
    text = NodeExplanation(nodeclaim, (), reason="Expired").format_text()
    assert "went for    Expired" in text
    assert "deadline" not in text and "tenure history" not in text


def test_what_is_known_of_a_node_that_is_gone_outlives_it() -> None:
    nodeclaim = NodeClaimSummary(
        workflow_id="demo/nodeclaim/one/1", name="one", phase="Gone", since=START, status="COMPLETED"
    )
    pods = tuple(f"default/web-{number}" for number in range(10))
    outcome = NodeClaimOutcome(
        name="one",
        uid="1",
        reason="spot_interrupted",
        events=("spotInterruption",),
        drift="AMIDrift: ami-1",
        evicted_pods=pods,
    )
    lines = explain_completed(nodeclaim, outcome).format_text().splitlines()
    assert "  from AWS    spotInterruption" in lines and "  drifted     AMIDrift: ami-1" in lines
    (drained,) = [line for line in lines if line.startswith("  drained of  default/web-0, ")]
    assert drained.endswith("default/web-7 and 2 more")
    assert explain_completed(nodeclaim, outcome).as_json()["drainedOf"] == list(pods)


def test_the_last_calls_are_told_and_where_the_others_are() -> None:
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Drain", since=START)
    made = [ActivityCall(START, f"call-{number}", "is done", 0.5) for number in range(CALLS)]
    all_lines = NodeExplanation(nodeclaim, calls=made).format_text().splitlines()
    assert all_lines[-CALLS - 1] == "  calls; with waits and signals: tenure history one"
    assert all_lines[-1] == f"  2026-01-01 12:00:00 UTC  call-{CALLS - 1} is done, 0.5 s"
    more = NodeExplanation(nodeclaim, calls=[*made, ActivityCall(START, "drain")]).format_text().splitlines()
    assert more[-CALLS - 1] == f"  the last {CALLS} of {CALLS + 1} calls; with waits and signals: tenure history one"
    assert more[-1] == "  2026-01-01 12:00:00 UTC  drain is under way"


def test_without_a_worker_what_visibility_knows_is_still_told() -> None:
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    text = NodeExplanation(nodeclaim, (), remark="its story needs a worker, and none answers: no poller").format_text()
    assert "phase       Ready" in text
    assert "no poller" in text


def test_a_node_that_has_drifted_says_from_what_and_what_comes_of_it() -> None:
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Registration", since=START)
    identity = NodeClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    observed = ObservedNodeClaim(drift="AMIDrift", drift_message="m6i.large runs ami-1")
    lines = (
        NodeExplanation(nodeclaim, (), drift=describe_drift(NodeClaimState(identity=identity, observed=observed)))
        .format_text()
        .splitlines()
    )
    assert "  drifted     AMIDrift: m6i.large runs ami-1; waits for its replacement to be planned" in lines
    assert (
        "drifted"
        not in NodeExplanation(nodeclaim, (), drift=describe_drift(NodeClaimState(identity=identity))).format_text()
    )


def test_a_node_that_a_plan_made_says_what_it_was_bought_for() -> None:
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    assert (
        "  bought for  default/web: m5.large"
        in NodeExplanation(nodeclaim, (), bought_for="default/web: m5.large").format_text().splitlines()
    )
    assert "bought for" not in NodeExplanation(nodeclaim, ()).format_text()


def test_a_node_that_comes_and_goes_says_how_often_and_for_how_long_it_was_away() -> None:
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    identity = NodeClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    intervals = tuple(NotReadyInterval(since=START, until=START + timedelta(seconds=lasted)) for lasted in (50, 40))
    state = NodeClaimState(identity=identity, flaps=3, not_ready_intervals=(*intervals, NotReadyInterval(since=START)))
    now = state.model_copy(update={"observed": ObservedNodeClaim(not_ready_since=START, not_ready_reason="NotReady")})
    [not_ready_line] = [
        line
        for line in NodeExplanation(nodeclaim, (), not_ready=describe_not_ready(now)).format_text().splitlines()
        if line.startswith("  away")
    ]
    assert "since 2026-01-01 12:00:00 UTC: NotReady" in not_ready_line
    assert "3 times since it was initialized, the latest 2 before for 90 s in all" in not_ready_line
    assert (
        "away"
        not in NodeExplanation(
            nodeclaim, (), not_ready=describe_not_ready(NodeClaimState(identity=identity))
        ).format_text()
    )


def test_a_drain_that_is_held_says_by_whom_whether_it_passes_and_what_follows() -> None:
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Drain", since=START)
    blocker = EvictionBlocker(
        subject="default/web", owner="ReplicaSet web-5", cause="budget", what="PDB web", passes="never"
    )
    status = DrainStatus(eviction_blockers=(blocker,), pods=3, pods_in_later_groups=2, follows="escalates at noon")
    identity = NodeClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    state = NodeClaimState(identity=identity, phase=Phase.DRAIN, drain=DrainState(verdict=status))
    lines = NodeExplanation(nodeclaim, (), drain=describe_drain(state)).format_text().splitlines()
    assert "  drain       default/web (ReplicaSet web-5): PDB web; never passes by itself" in lines
    assert "  drain       pods of later groups that wait for these: 2" in lines
    assert "  drain       escalates at noon" in lines
    assert "| drain | escalates at noon |" in render_nodeclaim(state)


def test_a_drain_that_was_given_up_is_remembered() -> None:
    identity = NodeClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    cancelled_drain = CancelledDrain(at=START, retry_at=START + timedelta(hours=1), why="default/web: PDB web")
    page = render_nodeclaim(NodeClaimState(identity=identity, cancelled_drain=cancelled_drain))
    assert "| drain given up | 2026-01-01 12:00:00 UTC: default/web: PDB web |" in page
    assert describe_drain(NodeClaimState(identity=identity)) == ()


def test_what_aws_says_is_shown_with_what_a_person_said_of_it() -> None:
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    notice = InterruptionMessage(kind="scheduledChange", id="e-1", at=START, starts=START, code="instance-stop")
    decision = ApprovalDecision(approved=False, by="ann", at=START)
    identity = NodeClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    state = NodeClaimState(
        identity=identity, notices=(TrackedInterruption(notice=notice, received_at=START, decision=decision),)
    )
    lines = NodeExplanation(nodeclaim, (), events=describe_interruption_events(state)).format_text().splitlines()
    assert "  from AWS    scheduledChange instance-stop at 2026-01-01T12:00:00+00:00, rejected by ann" in lines
    assert "rejected by ann" in render_nodeclaim(state)


def test_as_json_a_story_is_whole_and_plain() -> None:
    nodeclaim = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START, price=0.25)
    step = Step(phase=Phase.LAUNCH, at=START, cause="created")
    result = json.loads(json.dumps(NodeExplanation(nodeclaim, (step,), drift="AMIDrift", expires=START).as_json()))
    assert (result["nodeClaim"], result["pricePerHour"], result["drift"]) == ("one", 0.25, "AMIDrift")
    assert result["expires"] == START.isoformat() and result["steps"][0]["cause"] == "created"


def test_the_page_of_a_node_begins_with_what_it_does_and_what_it_waits_for() -> None:
    identity = NodeClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    calm = render_nodeclaim(NodeClaimState(identity=identity, phase=Phase.INITIALIZATION)).splitlines()
    assert calm[0] == "**The node has joined the cluster and is getting ready.**"
    assert calm[2] == "**Waits for**: the Node to be Ready, and its startup taints to be gone"
    blocked_state = NodeClaimState(
        identity=identity, phase=Phase.DRAIN, overdue=True, blocked_by="pdb default/web allows 0"
    )
    late = render_nodeclaim(blocked_state).splitlines()
    assert late[0] == "**Pods are leaving the node, which is on its way out, past its deadline.**"
    assert late[2].startswith("**Blocked by**: waits for a person: ") and late[2].endswith("pdb default/web allows 0")
