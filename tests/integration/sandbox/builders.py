"""Nodes and pods that tests create directly, and waits for their state."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tenure.sandbox.errors import ApiError
from tenure.sandbox.kube_client import KubeApi

STRATEGIC = "application/strategic-merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"


async def make_node(api: KubeApi, name: str, *, ready: bool) -> None:
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
    }
    await api.request("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})


async def set_ready(api: KubeApi, name: str, ready: bool) -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}
    await api.request("PATCH", f"/api/v1/nodes/{name}/status", body, STRATEGIC)


async def make_pod(
    api: KubeApi, name: str, *, annotations: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, "annotations": dict(annotations or {})}
    return await api.request("POST", PODS, {"metadata": metadata, "spec": {"containers": CONTAINERS} | spec})


CONTAINERS = [{"name": "main", "image": "registry.example/app:1"}]


async def find(api: KubeApi, path: str) -> dict[str, Any] | None:
    try:
        return await api.request("GET", path)
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def condition(thing: Mapping[str, Any], kind: str) -> str | None:
    found = [each["status"] for each in thing["status"].get("conditions", ()) if each["type"] == kind]
    return found[0] if found else None


async def wait_until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until the result is true. Only the test's own timeout ends the wait."""
    while True:
        if await condition():
            return
        await asyncio.sleep(0.03)


async def wait_until_pod(api: KubeApi, name: str, *, phase: str | None = None, ready: str | None = None) -> None:
    """Wait until the pod has this phase and readiness; without both arguments, until it is deleted."""

    async def pod_matches() -> bool:
        pod = await find(api, f"{PODS}/{name}")
        if phase is ready is None:
            return pod is None
        fits = pod and phase in (None, pod["status"].get("phase")) and ready in (None, condition(pod, "Ready"))
        return bool(fits)

    await wait_until(pod_matches)
