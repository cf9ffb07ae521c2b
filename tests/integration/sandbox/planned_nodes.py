"""Carries out the plans of random clusters in an API server, and compares them with kube-scheduler's decisions.

Several clusters share the API server. Taints, labels and namespaces separate them. Every pod is nominated to its
planned node, so kube-scheduler tries this node first. It applies its own filters, so a pod that it binds is in a valid
place. A scheduling gate holds back each pod until it is next in the order of `binding_order.py`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tenure.apis.labels import NOT_READY_TAINT_KEY, UNREACHABLE_TAINT_KEY, ZONE
from tenure.kube.adapters.pods import KubePods
from tenure.kube.client.client import MERGE_PATCH
from tenure.kube.facts.pods import pod_fact
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import ApiError
from tenure.sandbox.kube_client import KubeApi
from tests.integration.sandbox.builders import STRATEGIC
from tests.oracle.cluster_plan import (
    KINDS,
    NOW,
    ClusterPlan,
    Comparison,
    bound_nodes,
    compare_nodes,
    is_daemon_pod,
    label_of,
    plan_cluster,
    scheduler_message,
)
from tests.oracle.manifests import persistent_volume
from tests.oracle.random_cluster import RandomCluster, shared_objects
from tests.oracle.random_pods import CLUSTER, Object
from tests.support.product.eventually import wait_until

SCHEDULER: Final = "kube-scheduler"
QUIET_SECONDS: Final = 30.0
"""Seconds without a new binding after which kube-scheduler has tried all pods. Its backoff ends at ten; a busy machine,
whose nodes were NotReady, takes longer."""
NOT_READY_TAINTS: Final = frozenset({NOT_READY_TAINT_KEY, UNREACHABLE_TAINT_KEY})
_POLL_SECONDS: Final = 0.3
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
    ("PersistentVolume", "PersistentVolumeClaim", "CSINode", "Node"),
    ("Pod", "DaemonSet"),
)


class PlannedNodes:
    """Plans clusters while kube-scheduler is stopped, which would otherwise fill the first nodes with other pods."""

    def __init__(self, sandbox: Sandbox, api: KubeApi, pods: KubePods) -> None:
        self._sandbox, self._api, self._pods = sandbox, api, pods

    async def create_shared_objects(self) -> None:
        await gather_limited(self._create(one) for one in shared_objects())

    async def compare(self, clusters: Sequence[RandomCluster]) -> list[Comparison]:
        """Create, plan and schedule clusters with different slots at the same time, then delete them."""
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
        try:
            await self._wait_until_attempted(is_daemon_pod)
            await gather_limited(self._release_pods(plan, plan.order.names) for plan in plans)
            return await self._schedule_rejected(plans, await self._schedule(plans))
        finally:
            await self._delete(clusters)

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
        """Wait until new nodes have lost their taint not-ready, and reserved volumes are bound."""

        async def assert_settled() -> None:
            assert await self._are_nodes_ready()
            assert all(map(_has_volume, await self._items("PersistentVolumeClaim")))

        await wait_until(assert_settled)

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
        """Wait until all expected pods are bound, or kube-scheduler makes no more progress."""
        by_cluster = {plan.cluster.site.cluster: plan for plan in plans}
        clock = asyncio.get_running_loop().time
        last, since = -1, clock()
        while True:
            unbound = await self._items("Pod", _UNBOUND)
            waiting = [one for one in unbound if (plan := by_cluster.get(_cluster_of(one))) and plan.is_expected(one)]
            if len(waiting) != last:
                last, since = len(waiting), clock()
            if not waiting:
                break
            if not await self._are_nodes_ready():
                since = clock()
            if all(map(scheduler_message, waiting)) and clock() - since > QUIET_SECONDS:
                break
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
        """Remove the scheduling gates in this order, which is then the order of kube-scheduler's queue."""
        namespaces = {one["metadata"]["name"]: one["metadata"]["namespace"] for one in plan.cluster.pods}
        for name in names:
            path = f"{_PATHS['Pod'].format(namespaces[name])}/{name}"
            await self._api.request("PATCH", path, {"spec": {"schedulingGates": None}}, MERGE_PATCH)

    async def _wait_until_attempted(self, concerns: Callable[[Object], bool] = lambda _: True) -> None:
        """Wait until kube-scheduler has bound or rejected the pods."""

        async def assert_attempted() -> None:
            await self._provision_volumes()
            assert await self._are_nodes_ready()
            assert all(scheduler_message(one) for one in await self._items("Pod", _UNBOUND) if concerns(one))

        await wait_until(assert_attempted)

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

    async def _delete(self, clusters: Iterable[RandomCluster]) -> None:
        namespaces = [name for one in clusters for name in one.site.namespaces]

        async def delete_all() -> None:
            for kind in ("DaemonSet", "Pod", "PersistentVolumeClaim"):
                paths = (f"{_PATHS[kind].format(name)}?gracePeriodSeconds=0" for name in namespaces)
                await gather_limited(self._api.request("DELETE", path) for path in paths)
            for kind in ("Node", "CSINode", "PersistentVolume"):
                await self._api.request("DELETE", _PATHS[kind])
            for kind in ("DaemonSet", "Pod", "PersistentVolumeClaim", "PersistentVolume"):
                assert not await self._items(kind)

        await wait_until(delete_all)

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


def _cluster_of(pod: Object) -> str:
    found: str = pod["spec"].get("nodeSelector", {}).get(CLUSTER, "")
    return found


def _is_ready(node: Object) -> bool:
    return not any(one["key"] in NOT_READY_TAINTS for one in node["spec"].get("taints") or ())


def _has_volume(claim: Object) -> bool:
    return not claim["spec"].get("volumeName") or claim["status"].get("phase") == "Bound"


def _selected_node(claim: Object) -> str:
    found: str = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node", "")
    return found
