"""Signals to workflows: their start, order, limits and restarts, and the deletion of objects."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tenure.controller.signals import notifier
from tenure.controller.signals.notifier import DELETED_NOTIFY_DELAY
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.model.observations import ObservedNodeClaim, ObservedNodeClass, ObservedNodePool
from tests.support.controller.builders import (
    at,
    claim,
    node_class,
    pool,
)
from tests.unit.controller.signals.notifier_harness import ALL_SYNCED, CLAIM, NotifierHarness


def test_new_nodeclaim_starts_its_workflow_with_its_identity(harness: NotifierHarness) -> None:
    annotations = {"tenure.sh/launch-group": "p-0", "tenure.sh/replaces": "prod/disruption/1"}
    harness.apply_objects("nodeclaims", claim("c1", annotations=annotations))
    harness.notify()
    signal = next(one for one in harness.signal_queue.signals if one.workflow_id == CLAIM)
    assert signal.name == "observe" and signal.start is not None and not signal.start.allow_restart
    assert signal.start.workflow == "NodeClaim" and signal.start.summary == "c1 of general"
    assert signal.start.details.startswith("NodePool **general**, EC2NodeClass **")
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


def test_usage_of_a_large_nodepool_is_signaled_less_often(
    harness: NotifierHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "USAGE_SIGNAL_INTERVAL_PER_NODECLAIM", timedelta(seconds=4))
    harness.apply_objects("nodeclaims", claim("x0", phase="Launched"))
    harness.notify()
    harness.apply_objects("nodeclaims", claim("x1", phase="Launched"))
    harness.notify(2)
    assert len(harness.signal_queue.arguments_to("prod/nodepool/general")) == 1
    assert harness.notifier.next_due_at() == at(8)
    harness.apply_objects("ec2nodeclasses", node_class(generation=2))
    harness.notify(3)
    assert len(harness.signal_queue.arguments_to("prod/nodepool/general")) == 2
    harness.apply_objects("nodeclaims", claim("x2", phase="Launched"))
    for seconds, signals in ((4, 2), (14, 2), (15, 3)):
        harness.notify(seconds)
        assert len(harness.signal_queue.arguments_to("prod/nodepool/general")) == signals
    harness.apply_objects("nodeclaims", claim("x3", phase="Launched"))
    harness.notifier.restart_coordinators({"general"}, set(), ALL_SYNCED, at(16))
    assert len(harness.signal_queue.arguments_to("prod/nodepool/general")) == 4


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
