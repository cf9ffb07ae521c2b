"""The whole world on one machine: Temporal, Kubernetes, AWS and nodes, as one object to start and stop.

    with Sandbox() as sandbox:
        sandbox.kubeconfig, sandbox.aws_endpoint, sandbox.temporal_address, sandbox.environment()

The tests, the demo, the benchmark and `tenure sandbox` use it. Every part is a child process with its own log; none
outlives this process, however it ends.
"""

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from temporalio.client import Client

from tenure.controller.temporal.connection import Security
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
    """`directory` None means a temporary one that goes with the sandbox. `ports` asks for certain ports by part.

    A directory that was kept is reopened: same data, and the same ports where they are free.
    """

    def __init__(
        self, directory: Path | None = None, *, plan: Plan | None = None, ports: Mapping[str, int] | None = None
    ) -> None:
        self.plan = plan or Plan()
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="tenure-sandbox-"))
        self.logs = self.directory / "logs"
        self.ports: dict[str, int] = {}
        self._requested_ports = dict(ports or {})
        self._parts: Parts | None = None
        self._background: Background | None = None

    # --- life ---

    def start(self) -> Self:
        """All parts, healthy; on failure nothing is left running.

        Raises a `SandboxError`: `PartFailed`, `NoPort`, `DirectoryInUse`, `ApiError` for a manifest that is refused,
        or `BuildFailed` when the control plane cannot be had.
        """
        self._lock = DirectoryLock(self.directory)
        self._reserved = Ports()
        self._background = Background(f"sandbox {self.directory.name}")
        atexit.register(self.kill)
        try:
            last = self._reopen_state()
            self._parts = Parts(self.plan, self.directory, self._port_taker(last.ports if last else {}))
            self._background.run(self._parts.start())
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
        """End every part at once: the end of `stop`, of a failed start, and of the interpreter."""
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
        """Raise `PartFailed` if a part has ended by itself."""
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
        """An outage of one part, by its process's name such as `temporal`. Its data stays for `start_part`."""
        self.run(self._find_process(name).stop())

    def start_part(self, name: str) -> None:
        """The same part again, at the same address. Raises `PartFailed`."""
        self.run(self._find_process(name).start())

    # --- how to reach it ---

    @property
    def processes(self) -> list[Process]:
        return self._parts.processes if self._parts else []

    @property
    def cluster(self) -> Endpoint:
        """The API server as its admin; `cluster.client()` makes small calls."""
        return self._kubernetes.endpoint

    @property
    def kubeconfig(self) -> Path:
        return self._kubernetes.kubeconfig

    @property
    def apiserver(self) -> str:
        return self._kubernetes.server

    @property
    def faults(self) -> Faults:
        """What the proxy in front of the API server does wrong to those who come through it."""
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
        """The one on PostgreSQL, with its database. Raises `NotRunning` where the dev server runs."""
        if not isinstance(found := self._running_parts.temporal, TemporalServer):
            raise NotRunning("this sandbox has no Temporal server on PostgreSQL")
        return found

    async def temporal_client(self) -> Client:
        """In the caller's loop."""
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
        """Requests through the proxy that are no reads, as `PATCH /api/v1/nodes/one`; oldest first."""
        return _require_part(self._running_parts.proxy, "kubernetes").written

    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to find the parts that are there, as admin."""
        return self._running_parts.environment()

    def locations(self) -> dict[str, str]:
        """Where each part is, for people."""
        return self._running_parts.locations()

    def apply(self, *manifests: Path) -> None:
        """Apply files, or the YAML files of folders, as admin."""
        self.run(self._running_parts.apply(manifests))

    def service_account_kubeconfig(self, namespace: str, name: str, *, through_proxy: bool = False) -> Path:
        """A kubeconfig with a token of this ServiceAccount; `through_proxy` leads it past the rules of `faults`."""
        server = _require_part(self._running_parts.proxy, "kubernetes").url if through_proxy else None
        return self.run(self._kubernetes.service_account_kubeconfig(namespace, name, server=server))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the sandbox's own loop, from plain code or another thread."""
        if self._background is None:
            work.close()
            raise NotRunning("the sandbox is not running")
        return self._background.run(work)

    # --- inside ---

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
            raise NotRunning(f"no part is called {name} (there are {', '.join(sorted(found))})")
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
        """Reuse retained data; remove leftovers of a killed sandbox."""
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
