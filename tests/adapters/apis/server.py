"""A client of a real API server that shows how the server validates and stores an object, mostly by dry run."""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from tenure.apis.capacitybuffer import CapacityBuffer
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.lifecyclepolicy import LifecyclePolicy
from tenure.apis.meta import KubeObject
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodeoverlay import NodeOverlay
from tenure.apis.nodepool import NodePool
from tests.support.apis.crd_rows import RESOURCES, Object, Row, apply_patch

MODELS: Final[dict[str, type[KubeObject]]] = {
    "NodePool": NodePool,
    "NodeClaim": NodeClaim,
    "EC2NodeClass": EC2NodeClass,
    "NodeOverlay": NodeOverlay,
    "LifecyclePolicy": LifecyclePolicy,
    "CapacityBuffer": CapacityBuffer,
}


class ApiServerClient:
    """Sends objects to the API server and returns its HTTP status and its answer."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def create(self, manifest: Object, *, persist: bool = False, path: str = "") -> tuple[int, Object]:
        """Create with strict field validation (an unknown field is an error); a dry run unless `persist`."""
        return await self._send("POST", path or RESOURCES[manifest["kind"]], manifest, dry_run=not persist)

    async def replace(self, manifest: Object, subresource: str = "") -> tuple[int, Object]:
        """Dry run of an update of the stored object."""
        return await self._send("PUT", self._path(manifest) + subresource, manifest, dry_run=True)

    async def delete(self, manifest: Object) -> None:
        await self._send("DELETE", self._path(manifest), None, dry_run=False)

    async def read(self, manifest: Object, subresource: str = "") -> tuple[int, Object]:
        return await self._send("GET", self._path(manifest) + subresource, None, dry_run=False)

    async def resources(self, group: str) -> list[Object]:
        """The kinds of an API group, from discovery."""
        _, found = await self._send("GET", f"/apis/{group}/v1", None, dry_run=False)
        kinds: list[Object] = found["resources"]
        return kinds

    async def get_table(self, kind: str) -> Object:
        """The Table that `kubectl get -o wide` prints."""
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        async with self._session.get(self._url + RESOURCES[kind], headers={"Accept": accept}) as response:
            found: Object = await response.json()
            return found

    async def stored_node_capacity(self, capacity: dict[str, str]) -> dict[str, str]:
        """A Node's capacity as the API server would store it (dry run)."""
        node = {"kind": "Node", "metadata": {"name": "quantities"}, "status": {"capacity": capacity}}
        status, response = await self._send("POST", "/api/v1/nodes", {"apiVersion": "v1", **node}, dry_run=True)
        assert status == 201, response
        found: dict[str, str] = response["status"]["capacity"]
        return found

    def _path(self, manifest: Object) -> str:
        return f"{RESOURCES[manifest['kind']]}/{manifest['metadata']['name']}"

    async def _send(self, method: str, path: str, body: Any, *, dry_run: bool) -> tuple[int, Object]:
        query = ({"fieldValidation": "Strict"} if body else {}) | ({"dryRun": "All"} if dry_run else {})
        async with self._session.request(method, self._url + path, json=body, params=query) as response:
            return response.status, await response.json()


@asynccontextmanager
async def open_client(kubeconfig: Path) -> AsyncIterator[ApiServerClient]:
    config = _read(kubeconfig)
    cluster = config["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster.get("certificate-authority-data", ""))
    tls = ssl.create_default_context(cadata=authority.decode()) if authority else False
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), headers=headers) as session:
        yield ApiServerClient(session, cluster["server"])


def _read(kubeconfig: Path) -> Any:
    return yaml.safe_load(kubeconfig.read_text())


async def assert_row(server: ApiServerClient, base: Object, row: Row) -> Object:
    """The server accepts or rejects as the row says, and our model reads and writes an accepted object unchanged."""
    status, response = await server.create(apply_patch(base, row.patch))
    if row.rejection:
        assert status == 422 or status == 400, f"accepted: {response}"
        assert row.rejection in response["message"]
    else:
        assert status == 201, response.get("message")
        assert MODELS[base["kind"]].from_object(response).to_object() == response
    return response
