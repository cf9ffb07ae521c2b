"""`tenure why` tells a node's story in lines that need no explanation."""

from datetime import UTC, datetime, timedelta

from cli.lives import NodeLife
from cli.why import story
from model.absence import Absence
from model.drains import DrainState, DrainVerdict, GaveUp, Hold
from model.lifecycle import ClaimIdentity, ClaimState, Phase, Step
from model.observations import ClaimSeen
from workflows.details import absent, draining, drifted, of_claim

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
    lines = story(life, (Step(phase=Phase.DRAIN, at=START, cause="Empty"),)).splitlines()
    assert lines[0] == "NodeClaim one · node ip-10-0-0-1"
    assert "  phase       Drain (overdue)" in lines
    assert "  deadline    2026-01-01 13:00:00 UTC" in lines
    assert "  blocked by  pdb default/web" in lines
    assert lines[-1].split() == ["2026-01-01", "12:00:00", "UTC", "Drain", "Empty"]


def test_a_node_that_is_gone_says_what_it_went_for() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Gone", since=START, status="COMPLETED")
    text = story(life, (), reason="Expired")
    assert "went for    Expired" in text
    assert "deadline" not in text


def test_without_a_worker_what_visibility_knows_is_still_told() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    text = story(life, (), note="its story needs a worker, and none answers: no poller")
    assert "phase       Ready" in text
    assert "no poller" in text


def test_a_node_that_has_drifted_says_from_what_and_what_comes_of_it() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Registration", since=START)
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    seen = ClaimSeen(drift="AMIDrift", drift_message="m6i.large runs ami-1")
    lines = story(life, (), drift=drifted(ClaimState(identity=identity, seen=seen))).splitlines()
    assert "  drifted     AMIDrift: m6i.large runs ami-1; waits for its replacement to be planned" in lines
    assert "drifted" not in story(life, (), drift=drifted(ClaimState(identity=identity)))


def test_a_node_that_a_plan_made_says_what_it_was_bought_for() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    assert "  bought for  default/web: m5.large" in story(life, (), bought_for="default/web: m5.large").splitlines()
    assert "bought for" not in story(life, ())


def test_a_node_that_comes_and_goes_says_how_often_and_for_how_long_it_was_away() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=START)
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    stretches = tuple(Absence(since=START, until=START + timedelta(seconds=lasted)) for lasted in (50, 40))
    state = ClaimState(identity=identity, flaps=3, absences=(*stretches, Absence(since=START)))
    now = state.model_copy(update={"seen": ClaimSeen(away_since=START, away_for="NotReady")})
    [told] = [line for line in story(life, (), away=absent(now)).splitlines() if line.startswith("  away")]
    assert "since 2026-01-01 12:00:00 UTC: NotReady" in told
    assert "3 times since it was initialized, the latest 2 before for 90 s in all" in told
    assert "away" not in story(life, (), away=absent(ClaimState(identity=identity)))


def test_a_drain_that_is_held_says_by_whom_whether_it_passes_and_what_follows() -> None:
    life = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Drain", since=START)
    held = Hold(subject="default/web", owner="ReplicaSet web-5", cause="budget", what="PDB web", passes="never")
    verdict = DrainVerdict(holds=(held,), pods=3, later=2, follows="escalates at noon")
    identity = ClaimIdentity(cluster="demo", name="one", uid="1", created=START)
    state = ClaimState(identity=identity, phase=Phase.DRAIN, drain=DrainState(verdict=verdict))
    lines = story(life, (), drain=draining(state)).splitlines()
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
