"""Groups of pods that need the same nodes."""

from typing import Any

from tenure.controller.planning.pod_groups import pod_group
from tenure.kube.facts.pods import pod_fact
from tenure.model.facts import PodFact
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
