"""Blockages of nodes and pending pods, each with another code: how a test prepares them, and when their cause began."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tenure.sandbox.fault_proxy import ErrorResponse
from tenure.sandbox.nodes.fault_rules import (
    Deregister,
    LateDevices,
    NeverRegister,
    SetCondition,
    SlowReady,
)
from tests.support.kube.builders import persistent_volume_json, volume_attachment_json
from tests.support.product.cluster_scope import ClusterScope, conditions_by_type, object_names
from tests.support.product.drains import (
    annotate_do_not_disrupt,
    assert_budget_healthy,
    pod_disruption_budget,
    single_pod,
)
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import announce_maintenance, instance_id, run_pods_with_rules
from tests.support.product.objects import Object, lifecycle_policy, pod_spec

TIMEOUTS = {"LAUNCH_TIMEOUT": "30m", "REGISTRATION_TIMEOUT": "30m", "INITIALIZATION_TIMEOUT": "30m"}
"""Longer than the test, so that no phase becomes overdue."""
JOIN_DELAY = 180.0
"""Seconds that a Node may take to join: a tenth of the deadline, since no other Node of its NodePool has joined."""
PAUSE = f"until={datetime.now(UTC) + timedelta(hours=6):%Y-%m-%dT%H:%M:%SZ}, by=ann, reason=a test"
AGENT = {"key": "example.com/agent", "effect": "NoExecute"}
Prepare = Callable[[ClusterScope], Awaitable[str]]
Cause = Callable[[ClusterScope, str], Awaitable[datetime]]
"""When the cause of the verdict on a NodeClaim began. Objects have times in whole seconds."""


def since_condition(kind: str) -> Cause:
    """Since this condition of the NodeClaim is True."""

    async def read(scope: ClusterScope, name: str) -> datetime:
        return _last_transition(await _nodeclaim(scope, name), kind)

    return read


async def since_node_ready(scope: ClusterScope, name: str) -> datetime:
    """A NotReady Node has the verdict NodeNotReady, whatever else is missing."""
    claim = await _nodeclaim(scope, name)
    return _last_transition(await scope.product.kube.request("GET", NODES.path(claim["status"]["nodeName"])), "Ready")


async def since_deleted(scope: ClusterScope, name: str) -> datetime:
    return datetime.fromisoformat((await _nodeclaim(scope, name))["metadata"]["deletionTimestamp"])


async def since_second_node(scope: ClusterScope, name: str) -> datetime:
    provider_id = (await _nodeclaim(scope, name))["status"]["providerID"]
    nodes = [one for one in await scope.product.items(NODES.path()) if one["spec"].get("providerID") == provider_id]
    return max(datetime.fromisoformat(one["metadata"]["creationTimestamp"]) for one in nodes)


async def _nodeclaim(scope: ClusterScope, name: str) -> Object:
    found: Object = await scope.product.kube.request("GET", NODE_CLAIMS.path(name))
    return found


def _last_transition(found: Object, kind: str) -> datetime:
    return datetime.fromisoformat(conditions_by_type(found)[kind]["lastTransitionTime"])


@dataclass(frozen=True)
class Blockage:
    """`prepare` blocks a node of the scope and returns the name of its NodeClaim. `pool`: settings of the NodePool.

    `cause`: by default, the end of `prepare`. `delay`: seconds that similar nodes take, which must pass before the node
    is blocked. `incident`: for the runbook, with its first command.
    """

    code: str
    prepare: Prepare
    pool: dict[str, Any] = field(default_factory=lambda: {"after": "Never"})
    cause: Cause | None = None
    delay: float = 0.0
    incident: tuple[str, str] | None = None


async def fail_launch(scope: ClusterScope) -> str:
    scope.inject_aws_fault("5xx", "CreateFleet")
    return await start_pod(scope)


async def start_pod(scope: ClusterScope, **pod: Any) -> str:
    """Create a pod, and return its NodeClaim as soon as it exists."""
    await scope.create_deployment(1, **pod)
    return await wait_until(lambda: scope.assert_newest_nodeclaim(1))


async def start_with_fault(fault: Any, scope: ClusterScope) -> str:
    await scope.inject_node_fault(fault)
    return await start_pod(scope)


async def start_without_device(scope: ClusterScope) -> str:
    await scope.inject_node_fault(LateDevices(seconds=None))
    return await start_pod(scope, containers=pod_spec(scope.name, **{"nvidia.com/gpu": "1"})["containers"])


async def duplicate_provider_id(scope: ClusterScope) -> str:
    name = await start_with_fault(NeverRegister(), scope)
    provider_id = await wait_until(partial(_assert_launched, scope, name))
    registration_fault = scope.inject_api_fault(ErrorResponse(503), f"/nodes/{scope.name}-", "PATCH")
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": provider_id}}
        for name in (f"{scope.name}-0", f"{scope.name}-1")
    ]
    await asyncio.gather(*(scope.apply_manifest(one) for one in nodes))
    await wait_until(lambda: scope.assert_conditions_mention(name, "MultipleNodesFound"))
    scope.remove_api_fault(registration_fault)
    return name


async def _assert_launched(scope: ClusterScope, name: str) -> str:
    found = await _nodeclaim(scope, name)
    provider_id: str = (found.get("status") or {}).get("providerID", "")
    assert provider_id, found.get("status")
    return provider_id


async def empty_node(scope: ClusterScope) -> str:
    (name,) = object_names(await scope.run_pods(1))
    await scope.scale_deployment(0)
    return name


async def annotated_node(key: str, value: str, scope: ClusterScope) -> str:
    (claim,) = await scope.run_pods(1)
    await scope.product.patch(NODES.path(claim["status"]["nodeName"]), {"metadata": {"annotations": {key: value}}})
    await scope.scale_deployment(0)
    return str(claim["metadata"]["name"])


async def node_with_fault(fault: Any, scope: ClusterScope) -> str:
    (claim,) = await scope.run_pods(1)
    await scope.inject_node_fault(fault, node=claim["status"]["nodeName"], count=1)
    return str(claim["metadata"]["name"])


async def missing_node(scope: ClusterScope) -> str:
    """The NodeClaim is kept for longer than the test."""
    await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, nodeMissing={"deadline": "2h"}))
    return await node_with_fault(Deregister(), scope)


async def stopped_instance(scope: ClusterScope) -> str:
    (claim,) = await scope.run_pods(1)
    scope.product.aws.stop_instance(instance_id(claim))
    return str(claim["metadata"]["name"])


async def drifted_node(scope: ClusterScope) -> str:
    (name,) = object_names(await scope.run_pods(1))
    await scope.product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})
    return name


async def unhealthy_node(scope: ClusterScope) -> str:
    condition = {"type": "KernelReady", "status": "False", "toleration": "1h"}
    await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, repair={"conditions": [condition]}))
    return await node_with_fault(SetCondition(type="KernelReady", status="False"), scope)


async def deferred_interruption(scope: ClusterScope) -> str:
    rules = {"scheduledChange": {"action": "deferUntilEventStart"}}
    (claim,) = await run_pods_with_rules(scope, 1, rules)
    announce_maintenance(scope.product, claim, hours=6)
    return str(claim["metadata"]["name"])


async def drain(scope: ClusterScope, *, budgets: tuple[Object, ...] = (), annotation: str = "") -> str:
    """Delete a NodeClaim whose pod these budgets or this annotation protect."""
    for budget in budgets:
        await scope.apply_manifest(budget)
    (claim,) = await scope.run_pods(1)
    if annotation:
        await annotate_do_not_disrupt(scope, annotation)
    await scope.product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
    return str(claim["metadata"]["name"])


async def drain_with_budgets(*specs: dict[str, Any], scope: ClusterScope) -> str:
    budgets = [pod_disruption_budget(scope.name, **spec) for spec in specs]
    for number, budget in enumerate(budgets):
        budget["metadata"]["name"] = f"{scope.name}-{number}"
    return await drain(scope, budgets=tuple(budgets))


async def drain_without_room(scope: ClusterScope) -> str:
    """The budget allows the eviction of one of two pods. The limit allows no node for its successor."""
    await scope.apply_manifest(pod_disruption_budget(scope.name, minAvailable=1))
    claims = object_names(await scope.run_pods(2))
    await wait_until(lambda: assert_budget_healthy(scope, 2))
    await scope.product.patch(scope.pool_path, {"spec": {"limits": {"cpu": "1"}}})
    for claim in claims:
        await scope.product.delete(NODE_CLAIMS.path(claim))
    return await wait_until(lambda: scope.assert_newest_nodeclaim(1))


async def refused_eviction(scope: ClusterScope) -> str:
    await scope.run_pods(1)
    pod = (await single_pod(scope))["metadata"]["name"]
    scope.inject_api_fault(ErrorResponse(403), f"/pods/{pod}/eviction", "POST")
    (name,) = object_names(await scope.nodeclaims())
    await scope.product.delete(NODE_CLAIMS.path(name))
    return name


async def attached_volume(scope: ClusterScope) -> str:
    (claim,) = await scope.run_pods(1)
    driver = "ebs.csi.aws.com"
    await scope.apply_manifest(persistent_volume_json(scope.name, driver=driver))
    await scope.apply_manifest(volume_attachment_json(scope.name, claim["status"]["nodeName"], driver=driver))
    await scope.product.delete(NODE_CLAIMS.path(claim["metadata"]["name"]))
    return str(claim["metadata"]["name"])


STUCK, GET, EVENTS = "tenure stuck", "tenure get", "kubectl events"
BLOCKAGES = (
    Blockage("LaunchFailed", fail_launch, incident=("EC2 rejects a launch", STUCK)),
    Blockage(
        "NodeNotJoined",
        partial(start_with_fault, NeverRegister()),
        cause=since_condition("Launched"),
        delay=JOIN_DELAY,
    ),
    Blockage("MultipleNodesFound", duplicate_provider_id, cause=since_second_node),
    Blockage("NodeNotReady", partial(start_with_fault, SlowReady(seconds=3600)), cause=since_condition("Registered")),
    Blockage("StartupTaintsExist", start_pod, {"startup_taints": [AGENT]}, cause=since_node_ready),
    Blockage("ResourceNotRegistered", start_without_device, {"types": ["g4dn.xlarge"]}, cause=since_node_ready),
    Blockage("Never", empty_node),
    Blockage("PermitDenied", empty_node, {"after": "1s", "budget": "0"}),
    Blockage("NodeDoNotDisrupt", partial(annotated_node, labels.DO_NOT_DISRUPT, "true"), {"after": "1s"}),
    Blockage(
        "Paused",
        partial(annotated_node, labels.PAUSE, PAUSE),
        {"after": "1s"},
    ),
    Blockage("NodeNotFound", missing_node, incident=("a Node disappears", STUCK)),
    Blockage("InstanceStopped", stopped_instance, incident=("an instance is stopped", STUCK)),
    Blockage("ReplacementPending", drifted_node, {"after": "Never", "budget": "0"}),
    Blockage("Unhealthy", unhealthy_node),
    Blockage("InterruptionDeferred", deferred_interruption),
    Blockage("PodDisruptionBudget", drain_without_room, cause=since_deleted),
    Blockage(
        "PodDisruptionBudgetAllowsNone",
        lambda scope: drain_with_budgets({"maxUnavailable": 0}, scope=scope),
        incident=("a drain does not end", STUCK),
    ),
    Blockage(
        "MultiplePodDisruptionBudgets",
        lambda scope: drain_with_budgets({"maxUnavailable": 1}, {"minAvailable": 0}, scope=scope),
    ),
    Blockage("PodDoNotDisrupt", partial(drain, annotation="true")),
    Blockage("PodDoNotDisruptUntil", partial(drain, annotation="6h")),
    Blockage("EvictionRefused", refused_eviction),
    Blockage("VolumesAttached", attached_volume, incident=("a deleted node stays, without pods", GET)),
)


@dataclass(frozen=True)
class PendingPod:
    """`spec`: of a pod for this NodePool. `delay`: seconds that its scheduler may take. `incident`: as in Blockage."""

    code: str
    spec: Callable[[str], Object]
    pool: dict[str, Any] = field(default_factory=dict)
    delay: float = 0.0
    incident: tuple[str, str] | None = None


BROKEN_CLASS = "broken"
PENDING_PODS = (
    PendingPod("NoNodePoolFits", lambda pool: {"nodeSelector": {labels.NODEPOOL: pool, labels.ARCH: "arm64"}}),
    PendingPod("NoInstanceTypeFits", lambda pool: pod_spec(pool, cpu="3500m")),
    PendingPod("LimitsExceeded", pod_spec, {"limits": {"cpu": "1"}}),
    PendingPod("SchedulingGated", lambda pool: {"schedulingGates": [{"name": "example.com/queue"}]}),
    PendingPod(
        "NotTried",
        lambda pool: {"schedulerName": "absent"},
        delay=60,
        incident=("another scheduler is silent", EVENTS),
    ),
    PendingPod(
        "NodePoolNotReady",
        pod_spec,
        {"of_class": BROKEN_CLASS},
        incident=("an EC2NodeClass is not ready", STUCK),
    ),
    PendingPod(
        "PodUnplannable",
        lambda pool: {"resourceClaims": [{"name": "gpu", "resourceClaimName": "absent"}]},
        incident=("a pod has a field that Tenure does not support", STUCK),
    ),
)
