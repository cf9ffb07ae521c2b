"""The sandbox's own calls to the API server (apply manifests, create tokens, read and write objects), and kubeconfigs.

It is separate from `tenure/kube`, because the sandbox must not depend on the code that is tested in it.
"""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from tenure.sandbox.errors import ApiError

Object = dict[str, Any]
DEFINITION = "CustomResourceDefinition"


class KubeApi:
    """An async context manager over one HTTP session."""

    def __init__(self, server: str, token: str, authority: Path | None) -> None:
        self._server, self._token, self._authority = server, token, authority
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    async def __aenter__(self) -> Self:
        tls = ssl.create_default_context(cafile=str(self._authority)) if self._authority else False
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls), headers={"Authorization": f"Bearer {self._token}"}
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Object:
        """One call. `path` starts with /api or /apis. Raises `ApiError` for a status of 400 or above."""
        async with self._session.request(
            method, self._server + path, json=body, headers={"Content-Type": content_type}
        ) as response:
            if response.status >= 400:
                raise ApiError(method, path, response.status, await response.text())
            result: Object = await response.json(content_type=None)
            return result

    async def apply(self, manifest: Object) -> Object:
        """Server-side apply with force."""
        path = f"{await self.path_of(manifest)}?fieldManager=sandbox&force=true"
        return await self.request("PATCH", path, manifest, "application/apply-patch+yaml")

    async def apply_files(self, paths: Iterable[Path]) -> None:
        """Apply all documents of files, and of the .yaml files of folders. CRDs come first."""
        documents = [document for path in paths for file in _files(path) for document in _documents(file)]
        definitions = [each for each in documents if each["kind"] == DEFINITION]
        for document in definitions:
            await self.apply(document)
        for document in definitions:
            await self._until_served(document)
        for document in sorted((each for each in documents if each["kind"] != DEFINITION), key=_apply_order):
            await self.apply(document)

    async def path_of(self, manifest: Object) -> str:
        """Path of the object, by discovery of its kind."""
        version, metadata = manifest["apiVersion"], manifest["metadata"]
        resource, namespaced = await self._discover(version, manifest["kind"])
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        folder = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{root}{folder}/{resource}/{metadata['name']}"

    async def _until_served(self, definition: Object, seconds: float = 20.0) -> None:
        """Wait until the kind can be listed: shortly after it is established, requests still get 429."""
        spec = definition["spec"]
        version = next(each["name"] for each in spec["versions"] if each["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"
        give_up = time.monotonic() + seconds
        while True:
            try:
                await self.request("GET", path)
                return
            except ApiError:
                if time.monotonic() > give_up:
                    raise
            await asyncio.sleep(0.03)

    async def _discover(self, version: str, kind: str) -> tuple[str, bool]:
        if (version, kind) not in self._kinds:
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for found in (await self.request("GET", root))["resources"]:
                if "/" not in found["name"]:
                    self._kinds[version, found["kind"]] = (found["name"], found["namespaced"])
        return self._kinds[version, kind]


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.yaml")) if path.is_dir() else [path]


def _documents(file: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


def _apply_order(document: Object) -> int:
    order = {"Namespace": 0, "ServiceAccount": 1}
    return order.get(document["kind"], 2)


def write_kubeconfig(
    path: Path, *, server: str, token: str, authority: Path | None, namespace: str = "default"
) -> Path:
    """Write one cluster, one user with a bearer token and one context. `authority`: PEM file, or None for HTTP."""
    cluster: dict[str, str] = {"server": server}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority.read_bytes()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": "sandbox", "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox", "namespace": namespace}}],
        "current-context": "sandbox",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # JSON is valid YAML, and is much faster to write.
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def read_kubeconfig(path: Path) -> tuple[str, str, Path | None]:
    """Server, token and CA file (written next to it) of a kubeconfig by `write_kubeconfig`."""
    content = json.loads(path.read_text())
    cluster, token = content["clusters"][0]["cluster"], content["users"][0]["user"]["token"]
    encoded = cluster.get("certificate-authority-data")
    if encoded is None:
        return cluster["server"], token, None
    authority = path.with_suffix(".crt")
    authority.write_bytes(base64.b64decode(encoded))
    return cluster["server"], token, authority
