"""A planning pass with a planner: created NodeClaims, nominations, events and repeated plans."""

import os
import signal
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.controller.cache.expected_pods import OTHER_SCHEDULER_LIMIT
from tenure.controller.planning.catalog import FRESH_FOR, RETRY_AFTER
from tenure.controller.planning.pod_groups import pod_group
from tenure.controller.planning.pod_verdict_events import MIN_AGE, UNTRIED_LIMIT
from tenure.model.errors import BadInput, Fault, Forbidden, NotFound, Throttled, TryLater
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import FleetError, list_unavailable_offerings
from tenure.model.plan import ReleasedPod
from tests.support.controller.builders import Json, claim, node, node_class, pod, pod_of_scheduler, pool, stamp
from tests.support.injected_errors import fail_for, named
from tests.unit.controller.planning.provisioner_harness import ProvisionerHarness


def roomy_node(name: str, *, of: str) -> Json:
    """A Node with room for pods."""
    raw = node(name, of=of)
    raw["status"]["allocatable"]["pods"] = "10"
    return raw


async def test_pods_are_nominated_to_created_nodeclaims(harness: ProvisionerHarness) -> None:
    harness.add_pods(14)
    outcome = await harness.plan()
    assert outcome.created == 2 and outcome.unschedulable == 0 and not outcome.blocked
    assert [len(draft.members) for draft in outcome.drafts] == [2]
    names = {member.name for member in outcome.drafts[0].members}
    assert names == set(harness.claims.found) == set(harness.cache.nodeclaims)
    assert {harness.nominations.nomination_of(f"uid-p{number}").target for number in range(14)} == names  # type: ignore[union-attr]
    assert set(harness.events.messages("Nominated")) == {f"Pod should schedule on: nodeclaim/{name}" for name in names}


async def test_object_invalid_in_the_planner_is_reported(
    harness: ProvisionerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_for(monkeypatch, "tenure.scheduling.packing.pod_requirements.build_pod_shape", named("bad0"))
    harness.add_pods(1, "bad")
    harness.add_pods(1)
    outcome = await harness.plan()
    assert (outcome.created, outcome.unschedulable) == (1, 1)
    [found] = harness.cache.invalid_objects.report().objects
    assert (found.kind, found.name, found.reason) == ("Pod", "default/bad0", "ZeroDivisionError")
    harness.delete_objects("pods", pod("bad0"))
    await harness.plan("plan-2")
    assert harness.cache.invalid_objects.report().objects == ()


async def test_next_plan_uses_launching_nodes(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    assert (await harness.plan("plan-1")).created == 1
    repeated = await harness.plan("plan-2")
    assert repeated.created == 0 and repeated.nominated == 3


async def test_repeated_plan_returns_its_earlier_drafts(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    first = await harness.plan()
    harness.add_pods(30, "more")
    second = await harness.plan()
    assert second.drafts == first.drafts and len(harness.claims.found) == first.created


async def test_pods_of_a_failed_creation_are_planned_again(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    harness.claims.create_failures = 1
    assert (await harness.plan("plan-1")).created == 0
    assert harness.nominations.nomination_of("uid-p0") is None
    assert (await harness.plan("plan-2")).created == 1


@pytest.mark.parametrize(
    ("fault", "code", "clears_by_itself"),
    [
        (BadInput, "NodeClaimRejected", False),
        (Forbidden, "NodeClaimRejected", False),
        (NotFound, "NodeClaimRejected", False),
        (TryLater, "NodeClaimNotCreated", True),
        (Throttled, "NodeClaimNotCreated", True),
    ],
)
async def test_pods_of_a_failed_creation_have_a_verdict_until_a_plan_succeeds(
    harness: ProvisionerHarness, fault: type[Fault], code: str, clears_by_itself: bool
) -> None:
    harness.add_pods(2)
    harness.claims.create_fault, harness.claims.create_failures = fault, 2
    for plan_id in ("plan-1", "plan-2"):
        outcome = await harness.plan(plan_id)
        assert (outcome.created, outcome.nominated, outcome.unschedulable) == (0, 0, 2)
    sample = "karpenter_scheduler_unschedulable_pods_count", ("provisioner",), 2.0
    assert harness.meter.drain_records().count(sample) == 2
    sentence = 'NodeClaim of NodePool general not created: POST nodeclaims: NodeClaim "NAME" is refused'
    assert set(harness.events.messages("FailedScheduling")) == {f"{FAILED}{code}: {sentence}"}
    verdict = harness.verdicts.verdict_of(harness.cache.pods["uid-p0"], harness.now)
    assert (verdict.code, verdict.sentence, verdict.clears_by_itself) == (code, sentence, clears_by_itself)
    assert verdict.remedy
    outcome = await harness.plan("plan-3")
    assert (outcome.created, outcome.unschedulable) == (1, 0)
    assert harness.verdicts.code_of(harness.cache.pods["uid-p0"], harness.now) == "Nominated"


async def test_process_that_lost_its_lease_during_a_plan_creates_nothing(harness: ProvisionerHarness) -> None:
    harness.add_pods(1)
    harness.is_leading = False
    assert (await harness.plan("a")).created == 0
    assert not harness.claims.found
    harness.is_leading = True
    assert (await harness.plan("b")).created == 1


async def test_failed_creation_leaves_pods_of_other_nodeclaims_alone(harness: ProvisionerHarness) -> None:
    harness.add_pods(1, "a", nodeSelector={labels.ZONE: "a"})
    harness.add_pods(1, "b", nodeSelector={labels.ZONE: "b"})
    harness.claims.create_failures = 1
    outcome = await harness.plan()
    assert (outcome.created, outcome.nominated, outcome.unschedulable) == (1, 1, 1)


async def test_late_nodeclaim_of_a_failed_creation_clears_the_verdict(harness: ProvisionerHarness) -> None:
    """The API server stores the NodeClaim after the client's timeout."""
    harness.add_pods(2)
    harness.claims.create_failures = 1
    await harness.plan("plan-1")
    late = await harness.claims.create(harness.claims.not_created[0])
    harness.apply_objects("nodeclaims", late.to_object())
    outcome = await harness.plan("plan-2")
    assert (outcome.created, outcome.nominated, outcome.unschedulable) == (0, 2, 0)
    assert harness.verdicts.code_of(harness.cache.pods["uid-p0"], harness.now) == "Nominated"


async def test_nodeclaim_with_a_lost_creation_response_is_launched(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    harness.claims.lost_responses = 1
    outcome = await harness.plan("plan-1")
    (name,) = harness.claims.found
    assert [member.name for draft in outcome.drafts for member in draft.members] == [name]
    assert harness.nominations.nomination_of("uid-p0")


FAILED = "Failed to schedule pod, "
"""The beginning of Karpenter's message."""


async def test_unschedulable_pod_has_a_failed_scheduling_event(harness: ProvisionerHarness) -> None:
    harness.add_pods(2, nodeSelector={"kubernetes.io/arch": "mips"})
    outcome = await harness.plan()
    assert (outcome.created, outcome.unschedulable) == (0, 2)
    messages = {name: message for name, reason, message in harness.events.published if reason == "FailedScheduling"}
    assert messages.keys() == {"p0", "p1"} and messages["p0"].startswith(f"{FAILED}NoNodePoolFits: pool general: ")


async def test_nomination_of_an_unschedulable_pod_is_removed(harness: ProvisionerHarness) -> None:
    harness.add_pods(1, nodeSelector={"kubernetes.io/arch": "mips"})
    harness.nominations.nominate({"uid-p0": "taken"}, harness.now)
    assert (await harness.plan()).unschedulable == 1
    assert harness.nominations.nomination_of("uid-p0") is None and harness.nominations.pods_expected_on("taken") == ()


async def test_pod_of_another_scheduler_is_not_planned_after_the_limit(harness: ProvisionerHarness) -> None:
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    harness.apply_objects("nodes", node("n1", of="c1"))
    harness.apply_objects("pods", pod_of_scheduler("p", "queue is full"))
    harness.nominations.nominate({"uid-p": "c1"}, harness.now)
    harness.now += OTHER_SCHEDULER_LIMIT
    outcome = await harness.plan()
    assert (outcome.created, outcome.unschedulable) == (0, 1)
    assert not harness.nominations.is_expecting("c1")
    (message,) = harness.events.messages("FailedScheduling")
    assert "scheduler batch-scheduler has not bound it to NodeClaim c1" in message and "queue is full" in message
    assert outcome.released and message == f"{FAILED}NotBound: {outcome.released[0].why}"
    harness.delete_objects("pods", pod("p"))
    assert (await harness.plan("plan-2")).released == ()


@pytest.mark.parametrize(("scheduler_message", "created"), [("queue is full", 0), ("queue is empty", 1)])
async def test_pod_released_by_an_earlier_process_gets_no_node(
    harness: ProvisionerHarness, scheduler_message: str, created: int
) -> None:
    """Its node is gone. Another message of its scheduler ends the release."""
    released = ReleasedPod(uid="uid-p", scheduler_message="queue is full", why="not bound to c1", since=harness.now)
    harness.apply_objects("pods", pod_of_scheduler("p", scheduler_message))
    outcome = await harness.plan(released=(released,))
    assert outcome.created == created and outcome.released == (() if created else (released,))
    assert harness.events.messages("FailedScheduling") == ([] if created else [f"{FAILED}NotBound: not bound to c1"])


async def test_later_plan_does_not_release_a_pod_again(harness: ProvisionerHarness) -> None:
    await harness.plan()
    released = ReleasedPod(uid="uid-p", scheduler_message="queue is full", why="not bound to c1", since=harness.now)
    harness.apply_objects("pods", pod_of_scheduler("p", "queue is full"))
    assert (await harness.plan("plan-2", released=(released,))).created == 1


async def test_pod_that_no_plan_includes_has_an_event_with_its_verdict(harness: ProvisionerHarness) -> None:
    """kube-scheduler does not try a pod whose ResourceClaim does not exist."""
    untried: Json = {"status": {"phase": "Pending"}}
    unplannable = {**pod("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]), **untried}
    harness.apply_objects("pods", unplannable, {**pod("untried"), **untried}, pod("waits"))
    await harness.verdict_events.publish_due()
    assert [(name, reason) for name, reason, _ in harness.events.published] == [("p", "FailedScheduling")]
    assert harness.events.published[0][2].startswith(f"{FAILED}PodUnplannable: spec.resourceClaims")
    harness.now += UNTRIED_LIMIT
    await harness.verdict_events.publish_due()
    messages = {name: message for name, _, message in harness.events.published}
    assert messages.keys() == {"p", "untried"}
    assert messages["untried"] == f"{FAILED}NotTried: kube-scheduler has not tried to schedule the pod yet"


async def test_each_verdict_that_needs_attention_is_one_log_line_per_workload(harness: ProvisionerHarness) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}]}
    unplannable = [pod(name, resourceClaims=claims, metadata=owner) for name in ("a", "b")]
    harness.apply_objects("pods", *unplannable, pod("waits"))
    with capture_logs() as lines:
        await harness.verdict_events.publish_due()
        await harness.verdict_events.publish_due()
        harness.delete_objects("pods", *unplannable)
        await harness.verdict_events.publish_due()
        harness.apply_objects("pods", *unplannable)
        await harness.verdict_events.publish_due()
    (message,) = set(harness.events.messages("FailedScheduling"))
    found = [(one["event"], one["Pod"], one["code"], f"{FAILED}{one['code']}: {one['reason']}") for one in lines]
    assert found == [("blocked pod", {"namespace": "default", "name": "a"}, "PodUnplannable", message)] * 2


async def test_new_pod_has_no_event_before_kube_scheduler_could_bind_it(harness: ProvisionerHarness) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    metadata = {"creationTimestamp": stamp()}
    harness.apply_objects("pods", pod("p", resourceClaims=claims, metadata=metadata))
    await harness.verdict_events.publish_due()
    assert harness.events.published == []
    harness.now += MIN_AGE
    await harness.verdict_events.publish_due()
    assert len(harness.events.published) == 1


@pytest.mark.parametrize(("seconds", "is_released"), [(559, False), (560, True)])
async def test_first_plan_of_a_process_continues_the_limit_of_another_scheduler(
    harness: ProvisionerHarness, seconds: int, *, is_released: bool
) -> None:
    """The node that was launched for the pod is ready since 40 s before the start."""
    harness.apply_objects("pods", pod_of_scheduler("p", "queue is full", metadata={"creationTimestamp": stamp(-200)}))
    group = pod_group(harness.cache.pods["uid-p"])
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized", annotations={labels.POD_GROUPS: group}))
    harness.apply_objects("nodes", roomy_node("n1", of="c1"))
    harness.now += timedelta(seconds=seconds)
    assert (await harness.plan()).nominated == 1
    (message,) = harness.events.messages("FailedScheduling")
    end = "for 10m0s: queue is full" if is_released else ", which is ready: queue is full"
    begin = f"{FAILED}NotBound: scheduler batch-scheduler has not bound it to NodeClaim c1"
    assert message == f"{begin}{' ' * is_released}{end}"
    assert bool(harness.cache.pending["uid-p"].unplannable) is is_released


async def test_pod_that_a_later_plan_nominates_has_the_whole_limit(harness: ProvisionerHarness) -> None:
    await harness.plan()
    harness.apply_objects("nodeclaims", claim("c1", phase="Initialized"))
    harness.apply_objects("nodes", roomy_node("n1", of="c1"))
    harness.apply_objects("pods", pod_of_scheduler("p", "queue is full"))
    harness.now += OTHER_SCHEDULER_LIMIT
    await harness.plan("plan-2")
    nomination = harness.nominations.nomination_of("uid-p")
    assert nomination and (nomination.target, nomination.since) == ("c1", harness.now)


async def test_pods_bound_or_deleted_during_a_plan_are_not_nominated(
    harness: ProvisionerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add_pods(3)
    create = harness.claims.create

    async def change_pods_and_create(claim: NodeClaim) -> NodeClaim:
        harness.apply_objects("pods", pod("p0", on="by-hand"))
        harness.delete_objects("pods", pod("p1"))
        return await create(claim)

    monkeypatch.setattr(harness.claims, "create", change_pods_and_create)
    assert (await harness.plan()).created == 1
    (name,) = harness.claims.found
    assert harness.nominations.pods_expected_on(name) == ("uid-p2",)


async def test_limit_reached_during_a_plan_is_respected(harness: ProvisionerHarness) -> None:
    harness.apply_objects("nodepools", pool(limits={"cpu": "8"}))
    harness.add_pods(3)
    await harness.provisioner.sync_planner()
    harness.claims.add("by-hand", labels={"karpenter.sh/nodepool": "general"}, resources={"requests": {"cpu": "7"}})
    outcome = await harness.plan()
    assert (outcome.created, outcome.unschedulable) == (0, 3)
    assert "limits of NodePool general would be exceeded: cpu" in harness.events.published[-1][2]


@pytest.mark.usefixtures("planner_in_a_process")
async def test_dead_planner_is_replaced_and_synced(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    await harness.provisioner.sync_planner()
    process = harness.provisioner.planner_client.process
    assert process is not None and process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(TryLater, match="does not respond"):
        await process.apply([])
    assert (await harness.plan()).created == 1
    replacement = harness.provisioner.planner_client.process
    assert replacement is not None and replacement.pid != process.pid


async def test_instance_types_are_refreshed_after_a_class_change_or_expiry(harness: ProvisionerHarness) -> None:
    for _ in range(3):
        await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 1
    changed = node_class(generation=2)
    harness.apply_objects("ec2nodeclasses", changed)
    await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 2
    changed["status"] = {"conditions": [{"type": "SubnetsReady", "status": "True"}]}
    harness.apply_objects("ec2nodeclasses", changed)
    await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 2, "a condition other than Ready changes no instance type"
    harness.now += FRESH_FOR
    await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 3


async def test_known_instance_types_are_used_while_aws_fails(harness: ProvisionerHarness) -> None:
    harness.types.broken = True
    harness.add_pods(3)
    outcome = await harness.plan("plan-1")
    assert outcome.blocked == "the instance types of EC2NodeClass default are not known yet"
    process = harness.provisioner.planner_client.process
    for _ in range(5):
        await harness.provisioner.sync_planner()
    assert harness.types.catalogue_requests == 1 and harness.provisioner.planner_client.process is process
    harness.types.broken = False
    harness.now += RETRY_AFTER
    assert (await harness.plan("plan-2")).created == 1
    harness.types.broken = True
    harness.now += FRESH_FOR
    harness.add_pods(9, "more")
    assert (await harness.plan("plan-3")).created == 2


async def test_deleted_nodeclaim_is_replaced_by_the_next_plan(harness: ProvisionerHarness) -> None:
    harness.add_pods(3)
    first = await harness.plan("plan-1")
    name = first.drafts[0].members[0].name
    harness.delete_objects("nodeclaims", claim(name, uid=f"uid-{name}"))
    del harness.claims.found[name]
    assert (await harness.plan("plan-2")).created == 1


@pytest.mark.parametrize(("full_subnets", "expected_pool"), [(("a1",), "first"), (("a1", "a2"), "second")])
async def test_zone_is_left_out_once_all_its_subnets_are_full(
    harness: ProvisionerHarness, full_subnets: tuple[str, ...], expected_pool: str
) -> None:
    harness.delete_objects("nodepools", pool())
    subnets = [{"id": one, "zone": one[0]} for one in ("a1", "a2", "b1")]
    harness.apply_objects("ec2nodeclasses", {**node_class(), "status": {"subnets": subnets}})
    for name, weight, zone in (("first", 100, "a"), ("second", 10, "b")):
        one = pool(name, weight=weight)
        one["spec"]["template"]["spec"]["requirements"] = [{"key": labels.ZONE, "operator": "In", "values": [zone]}]
        harness.apply_objects("nodepools", one)
    errors = [
        FleetError(code="Full", message="", insufficient=True, scope="subnet", subnet_id=one, zone="a")
        for one in full_subnets
    ]
    harness.add_pods(1)
    outcome = await harness.plan(unavailable=list_unavailable_offerings(errors, "default", harness.now))
    assert [draft.pool for draft in outcome.drafts] == [expected_pool]


async def test_offerings_that_are_available_at_almost_the_same_time_count_together(harness: ProvisionerHarness) -> None:
    offering = UnavailableOffering(instance_type="m.large", zone="a", capacity_type="*", until=harness.now)
    ends = [harness.now + timedelta(seconds=seconds) for seconds in (-1, 10, 11, 12, 60)]
    await harness.plan(unavailable=tuple(offering.model_copy(update={"until": until}) for until in ends))
    planner = harness.planner_client
    times = [planner.next_available_at(one) for one in (harness.now, ends[2], ends[3], ends[4])]
    assert times == [ends[2], ends[3], ends[4], None]
