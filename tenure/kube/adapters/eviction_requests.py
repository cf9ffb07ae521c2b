"""EvictionRequests of drains (lifecycle.k8s.io/v1alpha1, Kubernetes 1.37): ask, follow the responders, withdraw.

The request is owned by the pod, so that it is deleted with the pod.
"""

from datetime import datetime
from typing import Final

from tenure.apis import labels
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.resources import EVICTION_REQUESTS, EVICTIONS
from tenure.model.errors import Conflict, NotFound
from tenure.model.provider_results import DrainPod, EvictionProgress

_EVICTION: Final = "Eviction"
_WITHDRAWN: Final = "Withdrawn"


class KubeEvictionRequests:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def request(self, pod: DrainPod) -> EvictionProgress | None:
        path = _path_of(pod)
        found = await self._client.get(path) or await self._create(pod)
        if found is None:
            return None
        if found["spec"]["intent"] != _EVICTION:
            found = await self._client.merge(path, {"spec": {"intent": _EVICTION}})
        return _progress_of(found, await self._find_eviction(pod))

    async def withdraw(self, pod: DrainPod) -> bool:
        try:
            await self._client.merge(_path_of(pod), {"spec": {"intent": _WITHDRAWN}})
        except NotFound:
            return False
        return True

    async def _create(self, pod: DrainPod) -> Json | None:
        """None if the API server does not serve the kind, or the pod is gone."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        body = {
            "apiVersion": EVICTION_REQUESTS.api_version,
            "kind": EVICTION_REQUESTS.kind,
            "metadata": {"name": _name_of(pod), "namespace": pod.namespace, "ownerReferences": [owner]},
            "spec": {
                "target": {"pod": {"name": pod.name, "uid": pod.uid}},
                "requester": labels.EVICTION_REQUESTER,
                "intent": _EVICTION,
            },
        }
        try:
            return await self._client.request("POST", EVICTION_REQUESTS.path(namespace=pod.namespace), body=body)
        except NotFound:
            return None
        except Conflict:
            return await self._client.get(_path_of(pod))

    async def _find_eviction(self, pod: DrainPod) -> Json | None:
        """The controller labels its Evictions with the names of requesters and responders."""
        params = {"labelSelector": labels.EVICTION_REQUESTER}
        response = await self._client.request("GET", EVICTIONS.path(namespace=pod.namespace), params=params)
        found = response.get("items") or ()
        return next((one for one in found if one["spec"]["target"].get("pod", {}).get("uid") == pod.uid), None)


def _name_of(pod: DrainPod) -> str:
    return f"tenure-{pod.uid}"


def _path_of(pod: DrainPod) -> str:
    return EVICTION_REQUESTS.path(_name_of(pod), namespace=pod.namespace)


def _progress_of(request: Json, eviction: Json | None) -> EvictionProgress:
    status = request.get("status") or {}
    failed: Json = next(
        (one for one in status.get("conditions") or () if one["type"] == "Failed" and one["status"] == "True"), {}
    )
    found = (eviction or {}).get("status") or {}
    active = next((one["name"] for one in found.get("targetResponders") or () if one["state"] == "Active"), "")
    responder: Json = next((one for one in found.get("responders") or () if one["name"] == active), {})
    expected = responder.get("expectedCompletionTime")
    return EvictionProgress(
        created=datetime.fromisoformat(request["metadata"]["creationTimestamp"]),
        observed=(status.get("observedGeneration") or 0) >= request["metadata"].get("generation", 1),
        failed=failed.get("reason", ""),
        responder=active,
        message=responder.get("message", ""),
        expected=datetime.fromisoformat(expected) if expected else None,
    )
