"""Signals about nodes that expect pods: nominated ones, and those of nodes that a command disrupts."""

from typing import Any

from tenure.controller.signals.pending_pods import classify_pods
from tests.support.controller.builders import (
    at,
    claim,
    node,
    not_ready_tracker,
    pod,
    pod_of_scheduler,
    stamp,
)
from tests.unit.controller.signals.notifier_harness import NotifierHarness


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
        one.uid for one in classify_pods(harness.cache, harness.nominations, not_ready_tracker(harness), at(20)).pending
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


def test_awaited_pod_of_another_scheduler_has_its_message(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("pods", pod_of_scheduler("p", "queue is full"))
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.nominations.nominate({"uid-p": "c1"}, at(50))
    harness.notify(60)
    expected = "pod default/p expected here, and not bound by scheduler batch-scheduler: queue is full"
    assert harness.last_observed().awaited_pods == expected


def test_awaited_pods_on_deleting_nodes_are_reported(harness: NotifierHarness) -> None:
    harness.add_running_node()
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.apply_objects("pods", pod("p", on="n-old"))
    harness.nominations.nominate({"uid-p": "c1"}, at(0))
    harness.notify(61)
    assert harness.last_observed().awaited_pods == "pods of terminating nodes are expected here"


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
        and harness.last_observed().awaited_pods == "pods of terminating nodes are expected here"
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
