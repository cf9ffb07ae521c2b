"""From changes to signals: who is told what, what is held back, and what happens when an object is gone."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.common import MetricMeter

from tenure.controller.cache.availability import holds
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.lifecycle_policies import Policies
from tenure.controller.metrics.nodeclaims import OverdueGauges
from tenure.controller.signals.disruption_trigger import Rooms
from tenure.controller.signals.lifecycle_observers import NodeLives
from tenure.controller.signals.notifier import GONE_AFTER, Known, Telling
from tenure.controller.signals.pending_pods import told_apart, unanswered
from tenure.controller.signals.signaller import Signal, Signaller
from tenure.controller.startup_durations import Startup
from tenure.kube.client.list_watch import Delta
from tenure.model.nodeclaim_state import ClaimState, Deadlines
from tenure.model.observations import ClaimSeen, NodeClassSeen, PoolSeen
from tenure.model.operator_requests import PolicyVerdict
from tests.support.controller.builders import NOW, World, at, away, claim, node, node_class, pod, pool, stamp
from tests.unit.controller.fake_temporal import FakeTemporal
from tests.unit.controller.test_policies import policy
from workflows.search_attributes import DEADLINE

ALL = Known(claims=True, nodes=True, pods=True, pools=True, node_classes=True, unplanned=None)
CLAIM = "prod/nodeclaim/c1/uid-c1"


class Told(Signaller):
    """Accepts everything at once."""

    def __init__(self, sent: dict[str, str]) -> None:
        super().__init__(FakeTemporal().client, "queue", sent)
        self.signals: list[Signal] = []

    def offer(self, signal: Signal) -> bool:
        if self.sent.get(signal.workflow_id) == signal.digest:
            return False
        self.sent[signal.workflow_id] = signal.digest
        self.signals.append(signal)
        return True

    def to(self, workflow_id: str) -> list[Any]:
        return [one.argument for one in self.signals if one.workflow_id == workflow_id]


class Stage(World):
    """Caches, and a Telling that is asked to tell."""

    def __init__(self, sent: dict[str, str] | None = None) -> None:
        super().__init__()
        self.nominations = Nominations()
        self.told = Told(sent or {})
        self.numbers = iter(range(1, 1000))
        self.telling = Telling(
            cluster="prod",
            deadlines=Deadlines(),
            caches=self.caches,
            nominations=self.nominations,
            away=away(self),
            signaller=self.told,
            began=NOW,
            number=lambda: next(self.numbers),
            static_capacity=True,
        )

    def tell(self, seconds: float = 0, known: Known = ALL) -> None:
        self.now = at(seconds)
        self.telling.tell(self.caches.take_dirty(), known, self.now)

    def seen(self) -> ClaimSeen:
        """What the claim was told last."""
        last: ClaimSeen = self.told.to(CLAIM)[-1]
        return last


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.hear("nodepools", pool(disruption={"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}))
    stage.hear("ec2nodeclasses", node_class())
    return stage


def running(stage: Stage) -> None:
    stage.hear("nodeclaims", claim("c1", phase="Initialized"))
    stage.hear("nodes", node("n1", of="c1"))


def test_a_new_claim_starts_its_life_with_all_that_is_known_of_it(stage: Stage) -> None:
    marks = {"tenure.sh/launch-group": "p-0", "tenure.sh/replaces": "prod/disruption/1"}
    stage.hear("nodeclaims", claim("c1", annotations=marks))
    stage.tell()
    signal = next(one for one in stage.told.signals if one.workflow_id == CLAIM)
    assert signal.name == "seen" and signal.start is not None and not signal.start.again
    assert signal.start.workflow == "NodeClaimWorkflow" and signal.start.summary == "c1 of general"
    state = signal.start.state
    assert isinstance(state, ClaimState)
    identity = state.identity
    assert (identity.cluster, identity.name, identity.uid, identity.pool) == ("prod", "c1", "uid-c1", "general")
    assert (identity.node_class, identity.group_id, identity.created) == ("default", "p-0", at(-100))
    assert identity.replaces == "prod/disruption/1"


def test_numbers_rise(stage: Stage) -> None:
    stage.hear("nodeclaims", claim("c1"))
    stage.tell()
    stage.hear("nodeclaims", claim("c1", deleting=True))
    stage.tell()
    first, second = stage.told.to(CLAIM)
    assert second.number > first.number and second.deleting


def test_nothing_is_said_of_claims_before_nodes_are_known_and_all_of_it_after(stage: Stage) -> None:
    running(stage)
    stage.tell(known=replace(ALL, nodes=False))
    assert not stage.told.to(CLAIM)
    stage.tell()
    assert stage.seen().node_name == "n1"


def test_without_pods_only_nodes_that_are_up_have_to_wait(stage: Stage) -> None:
    running(stage)
    stage.hear("nodeclaims", claim("c2", phase="Launched"), claim("c3", phase="Initialized", deleting=True))
    stage.tell(known=replace(ALL, pods=False))
    assert not stage.told.to(CLAIM)
    assert stage.told.to("prod/nodeclaim/c2/uid-c2") and stage.told.to("prod/nodeclaim/c3/uid-c3")[0].deleting
    stage.tell()
    assert stage.seen().empty


def test_pools_and_classes_are_told_once_their_owners_are_known(stage: Stage) -> None:
    stage.tell(known=replace(ALL, claims=False))
    assert not stage.told.signals
    stage.tell()
    assert [type(one) for one in stage.told.to("prod/nodepool/general")] == [PoolSeen]
    assert [type(one) for one in stage.told.to("prod/nodeclass/default")] == [NodeClassSeen]


def test_a_node_empties_and_is_told_since_when(stage: Stage) -> None:
    running(stage)
    stage.hear("pods", pod("p", on="n1"))
    stage.tell(1)
    assert not stage.seen().empty and stage.seen().policy == "WhenEmpty/30s"
    stage.now = at(5)
    stage.lose("pods", pod("p", on="n1"))
    stage.tell(5.1)
    assert stage.seen().empty_since == at(5)


def test_a_node_whose_pods_were_told_to_go_is_not_told_that_it_is_empty(stage: Stage) -> None:
    """It hears that AWS takes it back; unless that does not come true."""
    stage.hear("nodeclaims", claim("c1", phase="Initialized"))
    stage.hear("nodes", node("n1", of="c1"))
    stage.hear("pods", pod("p1", on="n1"))
    stage.tell()
    told = len(stage.told.to(CLAIM))
    stage.caches.evacuate("c1", evacuated=True)
    stage.lose("pods", pod("p1", on="n1"))
    stage.tell(5)
    assert len(stage.told.to(CLAIM)) == told
    stage.caches.evacuate("c1", evacuated=False)
    stage.tell(300)
    assert stage.seen().empty


@pytest.mark.parametrize(
    ("said", "tainted", "until"),
    [
        (stamp(-60), True, 240),
        (stamp(-60), False, 0),
        (stamp(-300), True, 0),
        (stamp(3600), True, 0),
        ("lately", True, 0),
        ("2026-03-01T12:00:00", True, 0),
        ("", True, 0),
    ],
)
def test_a_node_that_a_worker_before_emptied_is_not_told_empty_while_aws_may_take_it_back(
    stage: Stage, said: str, tainted: bool, until: float
) -> None:
    """Its message comes again. What is only kept from pods may be emptied by anybody."""
    taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}] if tainted else []
    marks = {"tenure.sh/evacuated": said} if said else {}
    stage.hear("nodeclaims", claim("c1", phase="Initialized"))
    stage.hear("nodes", node("n1", of="c1", taints=taints, annotations=marks))
    stage.tell()
    assert stage.seen().empty == (not until)
    assert [(one.scope, one.name, one.until) for one in holds(stage.caches, stage.now)] == (
        [("node", "c1", at(until))] if until else []
    )
    if until:
        assert stage.telling.next() == at(until)
    stage.tell(until)
    assert stage.seen().empty and not holds(stage.caches, stage.now)


def test_a_node_that_expects_pods_is_told_empty_when_they_had_their_time(stage: Stage) -> None:
    running(stage)
    stage.nominations.renew({"uid-p": "c1"}, at(0))
    stage.tell(1)
    assert not stage.seen().empty and stage.telling.next() == at(110)
    stage.tell(109)
    assert not stage.seen().empty
    stage.tell(110)
    assert stage.seen().empty_since == at(110)


def test_a_pod_is_demand_again_before_the_node_that_expects_it_is_empty(stage: Stage) -> None:
    """A kube-scheduler that is late: the next plan expects the pod there again, and the node never is empty."""
    running(stage)
    stage.hear("pods", pod("p"))
    stage.nominations.renew({"uid-p": "c1"}, at(0))
    assert told_apart(stage.caches, stage.nominations, away(stage), at(19)).lapse == at(20)
    assert [one.uid for one in unanswered(stage.caches, stage.nominations, away(stage), at(20))] == ["uid-p"]
    stage.tell(109)
    stage.nominations.renew({"uid-p": "c1"}, at(109))
    stage.tell(110)
    assert not stage.seen().empty and stage.telling.next() == at(219)


def test_a_node_whose_pods_do_not_come_says_which_after_a_minute(stage: Stage) -> None:
    running(stage)
    for name in ("p", "q"):
        stage.hear("pods", pod(name))
    stage.nominations.renew({"uid-q": "c1"}, at(0))
    stage.nominations.renew({"uid-p": "c1", "uid-q": "c1"}, at(30))
    stage.tell(59)
    assert not stage.seen().awaits and stage.telling.next() == at(60)
    stage.tell(60)
    assert stage.seen().awaits == "pod default/q and others expected here, and not bound by kube-scheduler"
    stage.nominations.renew({"uid-p": "c1", "uid-q": "c1"}, at(70))
    told = len(stage.told.signals)
    stage.caches.touch_claim("c1")
    stage.tell(70)
    assert len(stage.told.signals) == told, "that they are still expected is no news"
    for name in ("p", "q"):
        stage.hear("pods", pod(name, on="n1"))
        stage.nominations.bound(f"uid-{name}", at(71))
    stage.tell(71)
    assert not stage.seen().awaits and not stage.seen().empty


def test_a_node_that_waits_for_pods_of_nodes_that_go_says_so(stage: Stage) -> None:
    running(stage)
    stage.hear("nodeclaims", claim("old", phase="Initialized", deleting=True))
    stage.hear("nodes", node("n-old", of="old"))
    stage.hear("pods", pod("p", on="n-old"))
    stage.nominations.renew({"uid-p": "c1"}, at(0))
    stage.tell(61)
    assert stage.seen().awaits == "pods of nodes that go are expected here"


def test_of_many_pods_the_one_that_waits_longest_is_named_however_others_come_and_go(stage: Stage) -> None:
    running(stage)
    stage.hear("pods", pod("z"), *(pod(f"p{number}") for number in range(9)))
    stage.nominations.renew({"uid-z": "c1"}, at(0))
    stage.nominations.renew({"uid-p0": "c1"}, at(1))
    stage.tell(60)
    told = len(stage.told.signals)
    for number in range(1, 9):
        stage.nominations.renew({f"uid-p{number}": "c1"}, at(60 + number))
        stage.nominations.bound(f"uid-p{number - 1}", at(60 + number))
        stage.caches.touch_claim("c1")
        stage.tell(60 + number)
    assert stage.seen().awaits.startswith("pod default/z and others expected here")
    assert len(stage.told.signals) == told


COMMAND = "prod/disruption/1"


def goes_for_a_command(**more: Any) -> Any:
    """A candidate, which goes once all that was bought for it is ready."""
    raw = claim("old", phase="Initialized", **more)
    mark = {"type": "DisruptionReason", "status": "True", "reason": "Drifted", "message": COMMAND}
    raw["status"]["conditions"].append({**mark, "lastTransitionTime": stamp(-40)})
    return raw


def replaced(stage: Stage) -> None:
    """`c1` is up before the command is done."""
    stage.hear("nodeclaims", claim("c1", phase="Initialized", annotations={"tenure.sh/replaces": COMMAND}))
    stage.hear("nodes", node("n1", of="c1"))
    stage.hear("nodeclaims", goes_for_a_command())
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    stage.hear("nodes", node("n-old", of="old", taints=[taint]))
    stage.hear("pods", pod("p", on="n-old"))


def test_a_replacement_is_not_empty_before_its_command_has_let_the_nodes_go(stage: Stage) -> None:
    """Also where another process made it, and nobody here knows what was expected of it."""
    replaced(stage)
    stage.tell(600)
    assert not stage.seen().empty and stage.seen().awaits == "pods of nodes that go are expected here"
    assert stage.telling.next() == at(620)
    stage.hear("nodeclaims", goes_for_a_command(deleting=True))
    stage.tell(620)
    assert stage.seen().empty, "a plan has had time to say where its pods go"


def test_a_node_is_empty_when_the_command_that_it_was_bought_for_is_undone(stage: Stage) -> None:
    replaced(stage)
    stage.tell(60)
    assert not stage.seen().empty
    stage.hear("nodeclaims", claim("old", phase="Initialized"))
    stage.tell(80)
    assert stage.seen().empty


def test_a_replacement_does_not_wait_for_a_command_that_must_be_over(stage: Stage) -> None:
    """One that a person terminated leaves its marks until they are found."""
    replaced(stage)
    stage.tell(3600)
    assert not stage.seen().empty
    stage.tell(2 * 3600)
    assert stage.seen().empty


def test_a_node_that_a_budget_keeps_waiting_for_its_pods_is_not_empty(stage: Stage) -> None:
    running(stage)
    stage.hear("nodeclaims", claim("old", phase="Initialized", deleting=True))
    stage.hear("nodes", node("n-old", of="old"))
    stage.hear("pods", pod("p", on="n-old"))
    stage.caches.on_pod_gone = lambda one: stage.nominations.gone(one.uid, one.owner_uid, stage.now)
    stage.nominations.renew({"uid-p": "c1"}, at(0))
    for seconds in (10, 30, 600):
        stage.caches.touch_claim("c1")
        stage.tell(seconds)
        assert not stage.seen().empty
    stage.lose("pods", pod("p", on="n-old"))
    stage.tell(619)
    assert not stage.seen().empty
    stage.tell(620)
    assert stage.seen().empty and stage.seen().empty_since == at(620)


def test_a_node_that_is_away_and_expected_back_is_not_empty_while_pods_wait_for_it(stage: Stage) -> None:
    running(stage)
    stage.nominations.renew({"uid-p": "c1"}, at(0))
    stage.hear("nodes", node("n1", of="c1", ready=False))
    stage.tell(100)
    seen = stage.seen()
    assert not seen.empty and not seen.node_ready and (seen.away_since, seen.away_for) == (at(-40), "NotReady")
    assert stage.telling.next() == at(260)
    stage.tell(260)
    assert stage.seen().empty_since == at(110)


def test_a_new_host_holds_back_emptiness_while_pending_pods_may_be_on_their_way(stage: Stage) -> None:
    running(stage)
    young = replace(ALL, unplanned=at(30))
    stage.tell(1, young)
    assert not stage.seen().empty and stage.telling.next() == at(30)
    stage.tell(30)
    assert stage.seen().empty


def test_a_node_that_was_up_before_the_host_counts_as_empty_only_since_then(stage: Stage) -> None:
    running(stage)
    stage.tell(1)
    assert stage.seen().empty_since == NOW


def test_since_when_a_node_is_empty_survives_a_change_of_hosts(stage: Stage) -> None:
    running(stage)
    stage.hear("pods", pod("p", on="n1"))
    stage.lose("pods", pod("p", on="n1"))
    stage.tell(1)
    successor = Stage(dict(stage.told.sent))
    successor.hear("nodepools", pool(disruption={"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}))
    running(successor)
    successor.tell(100, replace(ALL, unplanned=at(130)))
    assert not successor.told.to(CLAIM), "the same facts are no news, neither is their being carried over"
    successor.hear("nodes", node("n1", of="c1", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    successor.tell(101)
    assert successor.seen().do_not_disrupt and successor.seen().empty_since == stage.seen().empty_since


def test_a_claim_that_left_is_told_only_if_its_life_goes_on_without_it(stage: Stage) -> None:
    running(stage)
    stage.tell()
    stage.hear("nodeclaims", claim("c1", phase="Initialized", deleting=True))
    stage.lose("nodeclaims", claim("c1"))
    stage.tell(1)
    assert len(stage.told.to(CLAIM)) == 1
    stage.tell(1 + GONE_AFTER.total_seconds())
    signal = stage.told.signals[-1]
    assert signal.workflow_id == CLAIM and signal.start is None
    assert isinstance(signal.argument, ClaimSeen) and not signal.argument.exists


def test_expectations_end_with_a_claim_that_is_going(stage: Stage) -> None:
    running(stage)
    stage.nominations.renew({"uid-p": "c1"}, at(0))
    stage.hear("nodeclaims", claim("c1", phase="Initialized", deleting=True))
    stage.tell()
    assert not stage.nominations.expected("c1")


def test_a_pools_workflow_hears_at_most_once_a_second(stage: Stage) -> None:
    stage.tell()
    for number in range(5):
        stage.hear("nodeclaims", claim(f"x{number}", phase="Launched"))
        stage.tell(0.1 * number)
    assert len(stage.told.to("prod/nodepool/general")) == 1
    stage.tell(1)
    assert len(stage.told.to("prod/nodepool/general")) == 2


def test_a_static_pool_hears_of_every_claim_that_comes_and_goes_and_of_nothing_else(stage: Stage) -> None:
    stage.hear("nodepools", pool(replicas=2))
    stage.hear("nodeclaims", claim("x1"), claim("x2"))
    stage.tell()
    stage.hear("nodeclaims", claim("x1", labels={"karpenter.sh/nodepool": "general", "touched": "yes"}))
    stage.tell(2)
    stage.lose("nodeclaims", claim("x1"))
    stage.tell(4)
    stage.hear("nodeclaims", claim("x2", deleting=True))
    stage.tell(6)
    told = stage.told.to("prod/nodepool/general")
    assert [(one.static, one.replicas, one.standing, one.going) for one in told] == [
        ("on", 2, 2, 0),
        ("on", 2, 1, 0),
        ("on", 2, 0, 1),
    ]


def test_a_pool_or_class_that_is_gone_is_told_without_starting_anything(stage: Stage) -> None:
    stage.tell()
    stage.lose("nodepools", pool())
    stage.lose("ec2nodeclasses", node_class())
    stage.tell(1)
    for workflow_id in ("prod/nodepool/general", "prod/nodeclass/default"):
        last = stage.told.signals[-1] if workflow_id.endswith("default") else stage.told.signals[-2]
        assert last.workflow_id == workflow_id and last.start is None
        assert stage.told.to(workflow_id)[-1].exists is False


def test_a_class_that_is_going_hears_of_every_claim_that_leaves(stage: Stage) -> None:
    stage.hear("nodeclaims", claim("a"), claim("b"))
    stage.hear("ec2nodeclasses", node_class(deleting=True))
    stage.tell()
    stage.lose("nodeclaims", claim("a"))
    stage.tell(1)
    assert [one.claims for one in stage.told.to("prod/nodeclass/default")] == [2, 1]


def test_a_life_that_was_lost_is_started_again(stage: Stage) -> None:
    running(stage)
    stage.tell()
    stage.telling.revive(stage.caches.claims["c1"], ALL, at(2))
    signal = stage.told.signals[-1]
    assert signal.workflow_id == CLAIM and signal.start is not None and signal.start.again


def test_one_claim_that_cannot_be_digested_holds_up_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stage.telling.identity

    def broken(one: Any) -> Any:
        if one.name == "bad":
            raise RuntimeError("bug")
        return whole(one)

    monkeypatch.setattr(stage.telling, "identity", broken)
    stage.hear("nodeclaims", claim("bad"), claim("c1"))
    stage.tell()
    assert stage.told.to(CLAIM)


def test_a_watch_that_began_after_a_node_emptied_says_that_it_did_not_see_it(stage: Stage) -> None:
    running(stage)
    stage.tell()
    assert stage.seen().empty and stage.seen().empty_since_unseen
    stage.tell(2)
    assert len(stage.told.to(CLAIM)) == 1, "its own guess is no knowledge"
    stage.hear("pods", pod("p", on="n1"))
    stage.tell(3)
    stage.now = at(5)
    stage.lose("pods", pod("p", on="n1"))
    stage.tell(5.1)
    assert stage.seen().empty_since == at(5) and not stage.seen().empty_since_unseen


def with_policies(stage: Stage) -> Policies:
    policies = Policies(stage.caches, Unwritten(), usual=Deadlines(), now=lambda: stage.now)
    startup = Startup(stage.caches, policies.deadlines_of)
    stage.telling._lives = NodeLives(
        policies,
        startup,
        [OverdueGauges(stage.caches, MetricMeter.noop)],
        ClusterBrake("tenure", stage.caches),
        Rooms(stage.caches, rules_of=policies.rules_of, drifted=lambda one: False),
    )
    return policies


class Unwritten:
    async def say(self, name: str, uid: str, verdict: PolicyVerdict, *, now: datetime) -> bool:
        return True


def test_rules_reach_the_claims_of_their_pool_and_only_those_are_told_anew(stage: Stage) -> None:
    policies = with_policies(stage)
    running(stage)
    stage.hear("nodepools", pool("gpu"))
    stage.hear("nodeclaims", claim("g1", pool="gpu"))
    policies.look(stage.caches._dirty)
    stage.tell(1)
    told = len(stage.told.signals)
    policies.hear([Delta(policy("p", nodePoolSelector={"names": ["general"]}, drain={"deadline": "2h"}))])
    policies.look(stage.caches._dirty)
    stage.tell(2)
    assert [one.workflow_id for one in stage.told.signals[told:]] == [CLAIM]
    rules = stage.seen().rules
    assert rules is not None and rules.drain is not None and rules.drain.deadline == "2h"
    stage.tell(3)
    assert len(stage.told.signals) == told + 1


def test_what_nobody_can_read_of_aws_s_events_reaches_the_claims_of_the_pool(stage: Stage) -> None:
    policies = with_policies(stage)
    running(stage)
    policies.hear([Delta(policy("p", interruption={"scheduledChange": {"lead": "soon"}}))])
    policies.look(stage.caches._dirty)
    stage.tell(1)
    assert "spec.interruption.scheduledChange.lead" in stage.seen().events_unread


def test_claims_are_told_of_once_policies_are_known(stage: Stage) -> None:
    running(stage)
    stage.tell(1, replace(ALL, policies=False))
    assert stage.told.to(CLAIM) == []
    stage.tell(2)
    assert len(stage.told.to(CLAIM)) == 1


def test_what_is_expected_is_worth_no_signal_of_its_own(stage: Stage) -> None:
    with_policies(stage)
    stage.hear("nodeclaims", claim("c1"))
    stage.tell()
    told, lives = len(stage.told.signals), stage.telling._lives
    assert lives is not None
    for number in range(5):
        others = claim(f"o{number}", phase="Initialized", pool="other")
        stage.hear("nodeclaims", others)
    dirty = stage.caches.take_dirty()
    lives.look(dirty, known=True, counted=True)
    stage.caches.touch_claim("c1")
    stage.tell(1)
    assert [one for one in stage.told.signals[told:] if one.workflow_id == CLAIM] == []


def test_a_life_starts_with_what_is_expected_of_it_and_the_deadline_of_its_launch(stage: Stage) -> None:
    policies = with_policies(stage)
    policies.hear([Delta(policy("p", launch={"deadline": "4m"}))])
    stage.hear("nodeclaims", claim("c1"))
    policies.look(stage.caches._dirty)
    stage.tell()
    start = next(one.start for one in stage.told.signals if one.workflow_id == CLAIM)
    assert start is not None and start.attributes is not None
    expected = stage.seen().expected
    assert expected is not None and expected.otherwise.initialization == timedelta(minutes=3)
    assert start.attributes.get(DEADLINE) == at(-100) + timedelta(minutes=4)


def test_a_pool_hears_that_its_budget_may_have_room_and_not_that_it_has_less(stage: Stage) -> None:
    with_policies(stage)
    running(stage)

    def heard(seconds: float) -> list[PoolSeen]:
        lives, dirty = stage.telling._lives, stage.caches.take_dirty()
        assert lives is not None
        lives.look(dirty, known=True, counted=True)
        stage.telling.tell(dirty, ALL, at(seconds))
        return stage.told.to("prod/nodepool/general")

    assert [one.freed for one in heard(0)] == [0]
    stage.hear("nodes", node("n1", of="c1", ready=False))
    assert len(heard(5)) == 1
    stage.hear("nodes", node("n1", of="c1"))
    first, second = heard(10)
    assert second.freed > 0 and second.is_room_alone(first)
