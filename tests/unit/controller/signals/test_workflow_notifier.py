"""From changes to signals: who is told what, what is held back, and what happens when an object is gone."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.controller.cache.availability import early_eviction_holds
from tenure.controller.cache.dirty import SyncedKinds
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.signals.lifecycle_observers import LifecycleObservers
from tenure.controller.signals.notifier import DELETED_NOTIFY_DELAY, WorkflowNotifier
from tenure.controller.signals.pending_pods import classify_pods, list_pending_pods
from tenure.kube.client.list_watch import Delta
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.nodeclaim.state import Deadlines, NodeClaimState
from tenure.model.observations import ObservedNodeClaim, ObservedNodeClass, ObservedNodePool
from tenure.model.operator_requests import PolicyValidation
from tenure.policy.policy_features import PolicyFeatures
from tests.support.controller.builders import (
    NOW,
    CacheHarness,
    at,
    claim,
    node,
    node_class,
    not_ready_tracker,
    pod,
    pool,
    stamp,
)
from tests.unit.controller.fake_temporal import RecordingSignalQueue
from tests.unit.controller.test_lifecycle_policies import policy
from workflows.search_attributes import DEADLINE

ALL_SYNCED = SyncedKinds(nodeclaims=True, nodes=True, pods=True, nodepools=True, nodeclasses=True, warm_up_until=None)
CLAIM = "prod/nodeclaim/c1/uid-c1"


class NotifierHarness(CacheHarness):
    """Caches, and a Telling that is asked to tell."""

    def __init__(self, sent: dict[str, str] | None = None) -> None:
        super().__init__()
        self.nominations = Nominations()
        self.signal_queue = RecordingSignalQueue(sent)
        self.numbers = iter(range(1, 1000))
        self.notifier = WorkflowNotifier(
            cluster="prod",
            deadlines=Deadlines(),
            cache=self.cache,
            nominations=self.nominations,
            not_ready=not_ready_tracker(self),
            signal_queue=self.signal_queue,
            began=NOW,
            number=lambda: next(self.numbers),
            discovered=lambda node_class: DiscoveredCapacity(images={node_class: {"m5.large": 7640}}),
            static_capacity=True,
        )

    def notify(self, seconds: float = 0, known: SyncedKinds = ALL_SYNCED) -> None:
        self.now = at(seconds)
        self.notifier.notify(self.cache.drain_changes(), known, self.now)

    def last_observed(self) -> ObservedNodeClaim:
        """What the claim was told last."""
        last: ObservedNodeClaim = self.signal_queue.arguments_to(CLAIM)[-1]
        return last


@pytest.fixture
def harness() -> NotifierHarness:
    harness = NotifierHarness()
    harness.apply_objects("nodepools", pool(disruption={"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}))
    harness.apply_objects("ec2nodeclasses", node_class())
    return harness


def test_a_new_claim_starts_its_life_with_all_that_is_known_of_it(harness: NotifierHarness) -> None:
    annotations = {"tenure.sh/launch-group": "p-0", "tenure.sh/replaces": "prod/disruption/1"}
    harness.apply_objects("nodeclaims", claim("c1", annotations=annotations))
    harness.notify()
    signal = next(one for one in harness.signal_queue.signals if one.workflow_id == CLAIM)
    assert signal.name == "observe" and signal.start is not None and not signal.start.allow_restart
    assert signal.start.workflow == "NodeClaim" and signal.start.summary == "c1 of general"
    state = signal.start.state
    assert isinstance(state, NodeClaimState)
    identity = state.identity
    assert (identity.cluster, identity.name, identity.uid, identity.pool) == ("prod", "c1", "uid-c1", "general")
    assert (identity.node_class, identity.group_id, identity.created) == ("default", "p-0", at(-100))
    assert identity.replaces == "prod/disruption/1"


@pytest.mark.parametrize(
    ("fields", "images"),
    [
        ({"labels": {}}, {"default": {"m5.large": 7640}}),
        ({"labels": {}, "phase": "Launched"}, {}),
        ({}, {}),
    ],
    ids=["of no pool", "launched", "of a pool"],
)
def test_a_claim_that_launches_itself_starts_with_what_nodes_of_its_class_have_shown(
    harness: NotifierHarness, fields: dict[str, Any], images: dict[str, dict[str, int]]
) -> None:
    harness.apply_objects("nodeclaims", claim("c1", **fields))
    harness.notify()
    start = next(one.start for one in harness.signal_queue.signals if one.workflow_id == CLAIM)
    assert start is not None and isinstance(start.state, NodeClaimState)
    assert start.state.discovered == DiscoveredCapacity(images=images)


def test_numbers_rise(harness: NotifierHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c1"))
    harness.notify()
    harness.apply_objects("nodeclaims", claim("c1", deleting=True))
    harness.notify()
    first, second = harness.signal_queue.arguments_to(CLAIM)
    assert second.number > first.number and second.deleting


def test_nothing_is_said_of_claims_before_nodes_are_known_and_all_of_it_after(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify(known=replace(ALL_SYNCED, nodes=False))
    assert not harness.signal_queue.arguments_to(CLAIM)
    harness.notify()
    assert harness.last_observed().node_name == "n1"


def test_without_pods_only_nodes_that_are_up_have_to_wait(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("nodeclaims", claim("c2", phase="Launched"), claim("c3", phase="Initialized", deleting=True))
    harness.notify(known=replace(ALL_SYNCED, pods=False))
    assert not harness.signal_queue.arguments_to(CLAIM)
    assert (
        harness.signal_queue.arguments_to("prod/nodeclaim/c2/uid-c2")
        and harness.signal_queue.arguments_to("prod/nodeclaim/c3/uid-c3")[0].deleting
    )
    harness.notify()
    assert harness.last_observed().empty


def test_pools_and_classes_are_told_once_their_owners_are_known(harness: NotifierHarness) -> None:
    harness.notify(known=replace(ALL_SYNCED, nodeclaims=False))
    assert not harness.signal_queue.signals
    harness.notify()
    assert [type(one) for one in harness.signal_queue.arguments_to("prod/nodepool/general")] == [ObservedNodePool]
    assert [type(one) for one in harness.signal_queue.arguments_to("prod/nodeclass/default")] == [ObservedNodeClass]


def test_a_node_empties_and_is_told_since_when(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("pods", pod("p", on="n1"))
    harness.notify(1)
    assert not harness.last_observed().empty and harness.last_observed().consolidation == "WhenEmpty/30s"
    harness.now = at(5)
    harness.delete_objects("pods", pod("p", on="n1"))
    harness.notify(5.1)
    assert harness.last_observed().empty_since == at(5)


def test_a_node_whose_pods_were_told_to_go_is_not_told_that_it_is_empty(harness: NotifierHarness) -> None:
    """It hears that AWS takes it back; unless that does not come true."""
    harness.add_running_node()
    harness.apply_objects("pods", pod("p1", on="n1"))
    harness.notify()
    signal_count = len(harness.signal_queue.arguments_to(CLAIM))
    harness.cache.set_early_evicted("c1", early_evicted=True)
    harness.delete_objects("pods", pod("p1", on="n1"))
    harness.notify(5)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == signal_count
    harness.cache.set_early_evicted("c1", early_evicted=False)
    harness.notify(300)
    assert harness.last_observed().empty


@pytest.mark.parametrize(
    ("evicted_at", "tainted", "until"),
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
    harness: NotifierHarness, evicted_at: str, tainted: bool, until: float
) -> None:
    """Its message comes again. What is only kept from pods may be emptied by anybody."""
    taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}] if tainted else []
    annotations = {"tenure.sh/early-evicted-at": evicted_at} if evicted_at else {}
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    harness.apply_objects("nodes", node("n1", of="c1", taints=taints, annotations=annotations))
    harness.notify()
    assert harness.last_observed().empty == (not until)
    assert [(one.scope, one.name, one.until) for one in early_eviction_holds(harness.cache, harness.now)] == (
        [("node", "c1", at(until))] if until else []
    )
    if until:
        assert harness.notifier.next_due_at() == at(until)
    harness.notify(until)
    assert harness.last_observed().empty and not early_eviction_holds(harness.cache, harness.now)


def test_a_node_that_expects_pods_is_told_empty_when_they_had_their_time(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.notify(1)
    assert not harness.last_observed().empty and harness.notifier.next_due_at() == at(110)
    harness.notify(109)
    assert not harness.last_observed().empty
    harness.notify(110)
    assert harness.last_observed().empty_since == at(110)


def test_a_pod_is_demand_again_before_the_node_that_expects_it_is_empty(harness: NotifierHarness) -> None:
    """A kube-scheduler that is late: the next plan expects the pod there again, and the node never is empty."""
    harness.add_running_node()
    harness.apply_objects("pods", pod("p"))
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    assert classify_pods(harness.cache, harness.nominations, not_ready_tracker(harness), at(19)).next_expiry == at(20)
    assert [
        one.uid for one in list_pending_pods(harness.cache, harness.nominations, not_ready_tracker(harness), at(20))
    ] == ["uid-p"]
    harness.notify(109)
    harness.nominations.nominate({"uid-p": "c1"}, at(109))
    harness.notify(110)
    assert not harness.last_observed().empty and harness.notifier.next_due_at() == at(219)


def test_a_node_whose_pods_do_not_come_says_which_after_a_minute(harness: NotifierHarness) -> None:
    harness.add_running_node()
    for name in ("p", "q"):
        harness.apply_objects("pods", pod(name))
    harness.nominations.nominate({"uid-q": "c1"}, at(0))
    harness.nominations.nominate({"uid-p": "c1", "uid-q": "c1"}, at(30))
    harness.notify(59)
    assert not harness.last_observed().awaited_pods and harness.notifier.next_due_at() == at(60)
    harness.notify(60)
    assert (
        harness.last_observed().awaited_pods
        == "pod default/q and others expected here, and not bound by kube-scheduler"
    )
    harness.nominations.nominate({"uid-p": "c1", "uid-q": "c1"}, at(70))
    signal_count = len(harness.signal_queue.signals)
    harness.cache.requeue_nodeclaim("c1")
    harness.notify(70)
    assert len(harness.signal_queue.signals) == signal_count, "that they are still expected is no news"
    for name in ("p", "q"):
        harness.apply_objects("pods", pod(name, on="n1"))
        harness.nominations.on_pod_bound(f"uid-{name}", at(71))
    harness.notify(71)
    assert not harness.last_observed().awaited_pods and not harness.last_observed().empty


def test_a_node_that_waits_for_pods_of_nodes_that_go_says_so(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.apply_objects("pods", pod("p", on="n-old"))
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.notify(61)
    assert harness.last_observed().awaited_pods == "pods of nodes that go are expected here"


def test_of_many_pods_the_one_that_waits_longest_is_named_however_others_come_and_go(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("pods", pod("z"), *(pod(f"p{number}") for number in range(9)))
    harness.nominations.nominate({"uid-z": "c1"}, at(0))
    harness.nominations.nominate({"uid-p0": "c1"}, at(1))
    harness.notify(60)
    signal_count = len(harness.signal_queue.signals)
    for number in range(1, 9):
        harness.nominations.nominate({f"uid-p{number}": "c1"}, at(60 + number))
        harness.nominations.on_pod_bound(f"uid-p{number - 1}", at(60 + number))
        harness.cache.requeue_nodeclaim("c1")
        harness.notify(60 + number)
    assert harness.last_observed().awaited_pods.startswith("pod default/z and others expected here")
    assert len(harness.signal_queue.signals) == signal_count


COMMAND = "prod/disruption/1"


def disrupted_nodeclaim(**more: Any) -> Any:
    """A candidate, which goes once all that was bought for it is ready."""
    raw = claim("old", phase="Initialized", **more)
    condition = {"type": "DisruptionReason", "status": "True", "reason": "Drifted", "message": COMMAND}
    raw["status"]["conditions"].append({**condition, "lastTransitionTime": stamp(-40)})
    return raw


def add_replacement(harness: NotifierHarness) -> None:
    """`c1` is up before the command is done."""
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized", annotations={"tenure.sh/replaces": COMMAND}))
    harness.apply_objects("nodes", node("n1", of="c1"))
    harness.apply_objects("nodeclaims", disrupted_nodeclaim())
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    harness.apply_objects("nodes", node("n-old", of="old", taints=[taint]))
    harness.apply_objects("pods", pod("p", on="n-old"))


def test_a_replacement_is_not_empty_before_its_command_has_let_the_nodes_go(harness: NotifierHarness) -> None:
    """Also where another process made it, and nobody here knows what was expected of it."""
    add_replacement(harness)
    harness.notify(600)
    assert (
        not harness.last_observed().empty
        and harness.last_observed().awaited_pods == "pods of nodes that go are expected here"
    )
    assert harness.notifier.next_due_at() == at(620)
    harness.apply_objects("nodeclaims", disrupted_nodeclaim(deleting=True))
    harness.notify(620)
    assert harness.last_observed().empty, "a plan has had time to say where its pods go"


def test_a_node_is_empty_when_the_command_that_it_was_bought_for_is_undone(harness: NotifierHarness) -> None:
    add_replacement(harness)
    harness.notify(60)
    assert not harness.last_observed().empty
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized"))
    harness.notify(80)
    assert harness.last_observed().empty


def test_a_replacement_does_not_wait_for_a_command_that_must_be_over(harness: NotifierHarness) -> None:
    """One that a person terminated leaves its marks until they are found."""
    add_replacement(harness)
    harness.notify(3600)
    assert not harness.last_observed().empty
    harness.notify(2 * 3600)
    assert harness.last_observed().empty


def test_a_node_that_a_budget_keeps_waiting_for_its_pods_is_not_empty(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.apply_objects("pods", pod("p", on="n-old"))
    harness.nominations.subscribe_to(harness.cache, lambda: harness.now)
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    for seconds in (10, 30, 600):
        harness.cache.requeue_nodeclaim("c1")
        harness.notify(seconds)
        assert not harness.last_observed().empty
    harness.delete_objects("pods", pod("p", on="n-old"))
    harness.notify(619)
    assert not harness.last_observed().empty
    harness.notify(620)
    assert harness.last_observed().empty and harness.last_observed().empty_since == at(620)


def test_a_node_that_is_away_and_expected_back_is_not_empty_while_pods_wait_for_it(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    harness.notify(100)
    observed = harness.last_observed()
    assert (
        not observed.empty
        and not observed.node_ready
        and (observed.not_ready_since, observed.not_ready_reason) == (at(-40), "NotReady")
    )
    assert harness.notifier.next_due_at() == at(260)
    harness.notify(260)
    assert harness.last_observed().empty_since == at(110)


def test_a_new_host_holds_back_emptiness_while_pending_pods_may_be_on_their_way(harness: NotifierHarness) -> None:
    harness.add_running_node()
    young = replace(ALL_SYNCED, warm_up_until=at(30))
    harness.notify(1, young)
    assert not harness.last_observed().empty and harness.notifier.next_due_at() == at(30)
    harness.notify(30)
    assert harness.last_observed().empty


def test_a_node_that_was_up_before_the_host_counts_as_empty_only_since_then(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify(1)
    assert harness.last_observed().empty_since == NOW


def test_since_when_a_node_is_empty_survives_a_change_of_hosts(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("pods", pod("p", on="n1"))
    harness.delete_objects("pods", pod("p", on="n1"))
    harness.notify(1)
    successor = NotifierHarness(dict(harness.signal_queue.sent))
    successor.apply_objects(
        "nodepools", pool(disruption={"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"})
    )
    successor.add_running_node()
    successor.notify(100, replace(ALL_SYNCED, warm_up_until=at(130)))
    assert not successor.signal_queue.arguments_to(CLAIM), (
        "the same facts are no news, neither is their being carried over"
    )
    successor.apply_objects("nodes", node("n1", of="c1", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    successor.notify(101)
    assert (
        successor.last_observed().do_not_disrupt
        and successor.last_observed().empty_since == harness.last_observed().empty_since
    )


def test_a_claim_that_left_is_told_only_if_its_life_goes_on_without_it(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify()
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized", deleting=True))
    harness.delete_objects("nodeclaims", claim("c1"))
    harness.notify(1)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == 1
    harness.notify(1 + DELETED_NOTIFY_DELAY.total_seconds())
    signal = harness.signal_queue.signals[-1]
    assert signal.workflow_id == CLAIM and signal.start is None
    assert isinstance(signal.argument, ObservedNodeClaim) and not signal.argument.exists


def test_expectations_end_with_a_claim_that_is_going(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized", deleting=True))
    harness.notify()
    assert not harness.nominations.is_expecting("c1")


def test_a_pools_workflow_hears_at_most_once_a_second(harness: NotifierHarness) -> None:
    harness.notify()
    for number in range(5):
        harness.apply_objects("nodeclaims", claim(f"x{number}", phase="Launched"))
        harness.notify(0.1 * number)
    assert len(harness.signal_queue.arguments_to("prod/nodepool/general")) == 1
    harness.notify(1)
    assert len(harness.signal_queue.arguments_to("prod/nodepool/general")) == 2


def test_a_static_pool_hears_of_every_claim_that_comes_and_goes_and_of_nothing_else(harness: NotifierHarness) -> None:
    harness.apply_objects("nodepools", pool(replicas=2))
    harness.apply_objects("nodeclaims", claim("x1"), claim("x2"))
    harness.notify()
    harness.apply_objects("nodeclaims", claim("x1", labels={"karpenter.sh/nodepool": "general", "touched": "yes"}))
    harness.notify(2)
    harness.delete_objects("nodeclaims", claim("x1"))
    harness.notify(4)
    harness.apply_objects("nodeclaims", claim("x2", deleting=True))
    harness.notify(6)
    notified = harness.signal_queue.arguments_to("prod/nodepool/general")
    assert [(one.static, one.replicas, one.existing, one.terminating) for one in notified] == [
        ("on", 2, 2, 0),
        ("on", 2, 1, 0),
        ("on", 2, 0, 1),
    ]


def test_a_pool_or_class_that_is_gone_is_told_without_starting_anything(harness: NotifierHarness) -> None:
    harness.notify()
    harness.delete_objects("nodepools", pool())
    harness.delete_objects("ec2nodeclasses", node_class())
    harness.notify(1)
    for workflow_id in ("prod/nodepool/general", "prod/nodeclass/default"):
        last = harness.signal_queue.signals[-1] if workflow_id.endswith("default") else harness.signal_queue.signals[-2]
        assert last.workflow_id == workflow_id and last.start is None
        assert harness.signal_queue.arguments_to(workflow_id)[-1].exists is False


def test_a_class_that_is_going_hears_of_every_claim_that_leaves(harness: NotifierHarness) -> None:
    harness.apply_objects("nodeclaims", claim("a"), claim("b"))
    harness.apply_objects("ec2nodeclasses", node_class(deleting=True))
    harness.notify()
    harness.delete_objects("nodeclaims", claim("a"))
    harness.notify(1)
    assert [one.claims for one in harness.signal_queue.arguments_to("prod/nodeclass/default")] == [2, 1]


def test_a_life_that_was_lost_is_started_again(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify()
    harness.notifier.restart_workflow(harness.cache.nodeclaims["c1"], ALL_SYNCED, at(2))
    signal = harness.signal_queue.signals[-1]
    assert signal.workflow_id == CLAIM and signal.start is not None and signal.start.allow_restart


def test_one_claim_that_cannot_be_digested_holds_up_no_other(
    harness: NotifierHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = harness.notifier.identity_of

    def broken(one: Any) -> Any:
        if one.name == "bad":
            raise RuntimeError("bug")
        return original(one)

    monkeypatch.setattr(harness.notifier, "identity_of", broken)
    harness.apply_objects("nodeclaims", claim("bad"), claim("c1"))
    harness.notify()
    assert harness.signal_queue.arguments_to(CLAIM)


def test_a_watch_that_began_after_a_node_emptied_says_that_it_did_not_see_it(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify()
    assert harness.last_observed().empty and harness.last_observed().empty_since_unseen
    harness.notify(2)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == 1, "its own guess is no knowledge"
    harness.apply_objects("pods", pod("p", on="n1"))
    harness.notify(3)
    harness.now = at(5)
    harness.delete_objects("pods", pod("p", on="n1"))
    harness.notify(5.1)
    assert harness.last_observed().empty_since == at(5) and not harness.last_observed().empty_since_unseen


def use_policies(harness: NotifierHarness) -> LifecyclePolicies:
    policies = LifecyclePolicies(
        harness.cache,
        NullPolicyPort(),
        default_deadlines=Deadlines(),
        features=PolicyFeatures(),
        now=lambda: harness.now,
    )
    harness.notifier._observers = LifecycleObservers(harness.cache, policies, ClusterPause("tenure", harness.cache))
    return policies


class NullPolicyPort:
    async def write_validation(self, name: str, uid: str, validation: PolicyValidation, *, now: datetime) -> bool:
        return True


def test_rules_reach_the_claims_of_their_pool_and_only_those_are_told_anew(harness: NotifierHarness) -> None:
    policies = use_policies(harness)
    harness.add_running_node()
    harness.apply_objects("nodepools", pool("gpu"))
    harness.apply_objects("nodeclaims", claim("g1", pool="gpu"))
    policies.update(harness.cache._changes)
    harness.notify(1)
    signal_count = len(harness.signal_queue.signals)
    policies.on_deltas([Delta(policy("p", nodePoolSelector={"names": ["general"]}, drain={"deadline": "2h"}))])
    policies.update(harness.cache._changes)
    harness.notify(2)
    assert [one.workflow_id for one in harness.signal_queue.signals[signal_count:]] == [CLAIM]
    rules = harness.last_observed().rules
    assert rules is not None and rules.drain is not None and rules.drain.deadline == "2h"
    harness.notify(3)
    assert len(harness.signal_queue.signals) == signal_count + 1


def test_what_nobody_can_read_of_aws_s_events_reaches_the_claims_of_the_pool(harness: NotifierHarness) -> None:
    policies = use_policies(harness)
    harness.add_running_node()
    policies.on_deltas([Delta(policy("p", interruption={"scheduledChange": {"lead": "soon"}}))])
    policies.update(harness.cache._changes)
    harness.notify(1)
    assert "spec.interruption.scheduledChange.lead" in harness.last_observed().events_unread


def test_the_name_of_the_policy_with_the_hooks_reaches_the_claims_of_the_pool(harness: NotifierHarness) -> None:
    policies = use_policies(harness)
    harness.add_running_node()
    hook = {"name": "warn", "http": {"url": "https://hooks.example.com"}}
    for name, timeout in (("below", "1m"), ("all", "1m")):
        policies.on_deltas([Delta(policy(name, hooks={"afterDrain": [hook | {"timeout": timeout}]}))])
        policies.update(harness.cache._changes)
    harness.notify(1)
    assert harness.last_observed().hook_policies == {"afterDrain": "all"}
    policies.on_deltas([Delta(policy("all"), is_deleted=True)])
    policies.update(harness.cache._changes)
    harness.notify(2)
    assert harness.last_observed().hook_policies == {"afterDrain": "below"}


def test_claims_are_told_of_once_policies_are_known(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify(1, replace(ALL_SYNCED, policies=False))
    assert harness.signal_queue.arguments_to(CLAIM) == []
    harness.notify(2)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == 1


def test_what_is_expected_is_worth_no_signal_of_its_own(harness: NotifierHarness) -> None:
    use_policies(harness)
    harness.apply_objects("nodeclaims", claim("c1"))
    harness.notify()
    signal_count, observers = len(harness.signal_queue.signals), harness.notifier._observers
    assert observers is not None
    for number in range(5):
        others = claim(f"o{number}", phase="Initialized", pool="other")
        harness.apply_objects("nodeclaims", others)
    changes = harness.cache.drain_changes()
    observers.update(changes, known=True, counted=True)
    harness.cache.requeue_nodeclaim("c1")
    harness.notify(1)
    assert [one for one in harness.signal_queue.signals[signal_count:] if one.workflow_id == CLAIM] == []


def test_a_life_starts_with_what_is_expected_of_it_and_the_deadline_of_its_launch(harness: NotifierHarness) -> None:
    policies = use_policies(harness)
    policies.on_deltas([Delta(policy("p", launch={"deadline": "4m"}))])
    harness.apply_objects("nodeclaims", claim("c1"))
    policies.update(harness.cache._changes)
    harness.notify()
    start = next(one.start for one in harness.signal_queue.signals if one.workflow_id == CLAIM)
    assert start is not None and start.attributes is not None
    expected = harness.last_observed().expected
    assert expected is not None and expected.default.initialization == timedelta(minutes=3)
    assert start.attributes.get(DEADLINE) == at(-100) + timedelta(minutes=4)


def test_a_pool_hears_that_its_budget_may_have_room_and_not_that_it_has_less(harness: NotifierHarness) -> None:
    use_policies(harness)
    harness.add_running_node()

    def observed_at(seconds: float) -> list[ObservedNodePool]:
        observers, changes = harness.notifier._observers, harness.cache.drain_changes()
        assert observers is not None
        observers.update(changes, known=True, counted=True)
        harness.notifier.notify(changes, ALL_SYNCED, at(seconds))
        return harness.signal_queue.arguments_to("prod/nodepool/general")

    assert [one.freed for one in observed_at(0)] == [0]
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    assert len(observed_at(5)) == 1
    harness.apply_objects("nodes", node("n1", of="c1"))
    first, second = observed_at(10)
    assert second.freed > 0 and second.is_headroom_only(first)
