"""Kubernetes on one machine: real etcd, kube-apiserver, scheduler and controller-manager, and kwok for the kubelets.

`environment.py` starts it with the other parts; `controlplane/` provides the binaries; `nodes/` creates the Nodes. kwok
renews the Lease of every Node. When a Node is Ready, the pods that are bound to it run. `stages/` has options for nodes
and pods.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenure.sandbox.certificates import Certificates, ensure_certificates
from tenure.sandbox.controlplane import Binaries
from tenure.sandbox.controlplane.commands import COMPONENTS, LEASE_SECONDS, Layout, command_of
from tenure.sandbox.errors import ApiError
from tenure.sandbox.kube_client import KubeApi, write_kubeconfig
from tenure.sandbox.processes import Process, http_ok, with_lazy_garbage_collection

TOKEN_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Endpoint:
    """Address and credentials of the API server for the admin."""

    server: str
    token: str
    authority: Path
    kubeconfig: Path

    def client(self) -> KubeApi:
        return KubeApi(self.server, self.token, self.authority)


class Kubernetes:
    """The control plane of one sandbox. `ports` has a number for each of `PORTS`; `folder` is kept with the state."""

    PORTS = ("etcd", "etcd-peer", "apiserver", "scheduler", "controller-manager", "kwok-nodes", "kwok-pods")

    def __init__(
        self,
        folder: Path,
        logs: Path,
        binaries: Binaries,
        ports: Mapping[str, int],
        *,
        durable: bool = False,
        lease_seconds: int = LEASE_SECONDS,
        eviction_requests: bool = False,
        quick: bool = False,
        watch_cache: bool = True,
    ) -> None:
        self._folder, self._logs, self._binaries = folder, logs, binaries
        self._ports, self._durable, self._lease_seconds = ports, durable, lease_seconds
        self._eviction_requests, self._quick, self._watch_cache = eviction_requests, quick, watch_cache
        self._parts: dict[str, Process] = {}
        self.server = f"https://127.0.0.1:{ports['apiserver']}"
        self.kubeconfig = folder / "kubeconfig.yaml"

    @property
    def parts(self) -> list[Process]:
        return list(self._parts.values())

    @property
    def authority(self) -> Path:
        return self._certificates().authority

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.server, self._token(), self.authority, self.kubeconfig)

    async def start_api(self) -> None:
        """Start the API server and its database. Raises `PartFailed`."""
        layout = await asyncio.to_thread(self._prepare_layout)
        await self._start_part("etcd", layout)
        await self._start_part("kube-apiserver", layout)
        await self._forget_leases()

    async def start_clients(self) -> None:
        """Start the other components, until pods can run. Raises `PartFailed`."""
        layout = self._layout()
        clients = [name for name in COMPONENTS if name not in ("etcd", "kube-apiserver")]
        await asyncio.gather(*(self._start_part(name, layout) for name in clients))
        async with self.endpoint.client() as api:
            await _until_there(api, "/api/v1/namespaces/default/serviceaccounts/default")

    async def stop(self, grace: float = 5.0) -> None:
        """Stop writers first, then the API server, then etcd."""
        for names in (set(COMPONENTS) - {"etcd", "kube-apiserver"}, {"kube-apiserver"}, {"etcd"}):
            stopping = [part for name, part in self._parts.items() if name in names]
            await asyncio.gather(*(part.stop(grace) for part in stopping))

    def kill(self) -> None:
        for part in self._parts.values():
            part.kill()

    async def service_account_kubeconfig(self, namespace: str, name: str, *, server: str | None = None) -> Path:
        """A kubeconfig with a token of this existing ServiceAccount. `server`: another address of the API server."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        async with self.endpoint.client() as api:
            response = await api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
        return write_kubeconfig(
            self._folder / f"kubeconfig-{namespace}-{name}{'-elsewhere' if server else ''}.yaml",
            server=server or self.server,
            token=response["status"]["token"],
            authority=self.authority if (server or self.server).startswith("https") else None,
            namespace=namespace,
        )

    def _certificates(self) -> Certificates:
        return ensure_certificates(self._folder / "pki")

    def _token(self) -> str:
        return (self._folder / "admin.token").read_text().strip()

    def _prepare_layout(self) -> Layout:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        token_file = self._folder / "admin.token"
        if not token_file.exists():
            token_file.touch(mode=0o600)
            token_file.write_text(secrets.token_hex(24))
        layout = self._layout()
        layout.write_files(self._token(), self.server)
        return layout

    def _layout(self) -> Layout:
        return Layout(
            folder=self._folder,
            certificates=self._certificates(),
            ports=self._ports,
            binaries=self._binaries,
            kubeconfig=self.kubeconfig,
            durable=self._durable,
            lease_seconds=self._lease_seconds,
            eviction_requests=self._eviction_requests,
            quick=self._quick,
            watch_cache=self._watch_cache,
        )

    async def _start_part(self, name: str, layout: Layout) -> None:
        part = Process(
            name,
            command_of(name, layout),
            log=self._logs / f"{name}.log",
            health=http_ok(layout.health_url(name), token=self._token()),
            environment=with_lazy_garbage_collection(),
        )
        self._parts[name] = part
        await part.start()

    async def _forget_leases(self) -> None:
        """Delete Leases of a previous kwok, which would block the new one until they expire."""
        async with self.endpoint.client() as api:
            with contextlib.suppress(ApiError):
                await api.request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")


async def _until_there(api: KubeApi, path: str, seconds: float = 30.0) -> None:
    """Wait until the object exists. Pods are rejected until the controller-manager creates their ServiceAccount."""
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(ApiError):
                await api.request("GET", path)
                return
            await asyncio.sleep(0.05)
