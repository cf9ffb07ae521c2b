"""Carries out the plans of random clusters in an API server, and compares them with kube-scheduler's decisions.

Several clusters share the API server. Taints, labels and namespaces separate them. Every pod is nominated to its
planned node, so kube-scheduler tries this node first. It applies its own filters, so a pod that it binds is in a valid
place. A scheduling gate holds back each pod until it is next in the order of `binding_order.py`.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tenure.apis.labels import NOT_READY_TAINT_KEY, UNREACHABLE_TAINT_KEY, ZONE
from tenure.kube.adapters.pods import KubePods
from tenure.kube.client.client import MERGE_PATCH, connect
from tenure.kube.client.rate_limiter import RateLimiter
from tenure.kube.facts.pods import pod_fact
from tenure.sandbox.controlplane.commands import RATE
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import ApiError
from tenure.sandbox.kube_client import KubeApi
from tenure.sandbox.spec import Plan
from tests.integration.sandbox.builders import STRATEGIC
from tests.oracle.cluster_plan import (
    KINDS,
    NOW,
    ClusterPlan,
    Comparison,
    bound_nodes,
    compare_nodes,
    is_daemon_pod,
    key_of_daemon_pod,
    label_of,
    plan_cluster,
    scheduler_message,
)
from tests.oracle.manifests import persistent_volume
from tests.oracle.random_cluster import RandomCluster, shared_objects
from tests.oracle.random_pods import CLUSTER, PRIORITY_CLASSES, Object
from tests.support.product.eventually import wait_until

SCHEDULER: Final = "kube-scheduler"
QUIET_SECONDS: Final = 20.0
"""Seconds without a new binding after which kube-scheduler has tried all pods. Its backoff ends at ten."""
NOT_READY_TAINTS: Final = frozenset({NOT_READY_TAINT_KEY, UNREACHABLE_TAINT_KEY})
_POLL_SECONDS: Final = 0.4
_KUBELETS: Final = ("kwok-nodes", "kwok-pods")
_LEASE_SECONDS: Final = 1000
"""Nodes become NotReady 1.25 times as many seconds after their last heartbeat."""
_UNBOUND: Final = "?fieldSelector=spec.nodeName%3D"
_PATHS: Final[Mapping[str, str]] = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{}/pods",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
}
_CREATION_ORDER: Final = (
    ("Namespace",),
    ("PersistentVolume", "CSINode", "Node"),
    ("PersistentVolumeClaim", "Pod", "DaemonSet"),
)
"""Kubernetes binds a claim up to 15 s later if its volume does not exist yet, or is still pending."""


@asynccontextmanager
async def own_control_plane(folder: Path) -> AsyncIterator["PlannedNodes"]:
    """A control plane without objects, which takes less time than the deletion of the objects of other clusters.

    It has no kubelets: nodes stay Ready during its life, and no pod starts.
    """
    plan = Plan(parts=("kubernetes",), manifests=(), lease_seconds=_LEASE_SECONDS)
    async with Sandbox(folder, plan=plan) as sandbox, sandbox.cluster.client() as api:
        for part in _KUBELETS:
            await asyncio.to_thread(sandbox.stop_part, part)
        client = await connect(str(sandbox.kubeconfig), rate_limiter=RateLimiter(qps=RATE, burst=RATE))
        try:
            planned_nodes = PlannedNodes(sandbox, api, KubePods(client))
            await gather_limited(planned_nodes._create(one) for one in shared_objects())
            yield planned_nodes
        finally:
            await client.close()


class PlannedNodes:
    """Plans clusters while kube-scheduler is stopped, which would otherwise fill the first nodes with other pods."""

    def __init__(self, sandbox: Sandbox, api: KubeApi, pods: KubePods) -> None:
        self._sandbox, self._api, self._pods = sandbox, api, pods

    async def compare(self, clusters: Sequence[RandomCluster]) -> list[Comparison]:
        """Create, plan and schedule clusters with different slots at the same time. Their objects are left."""
        await asyncio.to_thread(self._sandbox.stop_part, SCHEDULER)
        try:
            for kinds in _CREATION_ORDER:
                await gather_limited(
                    self._create(one) for each in clusters for one in each.objects if one["kind"] in kinds
                )
                await self._wait_until_settled()
            lists = {kind: await self._items(kind) for kind in KINDS}
            plans = [await asyncio.to_thread(plan_cluster, one, lists) for one in clusters]
            await gather_limited(self._create(node) for plan in plans for node in plan.nodes.values())
            await self._nominate(plans)
            await self._wait_until_settled()
        finally:
            await asyncio.to_thread(self._sandbox.start_part, SCHEDULER)
        await self._wait_until_attempted(is_daemon_pod, {pod for plan in plans for pod in plan.daemon_pods})
        return await self._schedule_rejected(plans, await self._schedule(plans))

    async def _create(self, manifest: Object) -> None:
        """Create an object, and set the status of a pod. An existing shared object or Namespace is kept."""
        metadata, kind = manifest["metadata"], manifest["kind"]
        path = _PATHS[kind].format(metadata.get("namespace", ""))
        try:
            await self._api.request("POST", path, manifest)
        except ApiError as error:
            if error.status == 403 and "serviceaccount" in str(error):
                await asyncio.sleep(_POLL_SECONDS)
                await self._create(manifest)
            elif error.status != 409 or kind == "Pod":
                raise
        else:
            if kind == "Pod" and "status" in manifest:
                body = {"status": manifest["status"]}
                await self._api.request("PATCH", f"{path}/{metadata['name']}/status", body, STRATEGIC)

    async def _wait_until_settled(self) -> None:
        """Wait until new nodes have lost their taint not-ready, and reserved volumes of claims are bound."""

        async def assert_settled() -> None:
            assert await self._are_nodes_ready()
            assert not any(map(_is_pending, await self._items("PersistentVolume")))
            assert all(map(_has_volume, await self._items("PersistentVolumeClaim")))

        await wait_until(assert_settled, poll_interval=_POLL_SECONDS)

    async def _nominate(self, plans: Iterable[ClusterPlan], unbound: Iterable[Object] | None = None) -> None:
        """Nominate unbound pods to their targets, also those that lost their nomination in an early attempt."""
        targets = {name: node for plan in plans for name, node in plan.targets.items()}
        due = [
            pod_fact(one)
            for one in (await self._items("Pod", _UNBOUND) if unbound is None else unbound)
            if one["metadata"]["name"] in targets and not one["status"].get("nominatedNodeName")
        ]
        await gather_limited(self._pods.nominate(one, targets[one.name], now=NOW) for one in due)

    async def _schedule(self, plans: Sequence[ClusterPlan]) -> list[Comparison]:
        """Release the pods with a target, in their order. Wait until all expected pods are bound, or kube-scheduler
        makes no more progress.
        """
        by_cluster = {plan.cluster.site.cluster: plan for plan in plans}
        groups = {name: _queue_groups(plan) for name, plan in by_cluster.items()}
        released = set[str]()
        clock = asyncio.get_running_loop().time
        last, since = -1, clock()
        while True:
            unbound = await self._items("Pod", _UNBOUND)
            waiting = [one for one in unbound if (plan := by_cluster.get(_cluster_of(one))) and plan.is_expected(one)]
            if len(waiting) != last:
                last, since = len(waiting), clock()
            if not waiting:
                break
            if all(map(scheduler_message, waiting)) and clock() - since > QUIET_SECONDS:
                break
            busy = {_cluster_of(one) for one in waiting if _is_new(one, released)}
            due = [(by_cluster[name], left.pop(0)) for name, left in groups.items() if left and name not in busy]
            released.update(name for _, names in due for name in names)
            await gather_limited(self._release_pods(plan, names) for plan, names in due)
            await self._provision_volumes()
            await self._nominate(plans, unbound)
            await asyncio.sleep(_POLL_SECONDS)
        pods = await self._pods_by_cluster()
        return [compare_nodes(plan, pods[name]) for name, plan in by_cluster.items()]

    async def _schedule_rejected(self, plans: Sequence[ClusterPlan], found: Sequence[Comparison]) -> list[Comparison]:
        """Release the pods that the plans reject, and find those that kube-scheduler binds."""
        await gather_limited(self._release_pods(plan, plan.rejected) for plan in plans)
        await self._wait_until_attempted()
        pods = await self._pods_by_cluster()
        bound = [bound_nodes(pods[plan.cluster.site.cluster]).keys() & plan.rejected for plan in plans]
        return [replace(one, unplanned=tuple(sorted(names))) for one, names in zip(found, bound, strict=True)]

    async def _release_pods(self, plan: ClusterPlan, names: Iterable[str]) -> None:
        """Remove the scheduling gates in this order."""
        namespaces = {one["metadata"]["name"]: one["metadata"]["namespace"] for one in plan.cluster.pods}
        for name in names:
            path = f"{_PATHS['Pod'].format(namespaces[name])}/{name}"
            await self._api.request("PATCH", path, {"spec": {"schedulingGates": None}}, MERGE_PATCH)

    async def _wait_until_attempted(
        self, concerns: Callable[[Object], bool] = lambda _: True, daemon_pods: Set[tuple[str, str]] = frozenset()
    ) -> None:
        """Wait until kube-scheduler has bound or rejected the pods. These `daemon_pods` must be among them."""

        async def assert_attempted() -> None:
            await self._provision_volumes()
            assert await self._are_nodes_ready()
            pods = [*filter(concerns, await self._items("Pod"))]
            assert daemon_pods <= {key_of_daemon_pod(one) for one in pods if is_daemon_pod(one)}
            assert all(one["spec"].get("nodeName") or scheduler_message(one) for one in pods)

        await wait_until(assert_attempted, poll_interval=_POLL_SECONDS)

    async def _are_nodes_ready(self) -> bool:
        """False also while a busy machine delays the leases of nodes, so that they have taints."""
        return all(map(_is_ready, await self._items("Node")))

    async def _pods_by_cluster(self) -> dict[str, dict[str, Object]]:
        """Pods by name, by cluster."""
        pods: dict[str, dict[str, Object]] = defaultdict(dict)
        for one in await self._items("Pod"):
            pods[_cluster_of(one)][one["metadata"]["name"]] = one
        return pods

    async def _provision_volumes(self) -> None:
        """Create the volumes of claims for which kube-scheduler has selected a node, as a CSI driver does."""
        claims = await self._items("PersistentVolumeClaim")
        due = [one for one in claims if not one["spec"].get("volumeName") and _selected_node(one)]
        nodes = {one["metadata"]["name"]: one for one in await self._items("Node")} if due else {}
        for claim in due:
            node, name = nodes[_selected_node(claim)], f"{claim['metadata']['name']}-provisioned"
            await self._create(persistent_volume(name, claim, label_of(node, ZONE), label_of(node, CLUSTER)))

    async def _items(self, kind: str, query: str = "") -> list[Object]:
        """The objects of all namespaces. Items of a list have no kind."""
        response = await self._api.request("GET", _PATHS[kind].replace("/namespaces/{}", "") + query)
        found: list[Object] = response["items"]
        return found


async def gather_limited(calls: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Await up to 20 at a time."""
    gate = asyncio.Semaphore(20)

    async def one(call: Coroutine[Any, Any, object]) -> None:
        async with gate:
            await call

    await asyncio.gather(*(one(call) for call in calls))


def _queue_groups(plan: ClusterPlan) -> list[list[str]]:
    """The order of the pods, cut where kube-scheduler would bind them in another order if all were in its queue.

    Its queue sorts by priority, then by the time when it listed the pods: by namespace and name.
    """
    keys = {one["metadata"]["name"]: _queue_key(one) for one in plan.cluster.pods}
    groups: list[list[str]] = []
    for name in plan.order.names:
        if groups and keys[groups[-1][-1]] < keys[name]:
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _queue_key(pod: Object) -> tuple[int, str, str]:
    metadata, classes = pod["metadata"], ("", *PRIORITY_CLASSES)
    return -classes.index(pod["spec"].get("priorityClassName", "")), metadata["namespace"], metadata["name"]


def _is_new(pod: Object, released: Collection[str]) -> bool:
    """Whether the pod is released, and kube-scheduler has not tried it yet."""
    return pod["metadata"]["name"] in released and not scheduler_message(pod)


def _cluster_of(pod: Object) -> str:
    found: str = pod["spec"].get("nodeSelector", {}).get(CLUSTER, "")
    return found


def _is_ready(node: Object) -> bool:
    return not any(one["key"] in NOT_READY_TAINTS for one in node["spec"].get("taints") or ())


def _has_volume(claim: Object) -> bool:
    return not claim["spec"].get("volumeName") or claim["status"].get("phase") == "Bound"


def _is_pending(volume: Object) -> bool:
    phase: str = volume.get("status", {}).get("phase", "Pending")
    return phase == "Pending"


def _selected_node(claim: Object) -> str:
    found: str = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node", "")
    return found
