"""Nominated pods that kube-scheduler does not bind to their ready node are counted.

Pods that Tenure or a returning node will take care of are not.
"""

from collections import Counter

import pytest

from tenure.apis import labels
from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.pod_groups import pod_group
from tests.support.controller.builders import (
    CacheHarness,
    at,
    claim,
    node,
    not_ready_tracker,
    pod,
    pod_of_scheduler,
    stamp,
)


class ExpectedPodsHarness(CacheHarness):
    """Pods p and q are nominated for an initialized node, pod r for one that is not ready."""

    def __init__(self) -> None:
        super().__init__()
        self.nominations = Nominations()
        self.expected_pods = ExpectedPods(self.cache, self.nominations, not_ready_tracker(self))
        self.apply_objects("nodeclaims", claim("c1", phase="Initialized"), claim("c2", phase="Registered"))
        self.apply_objects("nodes", node("n1", of="c1"), node("n2", of="c2", ready=False))
        self.apply_objects("pods", pod("p"), pod("q"), pod("r"))
        self.nominations.nominate({"uid-p": "c1", "uid-q": "c1", "uid-r": "c2"}, at(0))

    def count_not_bound(self, seconds: float) -> int:
        """Unbound pods of the only NodePool."""
        counted = self.expected_pods.count_not_bound(at(seconds))
        assert counted == Counter({("general",): counted["general",]} if counted else {})
        return counted["general",]


@pytest.fixture
def harness() -> ExpectedPodsHarness:
    return ExpectedPodsHarness()


def test_pods_count_from_one_minute_after_nomination_until_bound(harness: ExpectedPodsHarness) -> None:
    assert harness.count_not_bound(59) == 0
    assert harness.count_not_bound(60) == 2
    harness.nominations.nominate({"uid-p": "c1", "uid-q": "c1"}, at(70))
    assert harness.count_not_bound(71) == 2
    harness.nominations.on_pod_bound("uid-p", at(72))
    assert harness.count_not_bound(72) == 1
    harness.nominations.on_pod_bound("uid-q", at(73))
    assert harness.count_not_bound(73) == 0


def test_pod_running_on_a_deleting_node_is_not_counted(harness: ExpectedPodsHarness) -> None:
    harness.apply_objects("nodeclaims", claim("old", phase="Initialized", deleting=True))
    harness.apply_objects("nodes", node("n-old", of="old"))
    harness.apply_objects("pods", pod("p", on="n-old"), pod("q", on="n-old"))
    assert harness.count_not_bound(61) == 0


def test_pod_that_another_scheduler_does_not_bind_is_released_until_its_message_changes(
    harness: ExpectedPodsHarness,
) -> None:
    harness.apply_objects("pods", pod_of_scheduler("p", "queue is full"))
    harness.expected_pods.release_unbound(at(599))
    assert not harness.cache.pending["uid-p"].unplannable
    harness.expected_pods.release_unbound(at(600))
    expected = "scheduler batch-scheduler has not bound it to NodeClaim c1 for 10m0s: queue is full"
    assert harness.cache.pending["uid-p"].unplannable == expected
    assert not harness.cache.pending["uid-q"].unplannable, "kube-scheduler owns it"
    harness.apply_objects("pods", pod_of_scheduler("p", "queue is full", metadata={"labels": {"a": "b"}}))
    assert harness.cache.pending["uid-p"].unplannable == expected
    harness.apply_objects("pods", pod_of_scheduler("p", "waits for a gang"))
    assert not harness.cache.pending["uid-p"].unplannable


def test_released_pod_that_is_bound_is_planned_like_others(harness: ExpectedPodsHarness) -> None:
    harness.apply_objects("pods", pod_of_scheduler("p", ""))
    harness.expected_pods.release_unbound(at(600))
    assert harness.cache.pending["uid-p"].unplannable
    harness.apply_objects("pods", pod("p", on="n1", schedulerName="batch-scheduler"))
    assert not harness.cache.pods["uid-p"].unplannable


def test_pod_of_another_scheduler_waits_for_a_notready_node(harness: ExpectedPodsHarness) -> None:
    harness.apply_objects("pods", pod_of_scheduler("r", "queue is full"))
    harness.expected_pods.release_unbound(at(6000))
    assert not harness.cache.pending["uid-r"].unplannable


def test_pods_of_a_notready_node_are_not_counted(harness: ExpectedPodsHarness) -> None:
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    assert harness.count_not_bound(61) == 0


def test_newly_nominated_pod_has_its_own_minute(harness: ExpectedPodsHarness) -> None:
    assert harness.count_not_bound(60) == 2
    harness.apply_objects("pods", pod("late"))
    harness.nominations.nominate({"uid-p": "c1", "uid-q": "c1", "uid-late": "c1"}, at(70))
    assert harness.count_not_bound(129) == 2
    assert harness.count_not_bound(130) == 3


def test_pod_with_an_expired_nomination_is_not_counted(harness: ExpectedPodsHarness) -> None:
    assert harness.count_not_bound(109) == 2
    harness.nominations.nominate({"uid-p": "c1"}, at(109))
    assert harness.count_not_bound(110) == 1


@pytest.mark.parametrize(
    ("annotations", "last_pod_event", "target", "since"),
    [
        pytest.param({}, None, "c3", -90, id="pod is older than the node"),
        pytest.param({}, -20, "c3", -20, id="room after another pod left"),
        pytest.param({labels.POD_GROUPS: "{group}"}, -20, "c3", -90, id="node launched for the pod"),
        pytest.param({}, None, "n9", -95, id="node without NodeClaim"),
        pytest.param({}, 30, "c3", 0, id="not in the future"),
    ],
)
def test_expectation_of_an_earlier_process_is_read_from_the_objects(
    harness: ExpectedPodsHarness, annotations: dict[str, str], last_pod_event: int | None, target: str, since: int
) -> None:
    waiting = pod("old", metadata={"creationTimestamp": stamp(-200)})
    waiting["status"]["conditions"][0]["lastTransitionTime"] = stamp(-95)
    harness.apply_objects("pods", waiting, pod("bound", on="n1"))
    group = pod_group(harness.cache.pods["uid-old"])
    named = {key: value.format(group=group) for key, value in annotations.items()}
    raw = claim("c3", phase="Initialized", creationTimestamp=stamp(-90), annotations=named)
    raw["status"] |= {"lastPodEventTime": stamp(last_pod_event)} if last_pod_event is not None else {}
    harness.apply_objects("nodeclaims", raw)
    found = harness.expected_pods.nominated_since({"uid-old": target, "uid-bound": target}, at(0))
    assert found == {"uid-old": at(since)}


def test_pods_of_a_missing_node_are_not_counted(harness: ExpectedPodsHarness) -> None:
    harness.delete_objects("nodes", node("n1", of="c1"))
    assert harness.count_not_bound(61) == 0
