"""A worker in a sandbox, and a view of its cluster, for the demo and the benchmarks."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import structlog
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from tenure.cli.exit_codes import CommandFailed
from tenure.cli.nodes.workflows import NodeClaimSummary, NodeClaimVisibility
from tenure.cli.sandbox.probes import AwsProbe, PodCount, PodWatch
from tenure.cli.sandbox.worker_process import WORKER_KEY, WorkerProcess, service_account
from tenure.kube.client.client import connect
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import ApiError
from tenure.sandbox.kube_client import KubeApi
from tenure.sandbox.ports import Ports
from tenure.sandbox.supervisor import run_concurrently


@dataclass(frozen=True)
class ClusterView:
    pods: PodCount
    nodeclaims: Sequence[NodeClaimSummary]


Object = dict[str, Any]
POLL_INTERVAL_SECONDS = 0.2
MIN_PAUSE_SECONDS = 0.05


class SandboxSession:
    """An async context manager: the worker is healthy inside it. `deployment` in `default` is the one to scale.

    `through_proxy` sends the worker's requests through a proxy that counts writes in `sandbox.written` and adds delay.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        deployment: str,
        settings: Mapping[str, str] | None = None,
        through_proxy: bool = False,
    ) -> None:
        self.sandbox, self._deployment, self._through_proxy = sandbox, deployment, through_proxy
        self._settings = dict(settings or {})
        self._ports = Ports()
        self._stack = AsyncExitStack()
        self.worker: WorkerProcess
        self._is_worker_killed = False
        self.kube: KubeApi
        self.temporal: Client
        self.nodeclaims: NodeClaimVisibility
        self.aws: AwsProbe
        self.pods: PodWatch

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        # The watch below would log between the lines of the demo.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        self._stack.callback(self._ports.close)
        self.kube = await self._stack.enter_async_context(self.sandbox.cluster.client())
        self.aws = AwsProbe(AwsControl(self.sandbox.aws_endpoint), WORKER_KEY)
        await self.replace_worker()
        await run_concurrently(self.worker.start(), self._connect())
        metrics = f"http://127.0.0.1:{self.worker.metrics_port}/metrics"
        self.sandbox.add_to_record(self.worker, {"worker metrics": metrics})

    async def _connect(self) -> None:
        watcher = await connect(str(self.sandbox.kubeconfig))
        self._stack.push_async_callback(watcher.close)
        self.pods = await self._stack.enter_async_context(PodWatch(watcher, f"app={self._deployment}"))
        self.temporal = await self.sandbox.temporal_client()
        self.nodeclaims = NodeClaimVisibility(self.temporal, self.sandbox.plan.cluster_name)

    async def replace_worker(self, **settings: str) -> WorkerProcess:
        """Create a new worker, with these settings in addition. It is not started yet."""
        self.worker, self._is_worker_killed = await self._make_worker(settings), False
        self._stack.push_async_callback(self.worker.stop, 2.0)
        return self.worker

    def kill_worker(self) -> None:
        self.worker.kill()
        self._is_worker_killed = True

    async def _make_worker(self, settings: dict[str, str]) -> WorkerProcess:
        namespace, name = service_account()
        kubeconfig = await asyncio.to_thread(
            self.sandbox.service_account_kubeconfig, namespace, name, through_proxy=self._through_proxy
        )
        rights = {"KUBECONFIG": str(kubeconfig), "AWS_ACCESS_KEY_ID": WORKER_KEY, "AWS_SECRET_ACCESS_KEY": WORKER_KEY}
        return WorkerProcess(
            self.sandbox.logs / "worker.log",
            environment=self.sandbox.environment() | rights | self._settings | settings,
            health_port=self._ports.reserve(),
            metrics_port=self._ports.reserve(),
        )

    async def apply(self, *manifests: Path) -> None:
        await asyncio.to_thread(self.sandbox.apply, *manifests)

    async def scale_deployment(self, replicas: int) -> None:
        path = f"/apis/apps/v1/namespaces/default/deployments/{self._deployment}/scale"
        body = {"spec": {"replicas": replicas}}
        await self.kube.request("PATCH", path, body, "application/merge-patch+json")

    async def delete(self, path: str) -> None:
        try:
            await self.kube.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    async def list_names(self, path: str, selector: str = "", *, limit: int = 500) -> list[str]:
        query = f"?limit={limit}" + (f"&labelSelector={selector}" if selector else "")
        response = await self.kube.request("GET", path + query)
        return [item["metadata"]["name"] for item in response.get("items") or ()]

    async def why_not_ready(self, path: str) -> str:
        """Empty if the condition Ready is True."""
        response = await self.kube.request("GET", path)
        conditions: list[Object] = response.get("status", {}).get("conditions") or []
        by_type = {condition["type"]: condition for condition in conditions}
        ready = by_type.get("Ready", {})
        if ready.get("status") == "True":
            return ""
        waits = [f"{one['type']}={one['status']} {one.get('message', '')}" for one in by_type.values()]
        return "; ".join(wait for wait in waits if "=True" not in wait) or "no conditions yet"

    async def read_view(self) -> ClusterView:
        return ClusterView(pods=self.pods.count_pods(), nodeclaims=await self.nodeclaims.list_all())

    async def open_workflows(self) -> list[WorkflowExecution]:
        return [one async for one in self.temporal.list_workflows("ExecutionStatus = 'Running'")]

    async def wait_until(
        self,
        done: Callable[[ClusterView], bool],
        *,
        what: str,
        seconds: float,
        on_view: Callable[[ClusterView], None] = lambda view: None,
    ) -> ClusterView:
        """Raises `CommandFailed` after `seconds`, and `PartFailed` if a part exits."""
        deadline = time.monotonic() + seconds
        while True:
            self.check()
            view = await self.read_view()
            on_view(view)
            if done(view):
                return view
            if time.monotonic() > deadline:
                raise CommandFailed(f"{what}: not reached within {seconds:g} s; {_describe_view(view)}")
            await self.pods.wait_for_change(POLL_INTERVAL_SECONDS)

    async def wait_until_resolved(self, find_problem: Callable[[], Any], *, what: str, seconds: float) -> None:
        """Wait until there is no problem. After `seconds`, raises `CommandFailed` with the last problem. The time
        between calls is at least the time of a call, which may list thousands of objects.
        """
        began = time.monotonic()
        deadline = began + seconds
        while problem := await find_problem():
            self.check()
            now = time.monotonic()
            if now > deadline:
                raise CommandFailed(f"{what}: not reached within {seconds:g} s; {problem}")
            await asyncio.sleep(max(MIN_PAUSE_SECONDS, now - began))
            began = time.monotonic()

    def check(self) -> None:
        """Raises `PartFailed` if the worker or a part has exited, except a worker that was killed on purpose."""
        if not self._is_worker_killed:
            self.worker.check()
        self.sandbox.check()

    async def terminate_open_workflows(self, seconds: float = 15.0) -> list[str]:
        """Returns the IDs of workflows that are still open after `seconds`."""
        deadline = time.monotonic() + seconds
        while (still := await self.open_workflows()) and time.monotonic() < deadline:
            for workflow in still:
                with suppress(RPCError):  # It may have completed meanwhile.
                    await self.temporal.get_workflow_handle(workflow.id).terminate("the sandbox stops")
            await asyncio.sleep(POLL_INTERVAL_SECONDS / 2)
        return sorted(workflow.id for workflow in still)


def _describe_view(view: ClusterView) -> str:
    blocked = [
        f"{one.name} in {one.phase}: {one.blocked_by or 'no reason given'}" for one in view.nodeclaims if one.open
    ]
    return f"pods: {view.pods}; nodes: {'; '.join(blocked[:5]) or 'none'}"
