"""The product in the sandbox: workers with the shipped permissions, and access to all components.

One instance serves the whole run. Workers reach the API server through the sandbox's proxy, so that fault rules affect
only them. `cluster_scope.py` gives each test its own objects.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import aiohttp
import boto3
from temporalio.client import Client, WorkflowExecution, WorkflowQueryFailedError
from temporalio.service import RPCError

from tenure.cli.nodes.workflows import NodeClaimVisibility
from tenure.cli.sandbox.probes import unused_nodes
from tenure.cli.sandbox.worker_process import clean_environment, service_account
from tenure.cli.temporal_client import Connection
from tenure.controller.temporal.client import list_singletons
from tenure.kube.client.resources import EC2_NODE_CLASSES, LEASES
from tenure.kube.leader_election import LEADER_LEASE
from tenure.model.workflow_states import ProvisioningState
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import ApiError
from tenure.sandbox.fault_proxy import Faults
from tenure.sandbox.kube_client import KubeApi
from tenure.sandbox.nodes.control_api import NodesControl
from tenure.sandbox.ports import Ports
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import wait_until
from tests.support.product.objects import NODE_CLASS, node_class
from tests.support.product.shared_sandbox import SharedFaults, SharedSandbox
from tests.support.product.worker_harness import SETTINGS, WorkerAddresses, WorkerUnderTest
from workflows import ids

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
READY_WITHIN_SECONDS = 400.0
"""For an EC2NodeClass after the worker's start. A test may let AWS calls fail, which are retried with backoff."""
METRICS_TIMEOUT = aiohttp.ClientTimeout(total=5)
Object = dict[str, Any]


class InstalledProduct:
    """An async context manager. Many tests use it at the same time, so a test changes only objects of its own scope.

    `worker` is the running worker of the sandbox, which no test may stop.
    """

    def __init__(self, sandbox: Sandbox | SharedSandbox, worker: WorkerAddresses | None = None) -> None:
        self.sandbox = sandbox
        self.aws = AwsControl(sandbox.aws_endpoint)
        self._worker = worker
        self._stack = AsyncExitStack()
        self._serial = 0
        self.samples_before_kill: list[str] = []
        """Metrics of a killed worker, since counters start at zero in each process."""
        self.faultless_pools: set[str] = set()
        """NodePools of tests that passed and injected no fault."""
        self.kube: KubeApi
        self.temporal: Client
        self.nodeclaim_workflows: NodeClaimVisibility
        self.nodes: NodesControl
        self._kubeconfig: Path

    async def __aenter__(self) -> Self:
        sandbox = self.sandbox
        self.kube = await self._stack.enter_async_context(sandbox.cluster.client())
        self.nodes = await self._stack.enter_async_context(NodesControl(sandbox.nodes_endpoint))
        self.temporal = await sandbox.temporal_client()
        self.nodeclaim_workflows = NodeClaimVisibility(self.temporal, sandbox.plan.cluster_name)
        namespace, name = service_account()
        self._kubeconfig = await asyncio.to_thread(
            sandbox.service_account_kubeconfig, namespace, name, through_proxy=True
        )
        await self.kube.apply(node_class())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def connection(self) -> Connection:
        """A Connection as a command creates it from its options for Temporal."""
        sandbox = self.sandbox
        return Connection(
            sandbox.temporal_address,
            sandbox.plan.namespace,
            sandbox.plan.cluster_name,
            sandbox.temporal_security,
            sandbox.temporal_ui,
        )

    def logged_steps(self, nodeclaim: str) -> list[str]:
        """Messages of the shared worker's log about the steps of a NodeClaim, without repetitions of a workflow task
        that timed out."""
        own = [one for one in self.log_entries() if one.get("NodeClaim", {}).get("name") == nodeclaim]
        steps = [one for one in own if "step" in one and "code" not in one]
        return list(dict.fromkeys(one["message"] for one in steps))

    def log_entries(self) -> list[Object]:
        """The logs of the sandbox's workers, oldest worker first. Each line must be JSON."""
        logs = sorted(self.sandbox.logs.glob("worker-*.log"), key=lambda path: path.stat().st_mtime)
        complete = [path.read_text().rpartition("\n")[0] for path in logs]
        return [json.loads(line) for text in complete for line in text.splitlines()]

    async def run_cli(self, *arguments: str) -> tuple[int, Any]:
        """Run a command with the worker's settings and permissions. Returns its exit code and JSON output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenure", *arguments, "-o", "json"),
            env=clean_environment() | self.sandbox.environment() | {"KUBECONFIG": str(self._kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        assert process.returncode is not None and output, errors.decode()
        return process.returncode, json.loads(output)

    @property
    def worker(self) -> WorkerAddresses | WorkerUnderTest:
        assert self._worker is not None, "no worker was started"
        return self._worker

    @property
    def faults(self) -> Faults | SharedFaults:
        """Fault rules of the API server, which affect workers only."""
        return self.sandbox.faults

    # --- reads ---

    async def find(self, path: str) -> Object | None:
        """The object, or None if it does not exist."""
        try:
            return await self.kube.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def items(self, path: str, **selectors: str) -> list[Object]:
        """`selectors`: `label` and `field`."""
        query = "&".join(f"{kind}Selector={selector}" for kind, selector in selectors.items())
        found: list[Object] = (await self.kube.request("GET", f"{path}?{query}")).get("items") or []
        return found

    async def patch(self, path: str, body: Object) -> None:
        await self.kube.request("PATCH", path, body, MERGE)

    async def patch_status(self, path: str, status: Object) -> None:
        """Conditions are merged by type, resources by name."""
        await self.kube.request("PATCH", f"{path}/status", {"status": status}, STRATEGIC)

    async def delete(self, path: str) -> None:
        """The object may already be deleted."""
        await wait_until(lambda: self._delete(path))

    async def _delete(self, path: str) -> None:
        try:
            await self.kube.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    async def assert_nodeclass_ready(self, name: str = NODE_CLASS) -> Object:
        found = await self.kube.request("GET", EC2_NODE_CLASSES.path(name))
        conditions = {one["type"]: one["status"] for one in (found.get("status") or {}).get("conditions") or ()}
        assert conditions.get("Ready") == "True", conditions
        return found

    async def assert_condition(self, path: str, kind: str, status: str) -> None:
        found = await self.kube.request("GET", path)
        conditions = {one["type"]: one for one in (found.get("status") or {}).get("conditions") or ()}
        assert conditions.get(kind, {}).get("status") == status, f"{path}: {conditions}"

    async def assert_deleted(self, path: str) -> None:
        assert await self.find(path) is None, f"{path} is still there"

    async def open_workflows(self) -> list[WorkflowExecution]:
        return [one async for one in self.temporal.list_workflows("ExecutionStatus = 'Running'")]

    async def failed_workflows(self) -> list[str]:
        """Ids of this cluster's workflows that failed, timed out or were terminated.

        Tests of the watch have other clusters in the same namespace, and terminate their workflows.
        """
        query = "ExecutionStatus IN ('Failed', 'TimedOut', 'Terminated')"
        prefix = f"{self.sandbox.plan.cluster_name}/"
        return [one.id async for one in self.temporal.list_workflows(query) if one.id.startswith(prefix)]

    async def launch_template_names(self) -> list[str]:
        """Names of all launch templates, including foreign ones."""
        response = await asyncio.to_thread(self._ec2().describe_launch_templates)
        return [one["LaunchTemplateName"] for one in response["LaunchTemplates"]]

    async def launch_template_images(self, names: Sequence[str]) -> dict[str, str]:
        """The image of each launch template by name, without templates that were deleted meanwhile."""
        ec2 = self._ec2()
        response = await asyncio.to_thread(ec2.describe_launch_templates)
        existing = [
            one["LaunchTemplateName"] for one in response["LaunchTemplates"] if one["LaunchTemplateName"] in names
        ]
        found = {}
        for name in existing:
            version = await asyncio.to_thread(ec2.describe_launch_template_versions, LaunchTemplateName=name)
            found[name] = version["LaunchTemplateVersions"][0]["LaunchTemplateData"]["ImageId"]
        return found

    async def wait_until_only_singletons_run(self) -> None:
        await wait_until(self._assert_only_singletons_run)

    async def terminate_singletons(self) -> None:
        """Stop the cluster-wide workflows. Call it without a worker, which would start them again."""
        for one in await self.open_workflows():
            # Visibility may still list a completed workflow.
            with contextlib.suppress(RPCError):
                await self.temporal.get_workflow_handle(one.id).terminate("the test ends")
        await wait_until(self._assert_no_workflow_runs)

    async def _assert_only_singletons_run(self) -> None:
        running = {one.id for one in await self.open_workflows()}
        assert running <= set(list_singletons(self.sandbox.plan.cluster_name)), running

    async def _assert_no_workflow_runs(self) -> None:
        running = [one.id for one in await self.open_workflows()]
        assert not running, running

    def _ec2(self) -> Any:
        return self.admin_client("ec2")

    def admin_client(self, service: Any) -> Any:
        """An AWS client without IAM policy."""
        session = boto3.session.Session("admin", "admin", region_name=self.sandbox.plan.region)
        return session.client(service, endpoint_url=self.sandbox.aws_endpoint)

    async def watch_hosts(self) -> list[str]:
        """The Temporal identity (`pid@host`) of the worker that hosts the watch now; empty without one."""
        lease = await self.find(LEASES.path(LEADER_LEASE, namespace="tenure"))
        spec = lease["spec"] if lease else {}
        is_active = spec and datetime.fromisoformat(spec["renewTime"]) + timedelta(
            seconds=spec["leaseDurationSeconds"]
        ) > datetime.now(UTC)
        return [spec["holderIdentity"]] if is_active and spec["holderIdentity"] else []

    async def describe_provisioning(self) -> list[str]:
        """A line about the open launches of the Provisioning workflow, and one about each pending activity."""
        handle = self.temporal.get_workflow_handle(ids.provisioning(self.sandbox.plan.cluster_name))
        try:
            state: ProvisioningState = await handle.query("state", result_type=ProvisioningState)
            pending = (await handle.describe()).raw_description.pending_activities
        except (RPCError, WorkflowQueryFailedError) as error:
            return [f"provisioning: {error}"]
        fields = {"plan_id", "demand", "blocked_by", "drafts", "joining", "groups", "unavailable"}
        return [f"provisioning: {state.model_dump_json(include=fields)}", *map(str, pending)]

    async def watch_host(self) -> str:
        """The identity of the only watch host."""
        hosts = await self.watch_hosts()
        assert len(hosts) == 1, f"{hosts} host the watch"
        return hosts[0]

    async def assert_watch_hosted_by(self, worker: WorkerUnderTest) -> None:
        """A worker that was killed keeps its Lease for some seconds."""
        assert (await self.watch_host()).startswith(f"{worker.pid}@")

    async def probe_response(self, worker: WorkerAddresses | WorkerUnderTest, probe: str = "readyz") -> str:
        """The worker's response to a probe."""
        async with aiohttp.ClientSession() as session, session.get(f"{worker.probes}/{probe}") as response:
            return await response.text()

    async def metric_value(self, name: str, **labels: str) -> float:
        """Value of a sample that the worker exports, which must exist and be above zero."""
        lines = [line for line in await self.metric_samples() if line.startswith(name)]
        if name.endswith(("_total", "_count")):
            lines += [line for line in self.samples_before_kill if line.startswith(name)]
        found = [line for line in lines if all(f'{key}="{value}"' in line for key, value in labels.items())]
        assert found, f"no sample of {name} with {labels} among {lines}"
        value = float(found[0].rpartition(" ")[2])
        assert value > 0, found[0]
        return value

    async def metric_samples(self) -> list[str]:
        async with aiohttp.ClientSession() as session, session.get(self.worker.metrics) as response:
            return (await response.text()).splitlines()

    async def assert_all_nodes_used(self) -> None:
        """No node of a test without faults was deleted without any pod that a node was launched for."""
        found = {pool: count for pool, count in (await self.unused_nodes()).items() if pool in self.faultless_pools}
        log = "\n".join(map(str, (one for one in self.log_entries() if one.get("NodePool", {}).get("name") in found)))
        assert not found, f"unused nodes by NodePool, whose name contains that of the test: {found}\n{log}"

    async def unused_nodes(self) -> Mapping[str, int]:
        """By NodePool."""
        return unused_nodes("\n".join([*await self.metric_samples(), ""]))

    # --- scopes ---

    def scope(self, row: str, **pool: Any) -> "ClusterScope":
        """A scope with a unique name for one test; `pool`: arguments of `objects.node_pool`."""
        self._serial += 1
        return ClusterScope(
            self, f"t{row.replace('-', '')}-{os.environ.get('PYTEST_XDIST_WORKER', '')}{self._serial}", pool
        )


class DedicatedProduct(InstalledProduct):
    """A sandbox of one xdist worker. Its tests run sequentially, and start, stop and kill workers."""

    def __init__(self, sandbox: Sandbox | SharedSandbox) -> None:
        super().__init__(sandbox)
        self._ports = Ports()
        self._settings: Mapping[str, str] = {}
        self.workers: list[WorkerUnderTest] = []
        """All started workers, the newest last."""
        self._unused_before = Counter[str]()
        """Unused nodes by NodePool that ended workers counted, since counters start at zero in each process."""

    @property
    def own_sandbox(self) -> Sandbox:
        """The sandbox with operations of its host process, such as stopping a component."""
        assert isinstance(self.sandbox, Sandbox)
        return self.sandbox

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        self._ports.close()
        await super().__aexit__()

    @property
    def worker(self) -> WorkerUnderTest:
        return self.workers[-1]

    def add_worker(self, **settings: str) -> WorkerUnderTest:
        """Add a worker without starting it. `settings`: by environment variable."""
        worker = WorkerUnderTest(
            self.sandbox.logs / f"worker-{len(self.workers) + 1}.log",
            environment=self.sandbox.environment() | SETTINGS | settings,
            kubeconfig=self._kubeconfig,
            ports=self._ports,
        )
        self.workers.append(worker)
        return worker

    async def ensure_worker(self, **settings: str) -> WorkerUnderTest:
        """Ensure that a worker with exactly these settings runs; one with other settings is stopped first."""
        if self.workers and self.worker.is_running and self._settings == settings:
            return self.worker
        await self.stop_workers()
        self._settings = settings
        worker = self.add_worker(**settings)
        await self.kube.apply(node_class())
        await worker.start()
        await wait_until(self.assert_nodeclass_ready, seconds=READY_WITHIN_SECONDS)
        return worker

    async def resume_worker(self) -> WorkerUnderTest:
        """Start a worker with the previous settings."""
        return await self.ensure_worker(**self._settings)

    async def unused_nodes(self) -> Mapping[str, int]:
        """Of all workers, also ended ones."""
        running = [one for one in self.workers if one.is_running]
        return sum([await self._unused_nodes_of(one) for one in running], self._unused_before)

    async def _unused_nodes_of(self, worker: WorkerUnderTest) -> Counter[str]:
        """Empty for a worker that does not serve metrics yet."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(worker.metrics, timeout=METRICS_TIMEOUT) as response,
            ):
                return Counter(unused_nodes(await response.text()))
        except (aiohttp.ClientError, TimeoutError):
            return Counter()

    async def stop_workers(self) -> None:
        """Stop all workers as an operator would; they must exit with 0."""
        for worker in [one for one in self.workers if one.is_running]:
            self._unused_before += await self._unused_nodes_of(worker)
            code = await worker.stop_gracefully()
            assert code == 0, f"the worker ended with {code}, see {worker.log}:\n{worker.last_errors()}"

    async def kill_worker(self, worker: WorkerUnderTest | None = None) -> None:
        """SIGKILL to the worker process only, without its children."""
        target = worker or self.worker
        self._unused_before += await self._unused_nodes_of(target)
        os.kill(target.pid, signal.SIGKILL)
        await asyncio.to_thread(target.wait)
