"""Groups of pods that need the same nodes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from tenure.controller.planning.pod_groups import PendingGroups, pod_group
from tenure.kube.facts.pods import pod_fact
from tenure.model.facts import PodFact
from tests.support.containers import count_entries
from tests.unit.controller.planning.launches import web


def fact(name: str = "p", **more: Any) -> PodFact:
    return pod_fact(web(name, **more))


def test_pods_of_one_owner_share_a_group_and_other_pods_do_not() -> None:
    assert pod_group(fact("a")) == pod_group(fact("b"))
    assert pod_group(fact("a", owner="StatefulSet")) != pod_group(fact("b"))
    larger = fact("a").model_copy(update={"requests": {"cpu": 7}})
    assert pod_group(larger) != pod_group(fact("a"))


def test_runs_of_a_cronjob_share_a_group() -> None:
    def run(name: str, owner: str) -> PodFact:
        return fact(name).model_copy(update={"owner_kind": "Job", "owner_uid": owner})

    assert pod_group(run("report-29345670-x7k2p", "a")) == pod_group(run("report-29345680-b4m9q", "b"))
    assert pod_group(run("report-29345670-x7k2p", "a")) != pod_group(run("other-29345670-x7k2p", "a"))


@given(some.lists(some.tuples(some.integers(0, 3), some.integers(0, 3)), max_size=20))
def test_pending_groups_are_those_of_the_pending_pods(changes: list[tuple[int, int]]) -> None:
    """Each change sets a pod, and its requests if they are not 0."""
    index, pending = PendingGroups(), dict[str, PodFact]()
    groups = {number: pod_group(sized(number)) for number in range(1, 4)}
    for number, size in changes:
        index.update(str(number), sized(size) if size else None)
        if size:
            pending[str(number)] = sized(size)
        else:
            pending.pop(str(number), None)
        expected = {pod_group(pod) for pod in pending.values()}
        assert {group for group in groups.values() if group in index} == expected


def sized(cpu: int) -> PodFact:
    return fact("p", owner="ReplicaSet").model_copy(update={"requests": {"cpu": cpu}})


def test_groups_of_former_pods_leave_no_entries() -> None:
    """Some pod is pending at all times in many clusters."""
    pending = PendingGroups()
    pending.update("forever", fact())
    before = count_entries(pending)
    for number in range(3):
        pending.update("p", fact().model_copy(update={"owner_uid": str(number)}))
        pending.update("p", None)
    assert count_entries(pending) == before
