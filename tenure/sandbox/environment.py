"""The sandbox as one object to start and stop: Temporal, Kubernetes, AWS and nodes on one machine.

    with Sandbox() as sandbox:
        sandbox.kubeconfig, sandbox.aws_endpoint, sandbox.temporal_address, sandbox.environment()

The tests, the demo, the benchmarks and `tenure sandbox` use it. Every part is a child process with its own log. No part
outlives this process.
"""

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from temporalio.client import Client

from tenure.controller.temporal.connection import Security
from tenure.progress import report_progress
from tenure.sandbox.controlplane.kubernetes import Endpoint, Kubernetes
from tenure.sandbox.errors import NotRunning
from tenure.sandbox.fault_proxy import Faults
from tenure.sandbox.ports import Ports
from tenure.sandbox.processes import Process
from tenure.sandbox.spec import PARTS, Plan
from tenure.sandbox.state_file import DirectoryLock, Record
from tenure.sandbox.supervisor import Background, Parts, TakePorts
from tenure.sandbox.temporal.dev_server import Temporal
from tenure.sandbox.temporal.server import TemporalServer

T = TypeVar("T")


class Sandbox:
    """`directory`: None for a temporary one, which is removed with the sandbox. `ports`: requested ports by part.
    `reports_progress`: report the start of the parts on stderr.

    A kept directory is reopened with its data, and with the same ports if they are free.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        plan: Plan | None = None,
        ports: Mapping[str, int] | None = None,
        reports_progress: bool = False,
    ) -> None:
        self.plan = plan or Plan()
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="tenure-sandbox-"))
        self.logs = self.directory / "logs"
        self.ports: dict[str, int] = {}
        self._requested_ports = dict(ports or {})
        self._reports_progress = reports_progress
        self._parts: Parts | None = None
        self._background: Background | None = None

    # --- lifecycle ---

    def start(self) -> Self:
        """Start all parts and wait until they are healthy. After a failure, no part is left running.

        Raises a `SandboxError`: `PartFailed`, `NoPort`, `DirectoryInUse`, `ApiError` for a rejected manifest, or
        `BuildFailed` without control plane binaries.
        """
        self._lock = DirectoryLock(self.directory)
        self._reserved = Ports()
        self._background = Background(f"sandbox {self.directory.name}")
        atexit.register(self.kill)
        try:
            last = self._reopen_state()
            self._parts = Parts(self.plan, self.directory, self._port_taker(last.ports if last else {}))
            with report_progress() if self._reports_progress else nullcontext() as progress:
                self._background.run(self._parts.start(progress))
            self._record().write(self.directory)
        except BaseException:
            self.kill()
            self._remove_data()
            raise
        return self

    def stop(self) -> None:
        """Stop all parts in order, and remove temporary data. Safe to call twice."""
        if self._background is None:
            return
        try:
            self._background.run(self._running_parts.stop())
        finally:
            self.kill()
        self._clean_up()

    def kill(self) -> None:
        """Kill all parts. Called by `stop`, by a failed start, and at the end of the interpreter."""
        if self._background is None:
            return
        for part in self.processes:
            part.kill()
        if self._parts:
            self._background.run(self._parts.close_proxy())
        self._background.close()
        self._background = None
        self._reserved.close()
        self._lock.release()
        atexit.unregister(self.kill)

    def check(self) -> None:
        """Raises `PartFailed` if a part has exited."""
        for part in self.processes:
            part.check()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def stop_part(self, name: str) -> None:
        """Stop one part by its process name, such as `temporal`. Its data is kept for `start_part`."""
        self.run(self._find_process(name).stop())

    def start_part(self, name: str) -> None:
        """Start a stopped part at the same address. Raises `PartFailed`."""
        self.run(self._find_process(name).start())

    def lose_temporal_data(self) -> None:
        """Replace Temporal's data by an empty database and an empty namespace."""
        self.run(self._temporal.lose_data())

    # --- addresses ---

    @property
    def processes(self) -> list[Process]:
        return self._parts.processes if self._parts else []

    @property
    def cluster(self) -> Endpoint:
        """The API server for the admin; `cluster.client()` is a small client."""
        return self._kubernetes.endpoint

    @property
    def kubeconfig(self) -> Path:
        return self._kubernetes.kubeconfig

    @property
    def apiserver(self) -> str:
        return self._kubernetes.server

    @property
    def faults(self) -> Faults:
        """Fault rules of the proxy in front of the API server."""
        return _require_part(self._running_parts.proxy, "kubernetes").faults

    @property
    def temporal_address(self) -> str:
        return self._temporal.address

    @property
    def temporal_security(self) -> Security:
        """TLS and encryption for clients of Temporal."""
        return self._running_parts.security

    @property
    def temporal_server(self) -> TemporalServer:
        """The server with PostgreSQL. Raises `NotRunning` if the sandbox has the dev server."""
        if not isinstance(found := self._running_parts.temporal, TemporalServer):
            raise NotRunning("this sandbox has no Temporal server with PostgreSQL")
        return found

    async def temporal_client(self) -> Client:
        """A client in the caller's event loop."""
        return await Client.connect(
            self.temporal_address,
            namespace=self.plan.namespace,
            tls=self.temporal_security.tls_config(),
            data_converter=self.temporal_security.data_converter(),
        )

    @property
    def temporal_ui(self) -> str:
        return self._temporal.ui

    @property
    def aws_endpoint(self) -> str:
        _require_part(self._running_parts.aws, "aws")
        return self._running_parts.aws_endpoint

    @property
    def nodes_endpoint(self) -> str:
        """The control API of the node simulator."""
        _require_part(self._running_parts.nodes, "nodes")
        return self._running_parts.nodes_endpoint

    @property
    def written(self) -> list[str]:
        """Write requests through the proxy, such as `PATCH /api/v1/nodes/one`; oldest first."""
        return _require_part(self._running_parts.proxy, "kubernetes").written

    def environment(self) -> dict[str, str]:
        """Environment variables with which a process finds the running parts, as admin."""
        return self._running_parts.environment()

    def locations(self) -> dict[str, str]:
        """Addresses of the parts, for display."""
        return self._running_parts.locations()

    def add_to_record(self, process: Process, locations: Mapping[str, str]) -> None:
        """List a process that another object starts and stops, with its addresses, in the record of the directory."""
        record = self._record()
        processes, reach = {**record.processes, process.name: process.pid}, {**record.reach, **locations}
        record.model_copy(update={"processes": processes, "reach": reach}).write(self.directory)

    def apply(self, *manifests: Path) -> None:
        """Apply files, or the YAML files of folders, as admin."""
        self.run(self._running_parts.apply(manifests))

    def service_account_kubeconfig(self, namespace: str, name: str, *, through_proxy: bool = False) -> Path:
        """A kubeconfig with a token of this ServiceAccount. `through_proxy`: the rules of `faults` apply."""
        server = _require_part(self._running_parts.proxy, "kubernetes").url if through_proxy else None
        return self.run(self._kubernetes.service_account_kubeconfig(namespace, name, server=server))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the sandbox, from synchronous code or another thread."""
        if self._background is None:
            work.close()
            raise NotRunning("the sandbox is not running")
        return self._background.run(work)

    # --- internals ---

    @property
    def _running_parts(self) -> Parts:
        if self._parts is None or self._background is None:
            raise NotRunning("the sandbox is not running")
        return self._parts

    @property
    def _temporal(self) -> Temporal | TemporalServer:
        if (found := self._running_parts.temporal) is None:
            raise NotRunning("this sandbox runs without temporal")
        return found

    @property
    def _kubernetes(self) -> Kubernetes:
        return _require_part(self._running_parts.kubernetes, "kubernetes")

    def _find_process(self, name: str) -> Process:
        found = {part.name: part for part in self.processes}
        if name not in found:
            raise NotRunning(f"unknown part {name} (expected one of {', '.join(sorted(found))})")
        return found[name]

    def _port_taker(self, last: Mapping[str, int]) -> TakePorts:
        def take(*names: str) -> dict[str, int]:
            for name in names:
                strict = name in self._requested_ports
                self.ports[name] = self._reserved.reserve(
                    self._requested_ports.get(name) or last.get(name), strict=strict
                )
            return {name: self.ports[name] for name in names}

        return take

    def _record(self) -> Record:
        return Record(
            pid=os.getpid(),
            parts=self.plan.parts,
            ports=self.ports,
            environment=self.environment(),
            reach=self.locations(),
            processes={part.name: part.pid for part in self.processes},
            retain_data=self.plan.retain_data,
        )

    def _reopen_state(self) -> Record | None:
        """Reuse kept data, or remove the data of a killed sandbox."""
        last = Record.read(self.directory)
        if last and last.retain_data:
            self.plan = replace(self.plan, retain_data=True)
        self._remove_data()
        return last

    def _clean_up(self) -> None:
        self._remove_data()
        if self._temporary and not self.plan.retain_data:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _remove_data(self) -> None:
        if not self.plan.retain_data:
            for part in PARTS:
                shutil.rmtree(self.directory / part, ignore_errors=True)


def _require_part(part: T | None, name: str) -> T:
    if part is None:
        raise NotRunning(f"this sandbox runs without {name}")
    return part
