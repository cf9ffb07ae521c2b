"""A Temporal server as people run it for themselves: built from its Go module, on PostgreSQL, with mTLS.

The dev server sets up schema, certificates, namespace and search attributes by itself; here it is done as an
operator does it. Backup, restore and loss of its database are for tests (`docs/operations.md#temporal-service`).
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import ConnectConfig, ServiceClient

from tenure.controller.temporal.connection import Security
from tenure.controller.temporal.namespace import register_attributes
from tenure.sandbox.certificates import MutualTls, ensure_mutual_tls
from tenure.sandbox.controlplane.tools import SCHEMA_TOOL, SERVER, TEMPORAL, temporal_server
from tenure.sandbox.errors import SandboxError
from tenure.sandbox.processes import HealthCheck, Process
from tenure.sandbox.temporal.dev_server import DYNAMIC_CONFIG, temporal_binary
from tenure.sandbox.temporal.postgres import USER, Postgres
from workflows import search_attributes

PLUGIN: Final = "postgres12_pgx"
SCHEMAS: Final = {"temporal": "postgresql/v12/temporal", "temporal_visibility": "postgresql/v12/visibility"}
"""By database, in the order of a backup's restoring: visibility is never newer than what it shows."""
SHARDS: Final = 4
"""Of histories; enough for one machine. `deploy/charts/temporal-values.yaml` has what a cluster takes."""
RETENTION: Final = "30d"
"""As docs/install.md asks for."""
SERVICES: Final = ("frontend", "history", "matching", "worker")


class TemporalServer:
    """One server with all four services. `ports` has one number for each of `PORTS`."""

    PORTS = (
        "temporal",
        *(f"temporal-{name}" for name in SERVICES[1:]),
        *(f"temporal-{name}-membership" for name in SERVICES),
        "postgres",
    )
    ui = ""
    """This server has no UI."""

    def __init__(
        self,
        folder: Path,
        logs: Path,
        ports: Mapping[str, int],
        *,
        namespace: str = "default",
        version: str = TEMPORAL,
    ) -> None:
        self._folder, self._logs, self._ports, self._namespace = folder, logs, ports, namespace
        self._files = MutualTls(folder / "tls")
        self.store = Postgres(logs, ports["postgres"])
        self.address = f"127.0.0.1:{ports['temporal']}"
        self._use_version(version)

    @property
    def processes(self) -> list[Process]:
        return [self.process, self.store.process]

    @property
    def security(self) -> Security:
        files = self._files
        return Security(ca=str(files.authority), cert=str(files.client), key=str(files.client_key))

    async def start(self) -> None:
        """Until the namespace and its search attributes are there. Raises `PartFailed`, or `SandboxError`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ensure_mutual_tls(self._files.folder)
        await self.store.start()
        await self._recreate_databases()
        client = await self.client()
        await register_attributes(client)
        await self._until_registered(client)

    async def upgrade(self, version: str = "") -> None:
        """The schema as this version, or the one that it has, wants it, and the server on it, which was stopped."""
        if version:
            self._use_version(version)
        await asyncio.to_thread(self._update_schema)
        self._write_config()
        await self.process.start()
        await asyncio.to_thread(self._make_namespace)

    async def stop(self, grace: float = 10.0) -> None:
        await self.process.stop(grace)
        await self.store.stop()
        self.store.remove()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        self.store.remove()

    async def client(self) -> Client:
        return await Client.connect(self.address, namespace=self._namespace, tls=self.security.tls_config())

    # --- its database ---

    async def backup(self, folder: Path) -> None:
        """Visibility first, while the server goes on: what it lacks is shown again, what it had too much would stay."""
        for database in reversed(SCHEMAS):
            await asyncio.to_thread(self.store.dump, database, folder / database)

    async def restore(self, folder: Path) -> None:
        """The databases as they were then, and the server on them."""
        await self.process.stop(10.0)
        for database in SCHEMAS:
            await asyncio.to_thread(self.store.restore, database, folder / database)
        await self.upgrade()

    async def lose_data(self) -> None:
        """All that it knew: an empty database, and a namespace without anything in it."""
        await self.process.stop(10.0)
        await self._recreate_databases()

    async def _recreate_databases(self) -> None:
        for database in SCHEMAS:
            await asyncio.to_thread(self.store.recreate_database, database)
        await self.upgrade()

    def size(self) -> int:
        """Bytes of both databases, indexes and all."""
        return sum(int(self.store.query(database, f"SELECT pg_database_size('{database}')")) for database in SCHEMAS)

    # --- how it is set up ---

    def _use_version(self, version: str) -> None:
        self._programs = temporal_server(version)
        command = [str(self._programs[SERVER]), "--config-file", str(self._config), "--allow-no-auth", "start"]
        self.process = Process("temporal", command, log=self._logs / "temporal.log", health=self._health_check())

    @property
    def _config(self) -> Path:
        return self._folder / "config.yaml"

    def _update_schema(self) -> None:
        for database, schema in SCHEMAS.items():
            there = self.store.query(database, "SELECT to_regclass('schema_version') IS NOT NULL") == "t"
            if not there:
                self._schema_tool(database, "setup-schema", "-v", "0.0")
            self._schema_tool(database, "update-schema", "--schema-name", schema)

    def _schema_tool(self, database: str, *arguments: str) -> None:
        where = ["--plugin", PLUGIN, "--endpoint", "127.0.0.1", "--port", str(self._ports["postgres"])]
        command = [str(self._programs[SCHEMA_TOOL]), *where, "--user", USER, "--database", database, *arguments]
        self._run_tool(command, {"SQL_PASSWORD": self.store.password}, "temporal-schema.log")

    def _make_namespace(self) -> None:
        """With the very command that docs/operations.md#temporal-service gives."""
        command = ["operator", "namespace", "create", "--namespace", self._namespace, "--retention", RETENTION]
        way = {"TEMPORAL_ADDRESS": self.address, **self.security.to_environment()}
        self._run_tool([str(temporal_binary()), *command], way, "temporal-namespace.log", unless="already exists")

    def _run_tool(self, command: Sequence[str], environment: Mapping[str, str], log: str, unless: str = "") -> None:
        """Raises `SandboxError` for a command that failed, unless it says this."""
        done = subprocess.run(
            command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        with (self._logs / log).open("a") as file:
            file.write(done.stdout)
        if done.returncode and not (unless and unless in done.stdout):
            raise SandboxError(f"{Path(command[0]).name} failed:\n{done.stdout[-1500:]}\nlog: {self._logs / log}")

    def _write_config(self) -> None:
        dynamic = self._folder / "dynamic.yaml"
        pairs = (line.split("=") for line in DYNAMIC_CONFIG)
        dynamic.write_text(yaml.safe_dump({name: [{"value": int(value)}] for name, value in pairs}))
        self._config.touch(mode=0o600)
        self._config.write_text(yaml.safe_dump(self._server_config(dynamic), sort_keys=False))

    def _server_config(self, dynamic: Path) -> dict[str, Any]:
        """As Temporal's own config_template.yaml has it. No service but this machine's may speak to it unknown."""
        names = dict(zip(SCHEMAS, ("default", "visibility"), strict=True))
        return {
            "log": {"stdout": True, "level": "warn"},
            "persistence": {
                "defaultStore": "default",
                "visibilityStore": "visibility",
                "numHistoryShards": SHARDS,
                "datastores": {names[database]: {"sql": self._datastore(database)} for database in SCHEMAS},
            },
            "global": {
                "membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"},
                "tls": {"internode": self._tls(), "frontend": self._tls(), "systemWorker": self._system_worker()},
            },
            "services": {name: {"rpc": self._rpc(name)} for name in SERVICES},
            "clusterMetadata": {
                "enableGlobalNamespace": False,
                "failoverVersionIncrement": 10,
                "masterClusterName": "active",
                "currentClusterName": "active",
                "clusterInformation": {
                    "active": {
                        "enabled": True,
                        "initialFailoverVersion": 1,
                        "rpcName": "frontend",
                        "rpcAddress": self.address,
                    }
                },
            },
            "dcRedirectionPolicy": {"policy": "noop"},
            "dynamicConfigClient": {"filepath": str(dynamic), "pollInterval": "60s"},
        }

    def _datastore(self, database: str) -> dict[str, Any]:
        return {
            "pluginName": PLUGIN,
            "databaseName": database,
            "connectAddr": f"127.0.0.1:{self._ports['postgres']}",
            "connectProtocol": "tcp",
            "user": USER,
            "password": self.store.password,
            "maxConns": 20,
            "maxIdleConns": 20,
            "maxConnLifetime": "1h",
        }

    def _rpc(self, service: str) -> dict[str, Any]:
        port = self._ports["temporal" if service == "frontend" else f"temporal-{service}"]
        membership = self._ports[f"temporal-{service}-membership"]
        return {"grpcPort": port, "membershipPort": membership, "bindOnIP": "127.0.0.1"}

    def _tls(self) -> dict[str, Any]:
        files = self._files
        server = {
            "certFile": str(files.server),
            "keyFile": str(files.server_key),
            "requireClientAuth": True,
            "clientCaFiles": [str(files.authority)],
        }
        return {"server": server, "client": self._tls_client()}

    def _system_worker(self) -> dict[str, Any]:
        files = self._files
        return {"certFile": str(files.server), "keyFile": str(files.server_key), "client": self._tls_client()}

    def _tls_client(self) -> dict[str, Any]:
        return {"serverName": "localhost", "rootCaFiles": [str(self._files.authority)]}

    # --- whether it is there ---

    def _health_check(self) -> HealthCheck:
        async def check() -> str | None:
            tls = self.security.tls_config()
            service = await ServiceClient.connect(ConnectConfig(target_host=self.address, tls=tls))
            response = await service.workflow_service.get_system_info(GetSystemInfoRequest())
            return None if response.server_version else "it says no version"

        return check

    async def _until_registered(self, client: Client) -> None:
        """Each of the server's services reloads namespaces every two seconds."""
        request = ListSearchAttributesRequest(namespace=self._namespace)
        async with asyncio.timeout(60):
            while True:
                listed = await client.operator_service.list_search_attributes(request)
                if search_attributes.ALL.keys() <= listed.custom_attributes.keys():
                    return
                await asyncio.sleep(0.2)
