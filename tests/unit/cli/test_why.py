"""`tenure why` tells a node's story in lines that need no explanation."""

import json
from datetime import UTC, datetime, timedelta

from tenure.cli.nodes.timeline import CALLS, Call, Story, ended
from tenure.cli.nodes.workflows import NodeLife
from tenure.model.disruption.drain import DrainState, DrainVerdict, GaveUp, Hold
from tenure.model.interruption.notices import Notice
from tenure.model.interruption.records import Answer, Remembered
from tenure.model.node_health import Absence
from tenure.model.nodeclaim_state import ClaimIdentity, ClaimOutcome, ClaimState, Phase, Step
from tenure.model.observations import ClaimSeen
from workflows.current_details import absent, announced, draining, drifted, of_claim

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def test_a_node_that_waits_says_for_what_and_until_when() -> None:
    life = NodeLife(
        workflow_id="demo/nodeclaim/one/1",
        name="one",
        phase="Drain",
        since=START,
        deadline=START + timedelta(hours=1),
        overdue=True,
        blocked_by="pdb default/web",
        node_name="ip-10-0-0-1",
    )
    lines = Story(life, (Step(phase=Phase.DRAIN, at=START, cause="Empty"),)).text().splitlines()
    assert lines[0] == "NodeClaim one · node ip-10-0-0-1"
    assert "  phase       Drain (overdue)" in lines
    assert "  deadline    2026-01-01 13:00:00 UTC" in lines
    assert "  blocked by  pdb default/web" in lines
    assert lines[-1].split() == ["2026-01-01", "12:00:00", "UTC", "Drain", "Empty"]


def test_a_node_that_is_gone_says_what_it_went_for() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Gone", since=START, status="COMPLETED")
    text = Story(life, (), reason="Expired").text()
    assert "went for    Expired" in text
    assert "deadline" not in text and "tenure history" not in text


def test_what_is_known_of_a_node_that_is_gone_outlives_it() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Gone", since=START, status="COMPLETED")
    pods = tuple(f"default/web-{number}" for number in range(10))
    outcome = ClaimOutcome(
        name="one", uid="1", reason="spot_interrupted", events=("spotInterruption",), drift="AMIDrift: ami-1", left=pods
    )
    lines = ended(life, outcome).text().splitlines()
    assert "  from AWS    spotInterruption" in lines and "  drifted     AMIDrift: ami-1" in lines
    (drained,) = [line for line in lines if line.startswith("  drained of  default/web-0, ")]
    assert drained.endswith("default/web-7 and 2 more")
    assert ended(life, outcome).as_json()["drainedOf"] == list(pods)


def test_the_last_calls_are_told_and_where_the_others_are() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Drain", since=START)
    made = [Call(START, f"call-{number}", "is done", 0.5) for number in range(CALLS)]
    whole = Story(life, calls=made).text().splitlines()
    assert whole[-CALLS - 1] == "  calls; with waits and signals: tenure history one"
    assert whole[-1] == f"  2026-01-01 12:00:00 UTC  call-{CALLS - 1} is done, 0.5 s"
    more = Story(life, calls=[*made, Call(START, "drain")]).text().splitlines()
    assert more[-CALLS - 1] == f"  the last {CALLS} of {CALLS + 1} calls; with waits and signals: tenure history one"
    assert more[-1] == "  2026-01-01 12:00:00 UTC  drain is under way"


def test_without_a_worker_what_visibility_knows_is_still_told() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    text = Story(life, (), note="its story needs a worker, and none answers: no poller").text()
    assert "phase       Ready" in text
    assert "no poller" in text


def test_a_node_that_has_drifted_says_from_what_and_what_comes_of_it() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Registration", since=START)
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    seen = ClaimSeen(drift="AMIDrift", drift_message="m6i.large runs ami-1")
    lines = Story(life, (), drift=drifted(ClaimState(identity=identity, seen=seen))).text().splitlines()
    assert "  drifted     AMIDrift: m6i.large runs ami-1; waits for its replacement to be planned" in lines
    assert "drifted" not in Story(life, (), drift=drifted(ClaimState(identity=identity))).text()


def test_a_node_that_a_plan_made_says_what_it_was_bought_for() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    assert (
        "  bought for  default/web: m5.large" in Story(life, (), bought_for="default/web: m5.large").text().splitlines()
    )
    assert "bought for" not in Story(life, ()).text()


def test_a_node_that_comes_and_goes_says_how_often_and_for_how_long_it_was_away() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    stretches = tuple(Absence(since=START, until=START + timedelta(seconds=lasted)) for lasted in (50, 40))
    state = ClaimState(identity=identity, flaps=3, absences=(*stretches, Absence(since=START)))
    now = state.model_copy(update={"seen": ClaimSeen(away_since=START, away_for="NotReady")})
    [told] = [line for line in Story(life, (), away=absent(now)).text().splitlines() if line.startswith("  away")]
    assert "since 2026-01-01 12:00:00 UTC: NotReady" in told
    assert "3 times since it was initialized, the latest 2 before for 90 s in all" in told
    assert "away" not in Story(life, (), away=absent(ClaimState(identity=identity))).text()


def test_a_drain_that_is_held_says_by_whom_whether_it_passes_and_what_follows() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Drain", since=START)
    held = Hold(subject="default/web", owner="ReplicaSet web-5", cause="budget", what="PDB web", passes="never")
    verdict = DrainVerdict(holds=(held,), pods=3, later=2, follows="escalates at noon")
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    state = ClaimState(identity=identity, phase=Phase.DRAIN, drain=DrainState(verdict=verdict))
    lines = Story(life, (), drain=draining(state)).text().splitlines()
    assert "  drain       default/web (ReplicaSet web-5): PDB web; never passes by itself" in lines
    assert "  drain       pods of later groups that wait for these: 2" in lines
    assert "  drain       escalates at noon" in lines
    assert "| drain | escalates at noon |" in of_claim(state)


def test_a_drain_that_was_given_up_is_remembered() -> None:
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    gave_up = GaveUp(at=START, again=START + timedelta(hours=1), why="default/web: PDB web")
    shown = of_claim(ClaimState(identity=identity, gave_up=gave_up))
    assert "| drain given up | 2026-01-01 12:00:00 UTC: default/web: PDB web |" in shown
    assert draining(ClaimState(identity=identity)) == ()


def test_what_aws_says_is_shown_with_what_a_person_said_of_it() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    notice = Notice(kind="scheduledChange", id="e-1", at=START, starts=START, code="instance-stop")
    answer = Answer(approved=False, by="ann", at=START)
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    state = ClaimState(identity=identity, notices=(Remembered(notice=notice, heard=START, answer=answer),))
    lines = Story(life, (), events=announced(state)).text().splitlines()
    assert "  from AWS    scheduledChange instance-stop at 2026-01-01T12:00:00+00:00, rejected by ann" in lines
    assert "rejected by ann" in of_claim(state)


def test_as_json_a_story_is_whole_and_plain() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START, price=0.25)
    step = Step(phase=Phase.LAUNCH, at=START, cause="created")
    told = json.loads(json.dumps(Story(life, (step,), drift="AMIDrift", expires=START).as_json()))
    assert (told["nodeClaim"], told["pricePerHour"], told["drift"]) == ("one", 0.25, "AMIDrift")
    assert told["expires"] == START.isoformat() and told["steps"][0]["cause"] == "created"


def test_the_page_of_a_node_begins_with_what_it_does_and_what_it_waits_for() -> None:
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    calm = of_claim(ClaimState(identity=identity, phase=Phase.INITIALIZATION)).splitlines()
    assert calm[0] == "**The node has joined the cluster and is getting ready.**"
    assert calm[2] == "**Waits for**: the Node to be Ready, and its startup taints to be gone"
    held = ClaimState(identity=identity, phase=Phase.DRAIN, overdue=True, blocked_by="pdb default/web allows 0")
    late = of_claim(held).splitlines()
    assert late[0] == "**Pods are leaving the node, which is on its way out, past its deadline.**"
    assert late[2].startswith("**Blocked by**: waits for a person: ") and late[2].endswith("pdb default/web allows 0")
