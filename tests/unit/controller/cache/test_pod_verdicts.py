"""The verdict on a pending pod, in every state between its creation and its binding."""

from typing import Any

import pytest

from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cache.pod_verdicts import PodVerdicts
from tenure.model.blockers import INSUFFICIENT_CAPACITY, NO_INSTANCE_TYPE_FITS, NO_NODEPOOL_FITS, Verdict
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.plan import UnschedulablePod
from tests.support.controller.builders import (
    CacheHarness,
    Json,
    at,
    claim,
    node,
    not_ready_tracker,
    pod,
    pod_of_scheduler,
    stamp,
)


class PodVerdictHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.nominations = Nominations()
        not_ready = not_ready_tracker(self)
        expected_pods = ExpectedPods(self.cache, self.nominations, not_ready)
        self.verdicts = PodVerdicts(self.cache, self.nominations, not_ready, expected_pods, lambda pool: Deadlines())

    def verdict_of(self, raw: Json, seconds: float = 0) -> Verdict:
        self.apply_objects("pods", raw)
        return self.verdicts.verdict_of(self.cache.pending[raw["metadata"]["uid"]], at(seconds))

    def nominate(self, target: str, *, phase: str = "", ready: bool = True) -> None:
        self.apply_objects("nodeclaims", claim(target, phase=phase))
        if phase in ("Registered", "Initialized"):
            self.apply_objects("nodes", node("n1", of=target, ready=ready))
        self.nominations.nominate({"uid-p": target}, at(0))


@pytest.fixture
def harness() -> PodVerdictHarness:
    return PodVerdictHarness()


def with_condition(**condition: Any) -> Json:
    raw = pod("p")
    raw["status"]["conditions"] = [{"type": "PodScheduled", **condition}] if condition else []
    return raw


def unschedulable(name: str, code: str) -> UnschedulablePod:
    """In the latest plan."""
    return UnschedulablePod(pod_uid=f"uid-{name}", namespace="default", name=name, reason="pool general: x", code=code)


def gated_pod() -> Json:
    raw = with_condition(status="False", reason="SchedulingGated")
    raw["spec"]["schedulingGates"] = [{"name": "queue"}]
    return raw


def excluding_pod() -> Json:
    term = {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod("p", affinity={"nodeAffinity": required})


def preempting_pod() -> Json:
    raw = pod("p")
    raw["status"]["nominatedNodeName"] = "n9"
    return raw


@pytest.mark.parametrize(
    ("raw", "code", "sentence"),
    [
        pytest.param(pod("p"), "PlanPending", "the pod waits for the next plan", id="unschedulable"),
        pytest.param(with_condition(), "NotTried", "kube-scheduler has not tried to schedule the pod yet", id="new"),
        pytest.param(gated_pod(), "SchedulingGated", "the pod has scheduling gates", id="gate"),
        pytest.param(with_condition(status="False", reason="SchedulerError"), "SchedulerError", "bind", id="error"),
        pytest.param(pod("p", owner="DaemonSet"), "DaemonSetPod", "DaemonSets", id="DaemonSet"),
        pytest.param(excluding_pod(), "NodePoolsExcluded", "excludes", id="excludes NodePools"),
        pytest.param(preempting_pod(), "Preemption", "kube-scheduler evicts pods of Node n9 for it", id="preemption"),
    ],
)
def test_unplanned_pod_clears_by_itself(harness: PodVerdictHarness, raw: Json, code: str, sentence: str) -> None:
    found = harness.verdict_of(raw)
    assert (found.code, found.clears_by_itself, found.since) == (code, True, at(-30))
    assert sentence in found.sentence


@pytest.mark.parametrize("rejected", [False, True])
def test_verdict_begins_when_the_scheduler_could_not_schedule_the_pod(
    harness: PodVerdictHarness, *, rejected: bool
) -> None:
    if rejected:
        harness.nominations.remove_unschedulable([unschedulable("p", NO_NODEPOOL_FITS)], at(0))
    raw = with_condition(status="False", reason="Unschedulable", lastTransitionTime=stamp(-10))
    assert harness.verdict_of(raw, 60).since == at(-10)
    harness.apply_objects("pods", raw)
    assert [one.verdict.since for one in harness.verdicts.list_groups(at(60))] == [at(-10)] * rejected


def test_pod_with_an_unsupported_field_needs_attention_before_any_plan(harness: PodVerdictHarness) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    found = harness.verdict_of(pod("p", resourceClaims=claims))
    assert found.code == "PodUnplannable" and "resourceClaims" in found.sentence and not found.clears_by_itself


def test_blocked_plan_is_named(harness: PodVerdictHarness) -> None:
    harness.nominations.blocked_reason = "the instance types of EC2NodeClass gpu are not known yet"
    assert harness.verdict_of(pod("p")).sentence.endswith("EC2NodeClass gpu are not known yet")


def test_pod_without_a_possible_node_has_the_code_and_reason_of_the_plan(harness: PodVerdictHarness) -> None:
    harness.nominations.remove_unschedulable([unschedulable("p", NO_INSTANCE_TYPE_FITS)], at(0))
    found = harness.verdict_of(pod("p"))
    assert found.message == "NoInstanceTypeFits: pool general: x"
    assert not found.clears_by_itself and found.remedy.startswith("allow larger instance types")


@pytest.mark.parametrize(
    ("phase", "deadline"),
    [("", Deadlines().launch), ("Launched", Deadlines().registration), ("Registered", Deadlines().initialization)],
)
def test_pod_of_a_starting_node_has_the_deadline_of_its_phase(
    harness: PodVerdictHarness, phase: str, deadline: Any
) -> None:
    harness.nominate("c1", phase=phase)
    found, nodeclaim = harness.verdict_of(pod("p"), 1), harness.cache.nodeclaims["c1"]
    assert (found.code, found.sentence) == ("Nominated", "Pod should schedule on: nodeclaim/c1")
    assert found.deadline == (nodeclaim.registered_at or nodeclaim.created) + deadline and found.since == at(0)


def test_pod_that_is_not_bound_to_its_ready_node_needs_attention_after_a_minute(harness: PodVerdictHarness) -> None:
    harness.nominate("c1", phase="Initialized")
    before = harness.verdict_of(pod("p"), 59)
    assert (before.code, before.deadline) == ("Nominated", at(60))
    after = harness.verdict_of(pod("p"), 60)
    assert after.message == "NotBound: kube-scheduler has not bound it to NodeClaim c1, which is ready"
    assert (after.since, after.clears_by_itself) == (at(0), False)


def test_pod_of_another_scheduler_has_its_message_and_the_limit(harness: PodVerdictHarness) -> None:
    harness.nominate("c1", phase="Initialized")
    found = harness.verdict_of(pod_of_scheduler("p", "queue is full"), 60)
    assert found.sentence.startswith("scheduler batch-scheduler") and found.sentence.endswith(": queue is full")
    assert found.deadline == at(600)
    harness.cache.stop_planning("uid-p", "scheduler batch-scheduler has not bound it", at(0))
    released = harness.verdicts.verdict_of(harness.cache.pending["uid-p"], at(600))
    assert (released.code, released.since) == ("NotBound", found.since)


def test_pod_with_an_expired_nomination_waits_for_the_next_plan(harness: PodVerdictHarness) -> None:
    harness.nominate("c1", phase="Initialized")
    harness.verdict_of(pod("p"))
    assert harness.verdict_of(pod("p"), 111).code == "PlanPending"


def test_pod_waits_for_a_notready_node_until_its_grace_ends(harness: PodVerdictHarness) -> None:
    harness.nominate("c1", phase="Initialized")
    harness.apply_objects("nodes", node("n1", of="c1", ready=False))
    found = harness.verdict_of(pod("p"), 61)
    assert found.code == "Nominated" and found.deadline and found.deadline > at(61)


async def test_pods_that_need_attention_are_grouped_by_owner_and_code(harness: PodVerdictHarness) -> None:
    harness.apply_objects("pods", pod("a"), pod("b"), pod("big"), pod("waits"))
    names = {"a": NO_NODEPOOL_FITS, "b": NO_NODEPOOL_FITS, "big": NO_INSTANCE_TYPE_FITS, "waits": INSUFFICIENT_CAPACITY}
    harness.nominations.remove_unschedulable([unschedulable(*one) for one in names.items()], at(0))
    found = harness.verdicts.list_groups(at(0))
    assert [(one.pod.partition("/")[2], one.pods, one.verdict.code) for one in found] == [
        ("a", 2, NO_NODEPOOL_FITS),
        ("big", 1, NO_INSTANCE_TYPE_FITS),
    ]
    assert await harness.verdicts.count_by_code(at(0)) == {
        (NO_NODEPOOL_FITS, "false"): 2,
        (NO_INSTANCE_TYPE_FITS, "false"): 1,
        (INSUFFICIENT_CAPACITY, "true"): 1,
    }


def test_pod_expected_on_a_node_without_nodeclaim_is_nominated(harness: PodVerdictHarness) -> None:
    harness.nominations.nominate({"uid-p": "n1"}, at(0))
    assert harness.verdict_of(pod("p")).sentence == "Pod should schedule on: node/n1"
