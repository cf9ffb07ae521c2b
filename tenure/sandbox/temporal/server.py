"""A self-hosted Temporal server: built from its Go module, with PostgreSQL and mTLS.

The dev server creates schema, certificates, namespace and search attributes itself. Here they are created like an
operator would. Tests use backup, restore and loss of the database (`docs/operating/operations.md#temporal-service`).
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
"""Schema by database, in the order of a restore, so that visibility is never newer than the histories."""
SHARDS: Final = 4
"""History shards for one machine. `deploy/charts/temporal-values.yaml` has the number for a cluster."""
RETENTION: Final = "30d"
"""As recommended in docs/getting-started/install.md."""
SERVICES: Final = ("frontend", "history", "matching", "worker")


class TemporalServer:
    """One server with all four services. `ports` has a number for each of `PORTS`."""

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
        """Start and wait for the namespace and its search attributes. Raises `PartFailed` or `SandboxError`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ensure_mutual_tls(self._files.folder)
        await self.store.start()
        await self._recreate_databases()
        client = await self.client()
        await register_attributes(client)
        await self._until_registered(client)

    async def upgrade(self, version: str = "") -> None:
        """Update the schema to this version (default: the current one), and start the stopped server with it."""
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
        """Back up visibility first, while the server runs: missing entries are added again, extra ones would remain."""
        for database in reversed(SCHEMAS):
            await asyncio.to_thread(self.store.dump, database, folder / database)

    async def restore(self, folder: Path) -> None:
        """Restore the databases, and start the server with them."""
        await self.process.stop(10.0)
        for database in SCHEMAS:
            await asyncio.to_thread(self.store.restore, database, folder / database)
        await self.upgrade()

    async def lose_data(self) -> None:
        """Replace the data by an empty database and an empty namespace."""
        await self.process.stop(10.0)
        await self._recreate_databases()

    async def _recreate_databases(self) -> None:
        for database in SCHEMAS:
            await asyncio.to_thread(self.store.recreate_database, database)
        await self.upgrade()

    def size(self) -> int:
        """Bytes of both databases with indexes."""
        return sum(int(self.store.query(database, f"SELECT pg_database_size('{database}')")) for database in SCHEMAS)

    # --- setup ---

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
        """Run the command of docs/operating/operations.md#temporal-service."""
        command = ["operator", "namespace", "create", "--namespace", self._namespace, "--retention", RETENTION]
        way = {"TEMPORAL_ADDRESS": self.address, **self.security.to_environment()}
        self._run_tool([str(temporal_binary()), *command], way, "temporal-namespace.log", unless="already exists")

    def _run_tool(self, command: Sequence[str], environment: Mapping[str, str], log: str, unless: str = "") -> None:
        """Raises `SandboxError` for a failed command, unless its output contains `unless`."""
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
        """Based on Temporal's config_template.yaml. Services and clients need a certificate of the sandbox's CA."""
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

    # --- health ---

    def _health_check(self) -> HealthCheck:
        async def check() -> str | None:
            tls = self.security.tls_config()
            service = await ServiceClient.connect(ConnectConfig(target_host=self.address, tls=tls))
            response = await service.workflow_service.get_system_info(GetSystemInfoRequest())
            return None if response.server_version else "it reports no version"

        return check

    async def _until_registered(self, client: Client) -> None:
        """Wait until all services know the namespace, which they reload every two seconds."""
        request = ListSearchAttributesRequest(namespace=self._namespace)
        async with asyncio.timeout(60):
            while True:
                listed = await client.operator_service.list_search_attributes(request)
                if search_attributes.ALL.keys() <= listed.custom_attributes.keys():
                    return
                await asyncio.sleep(0.2)
