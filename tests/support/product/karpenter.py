"""Karpenter for tests: its own controller and its Deployment.

The controller runs as a child process with the rights of an administrator.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tenure.apis import labels
from tenure.cli.sandbox.worker_process import clean_environment
from tenure.kube.client.resources import LEASES, WORKLOADS
from tenure.sandbox.controlplane.tools import KARPENTER, karpenter_controller
from tenure.sandbox.ports import Ports
from tenure.sandbox.processes import Process, http_ok
from tests.support.product.objects import Object
from tests.support.product.product import DedicatedProduct

LEADER_LEASE: Final = "karpenter-leader-election"
LEADER_LEASE_PATH: Final = LEASES.path(LEADER_LEASE, namespace="kube-system")
READY_WITHIN_SECONDS: Final = 120.0
STOP_GRACE_SECONDS: Final = 60.0
POLL_INTERVAL_SECONDS: Final = 0.5
HASH_ANNOTATIONS: Final = {
    labels.NODEPOOL_HASH: "13971920214979852468",
    labels.NODEPOOL_HASH_VERSION: "v3",
    labels.NODECLASS_HASH: "11148166120438674859",
    labels.NODECLASS_HASH_VERSION: "v6",
}
CHART_ENVIRONMENT: Final = {
    "KUBERNETES_MIN_VERSION": "1.19.0-0",
    "KARPENTER_SERVICE": "karpenter",
    "LOG_LEVEL": "info",
    "LOG_OUTPUT_PATHS": "stdout",
    "LOG_ERROR_OUTPUT_PATHS": "stderr",
    "METRICS_PORT": "8080",
    "HEALTH_PROBE_PORT": "8081",
    "FEATURE_GATES": "ReservedCapacity=true,SpotToSpotConsolidation=false,NodeRepair=false,NodeOverlay=false",
    "BATCH_MAX_DURATION": "10s",
    "BATCH_IDLE_DURATION": "1s",
    "VM_MEMORY_OVERHEAD_PERCENT": "0.075",
    "RESERVED_ENIS": "0",
}
"""Environment that Karpenter's chart sets, besides the cluster's name."""
KARPENTER_DEPLOYMENT_PATH: Final = WORKLOADS["Deployment"].path("karpenter", namespace="kube-system")
TENURE_DEPLOYMENT_PATH: Final = WORKLOADS["Deployment"].path("tenure", namespace="tenure")


def deployment(namespace: str, name: str, replicas: int, image: str, environment: Mapping[str, str]) -> Object:
    """As in both charts, its pods do not tolerate nodes of NodePools, so they stay Pending here."""
    match_labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": name}
    no_nodepool = {"matchExpressions": [{"key": labels.NODEPOOL, "operator": "DoesNotExist"}]}
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [no_nodepool]}}
    variables = [{"name": key, "value": value} for key, value in environment.items()]
    main = {"name": "controller" if name == "karpenter" else name, "image": image, "env": variables}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": match_labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": match_labels},
            "template": {
                "metadata": {"labels": match_labels},
                "spec": {"affinity": {"nodeAffinity": node_affinity}, "containers": [main]},
            },
        },
    }


class KarpenterProcess:
    """The controller of `KARPENTER`, which stops as it does in a cluster: it releases its Lease."""

    def __init__(self, product: DedicatedProduct, binary: Path) -> None:
        self._ports = Ports()
        probes, metrics = self._ports.reserve(), self._ports.reserve()
        environment = {
            **clean_environment(),
            **CHART_ENVIRONMENT,
            **product.sandbox.environment(),
            "HEALTH_PROBE_PORT": str(probes),
            "METRICS_PORT": str(metrics),
            "LEADER_ELECTION_NAMESPACE": "kube-system",
            "INTERRUPTION_QUEUE": product.sandbox.plan.cluster_name,
        }
        self._process = Process(
            "karpenter",
            [binary],
            log=product.sandbox.logs / "karpenter.log",
            health=http_ok(f"http://127.0.0.1:{probes}/healthz"),
            environment=environment,
            deadline=READY_WITHIN_SECONDS,
        )

    async def run_if(self, should_run: bool) -> None:
        """Start or stop the process. One that exited on its own is started again, as a kubelet does."""
        if should_run and not self._process.is_running:
            await self._process.start()
        elif self._process.is_running and not should_run:
            await self._process.stop(STOP_GRACE_SECONDS)

    def close(self) -> None:
        self._process.kill()
        self._ports.close()


@asynccontextmanager
async def karpenter_and_tenure_deployed(product: DedicatedProduct) -> AsyncIterator[None]:
    """Both Deployments: Karpenter's with two replicas, Tenure's with none. Their pods stay Pending. While a Deployment
    has replicas, one process of its controller runs. Builds Karpenter if necessary.
    """
    name = product.sandbox.plan.cluster_name
    image = f"public.ecr.aws/karpenter/controller:{KARPENTER}"
    await product.kube.apply(
        deployment("kube-system", "karpenter", 2, image, {"CLUSTER_NAME": name, **CHART_ENVIRONMENT})
    )
    await product.kube.apply(deployment("tenure", "tenure", 0, "tenure:1", {"CLUSTER_NAME": name}))
    process = KarpenterProcess(product, await asyncio.to_thread(karpenter_controller))
    tasks = [asyncio.create_task(one) for one in (_run_karpenter(product, process), _run_tenure(product))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        process.close()
        for path in (KARPENTER_DEPLOYMENT_PATH, TENURE_DEPLOYMENT_PATH, LEADER_LEASE_PATH):
            await product.delete(path)


async def desired_replicas(product: DedicatedProduct, path: str) -> int:
    return int((await product.kube.request("GET", path))["spec"]["replicas"])


async def _run_karpenter(product: DedicatedProduct, process: KarpenterProcess) -> None:
    while True:
        await process.run_if(await desired_replicas(product, KARPENTER_DEPLOYMENT_PATH) > 0)
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def _run_tenure(product: DedicatedProduct) -> None:
    while True:
        should_run = await desired_replicas(product, TENURE_DEPLOYMENT_PATH) > 0
        is_running = bool(product.workers) and product.worker.is_running
        if should_run and not is_running:
            await product.ensure_worker()
        elif is_running and not should_run:
            await product.stop_workers()
        await asyncio.sleep(POLL_INTERVAL_SECONDS)
