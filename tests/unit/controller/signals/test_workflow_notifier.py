"""From changes to signals: which workflow is signaled, what is delayed, and how deletions are signaled."""

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
    """A cluster cache and a WorkflowNotifier that the test calls."""

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
        """The last observation sent to the workflow of NodeClaim c1."""
        last: ObservedNodeClaim = self.signal_queue.arguments_to(CLAIM)[-1]
        return last


@pytest.fixture
def harness() -> NotifierHarness:
    harness = NotifierHarness()
    harness.apply_objects("nodepools", pool(disruption={"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"}))
    harness.apply_objects("ec2nodeclasses", node_class())
    return harness


def test_new_nodeclaim_starts_its_workflow_with_its_identity(harness: NotifierHarness) -> None:
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
    ids=["without NodePool", "launched", "with NodePool"],
)
def test_only_unlaunched_standalone_nodeclaim_starts_with_discovered_capacity(
    harness: NotifierHarness, fields: dict[str, Any], images: dict[str, dict[str, int]]
) -> None:
    harness.apply_objects("nodeclaims", claim("c1", **fields))
    harness.notify()
    start = next(one.start for one in harness.signal_queue.signals if one.workflow_id == CLAIM)
    assert start is not None and isinstance(start.state, NodeClaimState)
    assert start.state.discovered == DiscoveredCapacity(images=images)


def test_observation_numbers_increase(harness: NotifierHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c1"))
    harness.notify()
    harness.apply_objects("nodeclaims", claim("c1", deleting=True))
    harness.notify()
    first, second = harness.signal_queue.arguments_to(CLAIM)
    assert second.number > first.number and second.deleting


def test_nodeclaims_are_signaled_only_after_nodes_are_synced(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify(known=replace(ALL_SYNCED, nodes=False))
    assert not harness.signal_queue.arguments_to(CLAIM)
    harness.notify()
    assert harness.last_observed().node_name == "n1"


def test_only_initialized_nodes_wait_for_the_sync_of_pods(harness: NotifierHarness) -> None:
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


def test_nodepools_and_nodeclasses_are_signaled_after_nodeclaims_are_synced(harness: NotifierHarness) -> None:
    harness.notify(known=replace(ALL_SYNCED, nodeclaims=False))
    assert not harness.signal_queue.signals
    harness.notify()
    assert [type(one) for one in harness.signal_queue.arguments_to("prod/nodepool/general")] == [ObservedNodePool]
    assert [type(one) for one in harness.signal_queue.arguments_to("prod/nodeclass/default")] == [ObservedNodeClass]


def test_emptied_node_is_signaled_with_its_empty_since(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("pods", pod("p", on="n1"))
    harness.notify(1)
    assert not harness.last_observed().empty and harness.last_observed().consolidation == "WhenEmpty/30s"
    harness.now = at(5)
    harness.delete_objects("pods", pod("p", on="n1"))
    harness.notify(5.1)
    assert harness.last_observed().empty_since == at(5)


def test_node_after_early_eviction_is_not_signaled_as_empty(harness: NotifierHarness) -> None:
    """Its workflow receives the interruption instead. If AWS does not interrupt the node, it is signaled as empty."""
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
def test_node_early_evicted_by_an_earlier_worker_is_not_empty_during_the_window(
    harness: NotifierHarness, evicted_at: str, tainted: bool, until: float
) -> None:
    """SQS delivers its message again. Without the disrupted taint, the annotation alone does not count."""
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


def test_node_is_signaled_as_empty_when_its_nominations_expire(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.notify(1)
    assert not harness.last_observed().empty and harness.notifier.next_due_at() == at(110)
    harness.notify(109)
    assert not harness.last_observed().empty
    harness.notify(110)
    assert harness.last_observed().empty_since == at(110)


def test_pod_is_pending_again_before_its_nominated_node_is_empty(harness: NotifierHarness) -> None:
    """If kube-scheduler is late, the next plan renews the nomination, and the node never becomes empty."""
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


def test_awaited_pod_is_named_after_one_minute(harness: NotifierHarness) -> None:
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
    assert len(harness.signal_queue.signals) == signal_count, "a renewed nomination is not signaled"
    for name in ("p", "q"):
        harness.apply_objects("pods", pod(name, on="n1"))
        harness.nominations.on_pod_bound(f"uid-{name}", at(71))
    harness.notify(71)
    assert not harness.last_observed().awaited_pods and not harness.last_observed().empty


def test_awaited_pods_on_deleting_nodes_are_reported(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.apply_objects("pods", pod("p", on="n-old"))
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.notify(61)
    assert harness.last_observed().awaited_pods == "pods of nodes that go are expected here"


def test_longest_awaited_pod_is_named_despite_other_changes(harness: NotifierHarness) -> None:
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
    """A candidate of a command. It is deleted once all its replacements are ready."""
    raw = claim("old", phase="Initialized", **more)
    condition = {"type": "DisruptionReason", "status": "True", "reason": "Drifted", "message": COMMAND}
    raw["status"]["conditions"].append({**condition, "lastTransitionTime": stamp(-40)})
    return raw


def add_replacement(harness: NotifierHarness) -> None:
    """Add replacement `c1`, initialized before the command completes."""
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized", annotations={"tenure.sh/replaces": COMMAND}))
    harness.apply_objects("nodes", node("n1", of="c1"))
    harness.apply_objects("nodeclaims", disrupted_nodeclaim())
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    harness.apply_objects("nodes", node("n-old", of="old", taints=[taint]))
    harness.apply_objects("pods", pod("p", on="n-old"))


def test_replacement_is_not_empty_before_its_candidates_are_deleted(harness: NotifierHarness) -> None:
    """This also holds if another process created it and its nominations are unknown here."""
    add_replacement(harness)
    harness.notify(600)
    assert (
        not harness.last_observed().empty
        and harness.last_observed().awaited_pods == "pods of nodes that go are expected here"
    )
    assert harness.notifier.next_due_at() == at(620)
    harness.apply_objects("nodeclaims", disrupted_nodeclaim(deleting=True))
    harness.notify(620)
    assert harness.last_observed().empty, "a plan had time to nominate its pods"


def test_replacement_is_empty_after_a_rollback_of_its_command(harness: NotifierHarness) -> None:
    add_replacement(harness)
    harness.notify(60)
    assert not harness.last_observed().empty
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized"))
    harness.notify(80)
    assert harness.last_observed().empty


def test_replacement_does_not_wait_longer_than_a_command_can_run(harness: NotifierHarness) -> None:
    """A terminated command leaves its conditions until they are cleaned up."""
    add_replacement(harness)
    harness.notify(3600)
    assert not harness.last_observed().empty
    harness.notify(2 * 3600)
    assert harness.last_observed().empty


def test_node_is_not_empty_while_its_pods_run_on_a_draining_node(harness: NotifierHarness) -> None:
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


def test_notready_node_within_its_grace_period_is_not_empty(harness: NotifierHarness) -> None:
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


def test_emptiness_is_not_signaled_during_the_warm_up(harness: NotifierHarness) -> None:
    harness.add_running_node()
    warming_up = replace(ALL_SYNCED, warm_up_until=at(30))
    harness.notify(1, warming_up)
    assert not harness.last_observed().empty and harness.notifier.next_due_at() == at(30)
    harness.notify(30)
    assert harness.last_observed().empty


def test_node_empty_before_the_session_is_empty_since_its_start(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify(1)
    assert harness.last_observed().empty_since == NOW


def test_empty_since_survives_a_failover(harness: NotifierHarness) -> None:
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
    assert not successor.signal_queue.arguments_to(CLAIM), "unchanged facts are not signaled again after a failover"
    successor.apply_objects("nodes", node("n1", of="c1", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    successor.notify(101)
    assert (
        successor.last_observed().do_not_disrupt
        and successor.last_observed().empty_since == harness.last_observed().empty_since
    )


def test_deleted_nodeclaim_is_signaled_after_a_delay(harness: NotifierHarness) -> None:
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


def test_nominations_to_a_deleting_nodeclaim_are_removed(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized", deleting=True))
    harness.notify()
    assert not harness.nominations.is_expecting("c1")


def test_nodepool_is_signaled_at_most_once_per_second(harness: NotifierHarness) -> None:
    harness.notify()
    for number in range(5):
        harness.apply_objects("nodeclaims", claim(f"x{number}", phase="Launched"))
        harness.notify(0.1 * number)
    assert len(harness.signal_queue.arguments_to("prod/nodepool/general")) == 1
    harness.notify(1)
    assert len(harness.signal_queue.arguments_to("prod/nodepool/general")) == 2


def test_static_nodepool_is_signaled_only_for_created_and_deleted_nodeclaims(harness: NotifierHarness) -> None:
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


def test_deleted_nodepool_or_nodeclass_is_signaled_without_start(harness: NotifierHarness) -> None:
    harness.notify()
    harness.delete_objects("nodepools", pool())
    harness.delete_objects("ec2nodeclasses", node_class())
    harness.notify(1)
    for workflow_id in ("prod/nodepool/general", "prod/nodeclass/default"):
        last = harness.signal_queue.signals[-1] if workflow_id.endswith("default") else harness.signal_queue.signals[-2]
        assert last.workflow_id == workflow_id and last.start is None
        assert harness.signal_queue.arguments_to(workflow_id)[-1].exists is False


def test_deleting_nodeclass_is_signaled_for_every_deleted_nodeclaim(harness: NotifierHarness) -> None:
    harness.apply_objects("nodeclaims", claim("a"), claim("b"))
    harness.apply_objects("ec2nodeclasses", node_class(deleting=True))
    harness.notify()
    harness.delete_objects("nodeclaims", claim("a"))
    harness.notify(1)
    assert [one.claims for one in harness.signal_queue.arguments_to("prod/nodeclass/default")] == [2, 1]


def test_lost_workflow_is_restarted(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify()
    harness.notifier.restart_workflow(harness.cache.nodeclaims["c1"], ALL_SYNCED, at(2))
    signal = harness.signal_queue.signals[-1]
    assert signal.workflow_id == CLAIM and signal.start is not None and signal.start.allow_restart


def test_error_of_one_nodeclaim_does_not_block_others(
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


def test_empty_since_is_marked_as_unseen_if_the_node_was_empty_at_start(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify()
    assert harness.last_observed().empty and harness.last_observed().empty_since_unseen
    harness.notify(2)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == 1, "the assumed time is not signaled as observed"
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


def test_rules_are_signaled_only_to_nodeclaims_of_their_nodepool(harness: NotifierHarness) -> None:
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


def test_unreadable_interruption_rules_are_signaled_to_nodeclaims(harness: NotifierHarness) -> None:
    policies = use_policies(harness)
    harness.add_running_node()
    policies.on_deltas([Delta(policy("p", interruption={"scheduledChange": {"lead": "soon"}}))])
    policies.update(harness.cache._changes)
    harness.notify(1)
    assert "spec.interruption.scheduledChange.lead" in harness.last_observed().events_unread


def test_policy_of_hooks_is_signaled_to_nodeclaims(harness: NotifierHarness) -> None:
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


def test_nodeclaims_are_signaled_after_policies_are_synced(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.notify(1, replace(ALL_SYNCED, policies=False))
    assert harness.signal_queue.arguments_to(CLAIM) == []
    harness.notify(2)
    assert len(harness.signal_queue.arguments_to(CLAIM)) == 1


def test_changed_startup_expectations_alone_cause_no_signal(harness: NotifierHarness) -> None:
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


def test_workflow_starts_with_expected_durations_and_launch_deadline(harness: NotifierHarness) -> None:
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


def test_nodepool_is_signaled_for_more_headroom_but_not_for_less(harness: NotifierHarness) -> None:
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
