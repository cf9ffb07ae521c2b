"""The parts of one sandbox by its plan, with their order of start and stop, and a background thread for them.

`environment.py` owns the parts and runs their coroutines in the thread, whose event loop lives as long as the sandbox.
Children depend on the thread that started them, and the proxy needs a loop that no test blocks. With its own thread,
the sandbox can be used from synchronous code and from any event loop.
"""

import asyncio
import base64
import secrets
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tenure.controller.temporal.connection import Security
from tenure.progress import Progress
from tenure.sandbox.controlplane import find_or_build
from tenure.sandbox.controlplane.kubernetes import Kubernetes
from tenure.sandbox.eviction_requests import EvictionRequestController
from tenure.sandbox.fault_proxy import Proxy
from tenure.sandbox.processes import Process
from tenure.sandbox.simulators import aws_part, nodes_part
from tenure.sandbox.spec import Plan
from tenure.sandbox.temporal.dev_server import DYNAMIC_CONFIG, SHORT_TIMERS, Temporal
from tenure.sandbox.temporal.server import TemporalServer

T = TypeVar("T")


class Background:
    """Starts at once. It is a daemon, so that it never blocks the exit of the interpreter."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and wait. An interrupt of the caller cancels it and waits for its end."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                asyncio.run_coroutine_threadsafe(_await_cancelled(), self._loop).result()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _await_cancelled() -> None:
    """Wait until all cancelled tasks have finished."""
    others = asyncio.all_tasks() - {task for task in (asyncio.current_task(),) if task}
    cancelled = [task for task in others if task.cancelling()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=10)


async def run_concurrently(*works: Coroutine[Any, Any, None]) -> None:
    """Run concurrently. The first failure cancels the others and is raised without a group."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _start_and_set(start: Callable[[], Coroutine[Any, Any, None]], responds: asyncio.Event) -> None:
    await start()
    responds.set()


ACCESS_KEY = "sandbox"

TakePorts = Callable[..., dict[str, int]]
"""Returns free ports by name."""


class Parts:
    """The constructor reserves ports and, the first time, builds the control plane. `start` starts the parts."""

    def __init__(self, plan: Plan, directory: Path, take: TakePorts) -> None:
        self.plan, self.directory, self.logs = plan, directory, directory / "logs"
        self.kubernetes: Kubernetes | None = None
        self.proxy: Proxy | None = None
        self._controller: asyncio.Task[None] | None = None
        self._aws_responds, self._api_responds = asyncio.Event(), asyncio.Event()
        self.temporal: Temporal | TemporalServer | None = None
        self.aws: Process | None = None
        self.nodes: Process | None = None
        self.aws_endpoint, self.nodes_endpoint = plan.aws_endpoint or "", ""
        if "kubernetes" in plan.parts:
            self._make_kubernetes(take)
        if "temporal" in plan.parts:
            self._make_temporal(take)
        if "aws" in plan.parts:
            self._make_aws(take("aws")["aws"])
        if "nodes" in plan.parts:
            self._make_nodes(take("nodes")["nodes"])

    @property
    def processes(self) -> list[Process]:
        own = [part for part in (self.nodes, self.aws) if part]
        temporal_processes = self.temporal.processes if self.temporal else []
        return own + temporal_processes + (self.kubernetes.parts if self.kubernetes else [])

    @property
    def security(self) -> Security:
        """TLS and encryption for clients of Temporal."""
        there = self.temporal.security if self.temporal else Security()
        return replace(there, payload_keys=str(self._keys)) if self.plan.encrypted else there

    @property
    def _keys(self) -> Path:
        return self.directory / "temporal" / "payload-keys"

    async def start(self, progress: Progress | None = None) -> None:
        """Start the parts concurrently; nodes when AWS and the API server respond. Raises `PartFailed`."""
        starts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        if self.temporal:
            starts["temporal"] = self.temporal.start
        if self.aws:
            starts["aws"] = partial(_start_and_set, self.aws.start, self._aws_responds)
        if self.kubernetes:
            starts["kubernetes"] = self._start_kubernetes
        if self.nodes:
            starts["nodes"] = partial(self._start_nodes, self.nodes)
        started: list[str] = []
        if progress:
            progress.step(f"starting {', '.join(self.plan.parts)}", len(self.plan.parts))

        async def start_part(name: str, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
            await start()
            started.append(name)
            if progress:
                progress.advance(len(started), f"{name} runs")

        await run_concurrently(*(start_part(*one) for one in starts.items()))

    async def stop(self) -> None:
        """Stop nodes first, because they would report the end of the other parts as errors."""
        if self.nodes:
            await self.nodes.stop()
        await self.close_proxy()
        await asyncio.gather(*(part.stop() for part in (self.temporal, self.kubernetes, self.aws) if part))

    async def close_proxy(self) -> None:
        if self._controller:
            self._controller.cancel()
        if self.proxy:
            await self.proxy.stop()

    async def apply(self, manifests: Sequence[Path]) -> None:
        """Apply files or folders as admin, in the order given."""
        if self.kubernetes:
            async with self.kubernetes.endpoint.client() as api:
                for path in manifests:
                    await api.apply_files([path])

    def environment(self) -> dict[str, str]:
        """Environment variables with which a process finds the running parts."""
        plan, found = self.plan, {"CLUSTER_NAME": self.plan.cluster_name}
        if self.kubernetes:
            found["KUBECONFIG"] = str(self.kubernetes.kubeconfig)
        if self.temporal:
            found |= {"TEMPORAL_ADDRESS": self.temporal.address, "TEMPORAL_NAMESPACE": plan.namespace}
            found |= {"TEMPORAL_UI_URL": self.temporal.ui} if self.temporal.ui else {}
            found |= self.security.to_environment()
        if self.aws:
            found |= {"AWS_ENDPOINT_URL": self.aws_endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
            found |= {"AWS_REGION": plan.region, "AWS_DEFAULT_REGION": plan.region}
            found |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": ACCESS_KEY}
        if self.nodes:
            found["NODE_SIMULATOR_URL"] = self.nodes_endpoint
        return found

    def locations(self) -> dict[str, str]:
        """Addresses of the parts, for display."""
        found = {"logs": str(self.logs)}
        if self.kubernetes and self.proxy:
            found |= {"kubeconfig": str(self.kubernetes.kubeconfig), "apiserver": self.kubernetes.server}
            found["apiserver by proxy"] = self.proxy.url
        if self.temporal:
            found |= {"temporal": self.temporal.address}
            found |= {"temporal ui": self.temporal.ui} if self.temporal.ui else {}
        if self.aws:
            found["aws"] = self.aws_endpoint
        if self.nodes:
            found["nodes"] = self.nodes_endpoint
        return found

    async def _start_kubernetes(self) -> None:
        if self.kubernetes and self.proxy:
            await _start_and_set(self.kubernetes.start_api, self._api_responds)
            await run_concurrently(self.kubernetes.start_clients(), self.proxy.start(), self.apply(self.plan.manifests))
            if self.plan.eviction_requests:
                self._controller = asyncio.create_task(self._run_eviction_controller(self.kubernetes))

    async def _start_nodes(self, nodes: Process) -> None:
        if self.aws:
            await self._aws_responds.wait()
        if self.kubernetes:
            await self._api_responds.wait()
        await nodes.start()

    async def _run_eviction_controller(self, kubernetes: Kubernetes) -> None:
        async with kubernetes.endpoint.client() as api:
            await EvictionRequestController(api).run()

    def _make_kubernetes(self, take: TakePorts) -> None:
        ports = take(*Kubernetes.PORTS, "proxy")
        folder = self.directory / "kubernetes"
        self.kubernetes = Kubernetes(
            folder,
            self.logs,
            find_or_build(minor=self.plan.kubernetes),
            ports,
            durable=self.plan.retain_data,
            lease_seconds=self.plan.lease_seconds,
            eviction_requests=self.plan.eviction_requests,
            quick=self.plan.quick,
            watch_cache=self.plan.watch_cache,
        )
        self.proxy = Proxy(self.kubernetes.server, self.kubernetes.authority, ports["proxy"])

    def _make_temporal(self, take: TakePorts) -> None:
        folder = self.directory / "temporal"
        if self.plan.encrypted:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._keys.touch(mode=0o600)
            self._keys.write_text(f"sandbox {base64.b64encode(secrets.token_bytes(32)).decode()}\n")
        if self.plan.temporal == "dev":
            self.temporal = Temporal(
                folder,
                self.logs,
                take(*Temporal.PORTS),
                namespace=self.plan.namespace,
                search_attributes=self.plan.search_attributes,
                requests_per_second=self.plan.temporal_requests_per_second,
                dynamic_config=(*DYNAMIC_CONFIG, SHORT_TIMERS) if self.plan.quick else DYNAMIC_CONFIG,
            )
        else:
            ports, version = take(*TemporalServer.PORTS), self.plan.temporal_version
            self.temporal = TemporalServer(folder, self.logs, ports, namespace=self.plan.namespace, version=version)

    def _make_aws(self, port: int) -> None:
        self.aws_endpoint = f"http://127.0.0.1:{port}"
        self.aws = aws_part(
            self.logs / "aws.log",
            port,
            cluster_name=self.plan.cluster_name,
            region=self.plan.region,
            cluster_endpoint=self.kubernetes.server if self.kubernetes else None,
            authority=self.kubernetes.authority if self.kubernetes else None,
            state=self.directory / "aws" if self.plan.retain_data else None,
            arguments=self.plan.aws_arguments,
        )

    def _make_nodes(self, port: int) -> None:
        kubeconfig = self.kubernetes.kubeconfig if self.kubernetes else self.plan.kubeconfig
        assert kubeconfig is not None, "the plan checks it"
        self.nodes_endpoint = f"http://127.0.0.1:{port}"
        self.nodes = nodes_part(
            self.logs / "nodes.log",
            port,
            kubeconfig=kubeconfig,
            aws_endpoint=self.aws_endpoint,
            region=self.plan.region,
            arguments=self.plan.node_arguments,
        )
