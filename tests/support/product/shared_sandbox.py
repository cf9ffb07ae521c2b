"""One sandbox for all xdist workers of a run: a server process hosts it, and each worker is a client.

The first test that needs the sandbox starts the server. `tests/conftest.py` stops it at the end of the run. The server
also stops when the pytest process that owns the run is gone.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any, Protocol, Self, cast

from temporalio.client import Client

from tenure.cli.sandbox.worker_process import RBAC, aws_arguments
from tenure.controller.temporal.connection import Security
from tenure.sandbox.controlplane.kubernetes import Endpoint
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.fault_proxy import Fault, Rule
from tenure.sandbox.ports import Ports
from tenure.sandbox.processes import is_alive
from tenure.sandbox.spec import CRDS, Plan, Temporals
from tests.support.product.worker_harness import SETTINGS, WorkerAddresses, WorkerUnderTest

START_TIMEOUT_SECONDS = 240.0
STOP_TIMEOUT_SECONDS = 60.0
AUTH_KEY = b"tenure"
"""The socket is in a directory that only this user can read."""
SOCKET, READY, PID, FAILURE, LOG = "control.sock", "ready", "server.pid", "failure", "server.log"


def sandbox_plan(temporal: Temporals = "dev", **options: Any) -> Plan:
    """All components, with the CRDs, the worker's RBAC and its IAM policy."""
    return Plan(manifests=(CRDS, RBAC), aws_arguments=aws_arguments(), temporal=temporal, **options)


@dataclass(frozen=True)
class SandboxAddresses:
    """Addresses with which a client reaches each component directly."""

    plan: Plan
    logs: Path
    cluster: Endpoint
    temporal_address: str
    temporal_security: Security
    temporal_ui: str
    aws_endpoint: str
    nodes_endpoint: str
    environment: dict[str, str]


class SandboxService:
    """The calls that clients make. Arguments and results are pickled; calls run in threads of the server."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._rules: dict[int, Rule] = {}
        self._lock = threading.Lock()
        self._worker: WorkerUnderTest | None = None
        self._ports = Ports()

    def addresses(self) -> SandboxAddresses:
        sandbox = self._sandbox
        return SandboxAddresses(
            plan=sandbox.plan,
            logs=sandbox.logs,
            cluster=sandbox.cluster,
            temporal_address=sandbox.temporal_address,
            temporal_security=sandbox.temporal_security,
            temporal_ui=sandbox.temporal_ui,
            aws_endpoint=sandbox.aws_endpoint,
            nodes_endpoint=sandbox.nodes_endpoint,
            environment=sandbox.environment(),
        )

    def service_account_kubeconfig(self, namespace: str, name: str, through_proxy: bool) -> Path:
        return self._sandbox.service_account_kubeconfig(namespace, name, through_proxy=through_proxy)

    def add_rule(self, fault: Fault, path: str, method: str | None) -> int:
        rule = self._sandbox.faults.add(fault, path, method=method)
        self._rules[id(rule)] = rule
        return id(rule)

    def remove_rule(self, number: int) -> None:
        self._sandbox.faults.remove(self._rules[number])

    def rule_hits(self, number: int) -> int:
        return self._rules[number].hits

    def cut_open(self, path: str) -> int:
        return self._sandbox.faults.cut_open(path)

    def count_open(self, path: str) -> int:
        return self._sandbox.faults.open(path)

    def written(self) -> list[str]:
        return list(self._sandbox.written)

    def start_worker(self, settings: dict[str, str]) -> WorkerAddresses:
        """The worker that all shared tests use; the first call starts it."""
        with self._lock:
            if self._worker is None:
                kubeconfig = self._sandbox.service_account_kubeconfig("tenure", "tenure", through_proxy=True)
                self._worker = WorkerUnderTest(
                    self._sandbox.logs / "worker-shared.log",
                    environment=self._sandbox.environment() | SETTINGS | settings,
                    kubeconfig=kubeconfig,
                    ports=self._ports,
                )
                self._sandbox.run(self._worker.start())
            return self._worker.addresses

    def stop_worker(self) -> int | None:
        """The worker's exit code; 0 if none runs."""
        with self._lock:
            if self._worker is None:
                return 0
            worker, self._worker = self._worker, None
            return self._sandbox.run(worker.stop_gracefully())


class _Manager(BaseManager):
    """Hosts the service, or connects to it."""


class FaultRule(Protocol):
    """A fault rule of either sandbox. `hits`: number of affected requests."""

    @property
    def hits(self) -> int: ...


@dataclass
class SharedRule:
    """A fault rule of the shared sandbox."""

    service: SandboxService
    number: int

    @property
    def hits(self) -> int:
        return self.service.rule_hits(self.number)


@dataclass
class SharedFaults:
    """The part of `Faults` that a client can use."""

    service: SandboxService

    def add(self, fault: Fault, path: str = "", *, method: str | None = None) -> SharedRule:
        return SharedRule(self.service, self.service.add_rule(fault, path, method))

    def remove(self, rule: FaultRule) -> None:
        assert isinstance(rule, SharedRule)
        self.service.remove_rule(rule.number)

    @contextmanager
    def during(self, fault: Fault, path: str = "", *, method: str | None = None) -> Iterator[FaultRule]:
        rule = self.add(fault, path, method=method)
        try:
            yield rule
        finally:
            self.remove(rule)

    def cut_open(self, path: str = "") -> int:
        return self.service.cut_open(path)

    def open(self, path: str = "") -> int:
        return self.service.count_open(path)


@dataclass
class SharedSandbox:
    """The client: the part of `Sandbox` that works in other processes."""

    service: SandboxService
    addresses: SandboxAddresses = field(init=False)

    def __post_init__(self) -> None:
        found = self.addresses = self.service.addresses()
        self.plan, self.logs, self.cluster = found.plan, found.logs, found.cluster
        self.kubeconfig, self.apiserver = found.cluster.kubeconfig, found.cluster.server
        self.temporal_address, self.temporal_ui = found.temporal_address, found.temporal_ui
        self.temporal_security = found.temporal_security
        self.aws_endpoint, self.nodes_endpoint = found.aws_endpoint, found.nodes_endpoint
        self.faults = SharedFaults(self.service)

    @classmethod
    def attach(cls, directory: Path, *, owner: int, temporal: Temporals, encrypted: bool) -> Self:
        """Start the server unless another xdist worker has. `owner`: the server ends with this process. Only one
        process may call it at a time."""
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / READY).exists():
            _start_server(directory, owner, temporal, encrypted)
        _Manager.register("service")
        manager = _Manager(str(directory / SOCKET), AUTH_KEY)
        manager.connect()
        return cls(cast(SandboxService, manager.service()))  # type: ignore[attr-defined]

    @property
    def written(self) -> list[str]:
        return self.service.written()

    def environment(self) -> dict[str, str]:
        return dict(self.addresses.environment)

    async def temporal_client(self) -> Client:
        return await Client.connect(
            self.temporal_address,
            namespace=self.plan.namespace,
            tls=self.temporal_security.tls_config(),
            data_converter=self.temporal_security.data_converter(),
        )

    def service_account_kubeconfig(self, namespace: str, name: str, *, through_proxy: bool = False) -> Path:
        return self.service.service_account_kubeconfig(namespace, name, through_proxy)


def _start_server(directory: Path, owner: int, temporal: Temporals, encrypted: bool) -> None:
    command = [sys.executable, "-m", __name__, str(directory), str(owner), temporal, str(int(encrypted))]
    with (directory / LOG).open("w") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not (directory / READY).exists():
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            raise RuntimeError(
                f"the shared sandbox did not start, see {directory / LOG}:\n{(directory / LOG).read_text()}"
            )
        time.sleep(0.1)


def serve(directory: Path, owner: int, plan: Plan) -> None:
    """Host the sandbox until SIGTERM, or until the owner is gone. A component that ended early is an error."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    (directory / PID).write_text(str(os.getpid()))
    try:
        with Sandbox(directory / "sandbox", plan=plan) as sandbox:
            service = SandboxService(sandbox)
            _Manager.register("service", callable=lambda: service)
            server = _Manager(str(directory / SOCKET), AUTH_KEY).get_server()
            threading.Thread(target=server.serve_forever, daemon=True).start()
            (directory / READY).touch()
            while not stop.wait(1.0) and is_alive(owner):
                pass
            if (code := service.stop_worker()) != 0:
                raise RuntimeError(f"the shared worker ended with {code}, see {sandbox.logs}")
            sandbox.check()
    except Exception as error:
        (directory / FAILURE).write_text(f"{type(error).__name__}: {error}")
        raise
    finally:
        (directory / PID).unlink()


def main(arguments: list[str]) -> None:
    directory, owner, temporal, encrypted = arguments
    serve(Path(directory), int(owner), sandbox_plan(cast(Any, temporal), encrypted=encrypted == "1"))


if __name__ == "__main__":
    # Pickle stores the name of the defining module, which is not `__main__` for the clients.
    from tests.support.product import shared_sandbox

    shared_sandbox.main(sys.argv[1:])
    sys.stdout.flush()
    # The SDK's threads may still be running when the interpreter ends, and would abort it.
    os._exit(0)
