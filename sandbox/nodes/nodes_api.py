"""What kubelet and cloud controller do with Node objects, as verbs over the connection."""

from collections.abc import Callable

from sandbox.nodes.kubernetes import STRATEGIC_PATCH, Json, KubeConnection, Refused
from sandbox.nodes.node import MANAGED

_ROOT = "/api/v1/nodes"
_NOT_FOUND, _CONFLICT = 404, 409
Taints = list[Json]


class NodesApi:
    """Every call is repeated until the API server has answered it; `Refused` is for what nobody expected."""

    def __init__(self, connection: KubeConnection) -> None:
        self._connection = connection

    async def managed(self, also: str = "") -> list[Json]:
        """The Nodes that a simulator made, now or before; those with another label `also`."""
        selector = f"{MANAGED},{also}" if also else MANAGED
        answer = await self._connection.call("GET", f"{_ROOT}?labelSelector={selector}")
        found: list[Json] = answer["items"]
        return found

    async def create(self, node: Json) -> Json | None:
        """The Node as created, or None when the name is taken."""
        try:
            return await self._connection.call("POST", _ROOT, node)
        except Refused as refused:
            if refused.status != _CONFLICT:
                raise
            return None

    async def get(self, name: str) -> Json | None:
        try:
            return await self._connection.call("GET", f"{_ROOT}/{name}")
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
            return None

    async def patch(self, name: str, patch: Json) -> bool:
        """Metadata and spec. Whether the Node was there."""
        return await self._patch(f"{_ROOT}/{name}", patch)

    async def patch_status(self, name: str, status: Json) -> bool:
        """Conditions merge by type, resources by name. Whether the Node was there."""
        return await self._patch(f"{_ROOT}/{name}/status", {"status": status})

    async def change_taints(self, name: str, change: Callable[[Taints], Taints]) -> None:
        """Read, change and write; again when somebody else wrote in between. A Node that is gone has no taints."""
        while node := await self.get(name):
            before: Taints = node["spec"].get("taints", [])
            after = change(before)
            if after == before:
                return
            version = node["metadata"]["resourceVersion"]
            try:
                await self.patch(name, {"metadata": {"resourceVersion": version}, "spec": {"taints": after}})
                return
            except Refused as refused:
                if refused.status != _CONFLICT:
                    raise

    async def delete(self, name: str, uid: str) -> None:
        """Ask once; finalizers may hold the Node. Another Node that took the name meanwhile is left alone."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._connection.call("DELETE", f"{_ROOT}/{name}", body)
        except Refused as refused:
            if refused.status not in (_NOT_FOUND, _CONFLICT):
                raise

    async def _patch(self, path: str, patch: Json) -> bool:
        try:
            await self._connection.call("PATCH", path, patch, content_type=STRATEGIC_PATCH)
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
            return False
        return True


def together(taints: Taints, added: Taints) -> Taints:
    """The taints, and those of `added` whose key and effect are not among them."""
    return [*taints, *without(added, taints)]


def without(taints: Taints, removed: Taints) -> Taints:
    """The taints but for those of the same key and effect."""
    gone = {(taint["key"], taint["effect"]) for taint in removed}
    return [taint for taint in taints if (taint["key"], taint["effect"]) not in gone]
