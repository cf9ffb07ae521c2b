"""The watch host on a real API server and a real Temporal server: which workflows it signals, and how often."""

import asyncio
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from tenure.apis.nodeclaim import NodeClaim
from tenure.controller.cache.nominations import NOMINATION_TTL
from tenure.controller.host import ClusterController
from tenure.controller.session import ControllerSession
from tenure.controller.settings import ControllerSettings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.resources import EC2_NODE_CLASSES, LEASES, NODE_POOLS, NODES, PODS
from tenure.model.errors import Forbidden
from tenure.model.plan import PlanRequest
from tenure.model.provider_results import ConditionPatch
from tenure.sandbox.fault_proxy import ErrorResponse
from tests.adapters.controller.host_harness import (
    HostHarness,
    Names,
    has_observations,
    nodeclaim_workflow_id,
    run_pod,
    running_host,
    sees_initialized,
    sees_pod,
    set_conditions,
    set_ready,
    terminate_workflows,
)
from tests.support.apis.crd_rows import NODECLASS
from tests.support.fakes.cloud import FakeInstances
from tests.support.kube.builders import claim_json, node_json, pod_json, pool_json
from tests.support.product.shared_sandbox import SharedSandbox
from tests.unit.controller.planning.provisioner_harness import FakeOfferings

FRESH_WITHIN = 0.2
WATCHES = 6
"""Minimum number of watched kinds."""
SETTLE_SECONDS = 0.6
"""Seconds after which the host has sent its batched signals."""


async def test_node_lifecycle_needs_five_signals(
    kube: KubeAdapters, worker_kube: KubeAdapters, temporal: Client, names: Names
) -> None:
    async with running_host(worker_kube, temporal) as watch:
        claim = await kube.claims.create(NodeClaim.from_object(claim_json(names("life"))))
        await kube.claims.ensure_finalizer(claim.name, claim.uid)
        await watch.wait_until(lambda: has_observations(watch, claim, 1))
        node, provider_id = names("node"), f"aws:///us-west-2a/i-{claim.uid}"
        await set_conditions(kube, claim, "Launched", provider_id=provider_id)
        await kube.client.request("POST", NODES.path(), body=node_json(node, provider_id=provider_id))
        await watch.wait_until(lambda: has_observations(watch, claim, 2))
        await set_conditions(kube, claim, "Registered")
        await set_ready(kube, node)
        await watch.wait_until(lambda: has_observations(watch, claim, 3))
        await run_pod(kube, names("pod"), node)
        await watch.wait_until(lambda: sees_pod(watch, node))
        await set_conditions(kube, claim, "Initialized")
        await watch.wait_until(lambda: sees_initialized(watch, claim))
        await asyncio.sleep(SETTLE_SECONDS)
        for pod in await kube.pods.on_node(node, now=datetime.now(UTC)):
            await kube.pods.force_delete(pod, grace_seconds=0)
        await watch.wait_until(lambda: has_observations(watch, claim, 4))
        await kube.claims.delete(claim.name, claim.uid)
        await watch.wait_until(lambda: has_observations(watch, claim, 5))
        await asyncio.sleep(SETTLE_SECONDS)
        started, joined, ready, empty, deleted = await watch.nodeclaim_observations(claim)
    assert not started.node_name and joined.node_name == node and not joined.node_ready
    assert ready.node_ready and not ready.empty and not ready.waiting_for
    assert empty.empty and empty.empty_since is not None and deleted.deleting
    assert [one.number for one in (started, joined, ready, empty, deleted)] == sorted(
        one.number for one in (started, joined, ready, empty, deleted)
    )


async def test_next_check_moves_when_a_nominated_pod_is_deleted(
    kube: KubeAdapters, worker_kube: KubeAdapters, temporal: Client, names: Names
) -> None:
    """The check comes when a successor of the pod would have to be nominated, not at the deadline of the pod itself."""
    async with running_host(worker_kube, temporal) as watch:
        await watch.wait_until(lambda: ready_to_plan(watch))
        session = watch.host._session
        assert session is not None
        await watch.host.plan(PlanRequest(plan_id="nothing"))
        claim = await kube.claims.create(NodeClaim.from_object(claim_json(names("awaits"))))
        node, provider_id = names("node"), f"aws:///us-west-2a/i-{claim.uid}"
        await kube.client.request("POST", NODES.path(), body=node_json(node, provider_id=provider_id))
        await set_conditions(kube, claim, "Launched", "Registered", provider_id=provider_id)
        await set_ready(kube, node)
        await set_conditions(kube, claim, "Initialized")
        body = pod_json(names("late"), schedulerName="nobody")
        pod = await kube.client.request("POST", PODS.path(namespace="default"), body=body)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        await watch.wait_until(lambda: sees_initialized(watch, claim))
        await watch.wait_until(lambda: has_pending_pod(session, uid))
        session.cluster.nominations.nominate({uid: claim.name}, datetime.now(UTC))
        session.cluster.cache.requeue_nodeclaim(claim.name)
        expected = datetime.now(UTC)
        await watch.wait_until(lambda: is_next_check_near(session, expected + timedelta(seconds=60)))
        left_at = datetime.now(UTC)
        await kube.client.send("DELETE", PODS.path(name, namespace="default"), body={"gracePeriodSeconds": 0})
        await watch.wait_until(lambda: is_next_check_near(session, left_at + NOMINATION_TTL))


async def has_pending_pod(session: ControllerSession, uid: str) -> bool:
    return uid in session.cluster.cache.pending


async def is_next_check_near(session: ControllerSession, at: datetime) -> bool:
    """Within ten seconds."""
    due = session.signals.notifier.next_due_at()
    return due is not None and abs(due - at) < timedelta(seconds=10)


async def test_new_host_repeats_observations(
    kube: KubeAdapters, worker_kube: KubeAdapters, temporal: Client, names: Names
) -> None:
    """The previous host may have been killed between a change and its signal."""
    cluster = f"test-{uuid.uuid4().hex[:8]}"
    async with running_host(worker_kube, temporal, cluster=cluster) as first:
        claim = await kube.claims.create(NodeClaim.from_object(claim_json(names("repeated"))))
        await first.wait_until(lambda: has_observations(first, claim, 1))
    async with running_host(worker_kube, temporal, cluster=cluster) as second:
        await second.wait_until(lambda: has_observations(second, claim, 2))
        once, again = await second.nodeclaim_observations(claim)
        assert again.number > once.number and not again.differs_from(once)
    await terminate_workflows(temporal, cluster)


async def ready_to_plan(watch: HostHarness) -> bool:
    return watch.planning


async def test_unschedulable_pods_are_signaled_and_planned(
    kube: KubeAdapters, worker_kube: KubeAdapters, temporal: Client, names: Names
) -> None:
    pool, node_class = names("pool"), names("class")
    await kube.client.request("POST", EC2_NODE_CLASSES.path(), body=NODECLASS | {"metadata": {"name": node_class}})
    body = pool_json(pool)
    body["spec"]["template"]["spec"]["nodeClassRef"]["name"] = node_class
    await kube.client.request("POST", NODE_POOLS.path(), body=body)
    true_conditions = [ConditionPatch(type=one, status="True") for one in ("ValidationSucceeded", "NodeClassReady")]
    await kube.pools.patch_status(pool, conditions=true_conditions, now=datetime.now(UTC))
    async with running_host(worker_kube, temporal) as watch:
        await watch.wait_until(lambda: ready_to_plan(watch))
        for _ in range(9):
            raw = pod_json(names("wants"), nodeSelector={"karpenter.sh/nodepool": pool})
            raw["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1", "memory": "1Gi"}
            await kube.client.request("POST", PODS.path(namespace="default"), body=raw)
        await watch.wait_until(lambda: has_pending_pods_signal(watch, 9))
        outcome = await watch.host.plan(PlanRequest(plan_id="plan-1"))
        assert outcome.created == 2 and not outcome.blocked
        repeat = await watch.host.plan(PlanRequest(plan_id="plan-1"))
        assert repeat.drafts == outcome.drafts
        before = len(await watch.pending_pods_signals())
        await asyncio.sleep(SETTLE_SECONDS)
        assert len(await watch.pending_pods_signals()) == before, "planned pods were signaled again"
        members = [member for draft in outcome.drafts for member in draft.members]
        claims = await kube.claims.list(labels={"karpenter.sh/nodepool": pool})
        assert Counter(claim.uid for claim in claims) == Counter(member.uid for member in members)
        for claim in claims:
            await watch.wait_until(lambda claim=claim: has_observations(watch, claim, 1))  # type: ignore[misc]


async def has_pending_pods_signal(watch: HostHarness, pods: int) -> bool:
    return any(one.pods == pods for one in await watch.pending_pods_signals())


async def test_interrupted_watch_misses_no_event(
    shared_sandbox: SharedSandbox, kube: KubeAdapters, worker_kube: KubeAdapters, temporal: Client, names: Names
) -> None:
    async with running_host(worker_kube, temporal) as watch:
        claim = await kube.claims.create(NodeClaim.from_object(claim_json(names("cut"))))
        await kube.claims.ensure_finalizer(claim.name, claim.uid)
        await watch.wait_until(lambda: has_observations(watch, claim, 1))
        await watch.wait_until(lambda: are_open(shared_sandbox, "watch=true", WATCHES))
        with shared_sandbox.faults.during(ErrorResponse(429, retry_after=1), "watch=true"):
            assert shared_sandbox.faults.cut_open("watch=true") >= WATCHES
            await kube.claims.delete(claim.name, claim.uid)
            await asyncio.sleep(SETTLE_SECONDS)
            assert len(await watch.nodeclaim_observations(claim)) == 1
        await watch.wait_until(lambda: has_observations(watch, claim, 2))
        assert (await watch.nodeclaim_observations(claim))[1].deleting
        other = await kube.claims.create(NodeClaim.from_object(claim_json(names("after"))))
        await watch.wait_until(lambda: has_observations(watch, other, 1))


async def are_open(shared_sandbox: SharedSandbox, path: str, count: int) -> bool:
    return shared_sandbox.faults.open(path) >= count


async def test_plan_is_blocked_by_stale_caches(
    shared_sandbox: SharedSandbox, worker_kube: KubeAdapters, temporal: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.controller.host.FRESH_WITHIN", FRESH_WITHIN)
    async with running_host(worker_kube, temporal) as watch:
        await watch.wait_until(lambda: ready_to_plan(watch))
        with shared_sandbox.faults.during(ErrorResponse(503), "pods.*watch=true"):
            shared_sandbox.faults.cut_open("pods.*watch=true")
            await watch.wait_until(lambda: is_stale(watch))
            outcome = await watch.host.plan(PlanRequest(plan_id="p"))
            assert outcome.blocked == "caches are too old: pods"
        await watch.wait_until(lambda: can_plan(watch))


async def is_stale(watch: HostHarness) -> bool:
    session = watch.host._session
    return session is not None and bool(session.cluster.stale_kinds(FRESH_WITHIN))


async def can_plan(watch: HostHarness) -> bool:
    outcome = await watch.host.plan(PlanRequest(plan_id=uuid.uuid4().hex))
    return not outcome.blocked


async def test_terminated_nodeclaim_workflow_is_started_again(
    kube: KubeAdapters, worker_kube: KubeAdapters, temporal: Client, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.controller.resync.YOUNG", timedelta(0))
    async with running_host(worker_kube, temporal) as watch:
        claim = await kube.claims.create(NodeClaim.from_object(claim_json(names("ended"))))
        await watch.wait_until(lambda: has_observations(watch, claim, 1))
        await temporal.get_workflow_handle(nodeclaim_workflow_id(watch, claim)).terminate()
        await watch.wait_until(lambda: resync_restarts(watch, claim))


async def resync_restarts(watch: HostHarness, claim: NodeClaim) -> bool:
    """Visibility lags, so a single resync may come too early."""
    session = watch.host._session
    assert session is not None
    await session.resync()
    description = await watch.temporal.get_workflow_handle(nodeclaim_workflow_id(watch, claim)).describe()
    return description.status is WorkflowExecutionStatus.RUNNING


async def test_host_stops_while_karpenter_holds_the_lease(
    kube: KubeAdapters, worker_kube: KubeAdapters, temporal: Client, names: Names
) -> None:
    lease = names("leader")
    spec = {
        "holderIdentity": "karpenter-0",
        "leaseDurationSeconds": 60,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    path = LEASES.path(namespace="kube-system")
    await kube.client.request("POST", path, body={"metadata": {"name": lease}, "spec": spec})
    host = ClusterController(
        settings=ControllerSettings(cluster="held", karpenter_lease=lease),
        kube=kube,
        temporal=temporal,
        offerings=FakeOfferings(),
        instances=FakeInstances(),
        plan_worker=lambda: pytest.fail("the planner must not run"),
    )
    with pytest.raises(Forbidden, match=f"karpenter-0 renews the lease {lease}"):
        await host.run()
    await kube.client.request("DELETE", LEASES.path(lease, namespace="kube-system"))
