"""The controller of EvictionRequests (lifecycle.k8s.io/v1alpha1), which Kubernetes 1.37 does not have.

It follows the rules in the API's documentation (`k8s.io/api/lifecycle/v1alpha1/types.go`): one Eviction for each pod,
its responders one after the other by priority, and the Eviction API at the end. The API server validates each
transition.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from tenure.sandbox.errors import ApiError
from tenure.sandbox.kube_client import KubeApi

log = structlog.get_logger(__name__)

Json = dict[str, Any]
GROUP: Final = "/apis/lifecycle.k8s.io/v1alpha1"
MERGE: Final = "application/merge-patch+json"
EVICTOR: Final = "imperative-eviction.k8s.io/evictor"
EVICTOR_PRIORITY: Final = 100
INTERVAL_SECONDS: Final = 0.3
HEARTBEAT_DEADLINE_SECONDS: Final = 20 * 60.0


class EvictionRequestController:
    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def run(self) -> None:
        """Reconcile until cancelled. An error of the API server delays only the next pass."""
        while True:
            try:
                await self.reconcile()
            except ApiError as error:
                log.warning("reconciling eviction requests failed", error=str(error)[:300])
            await asyncio.sleep(INTERVAL_SECONDS)

    async def reconcile(self) -> None:
        requests = (await self._api.request("GET", f"{GROUP}/evictionrequests"))["items"]
        evictions = (await self._api.request("GET", f"{GROUP}/evictions"))["items"]
        by_target: dict[tuple[str, str, str], list[Json]] = defaultdict(list)
        for one in requests:
            target = one["spec"]["target"]["pod"]
            by_target[one["metadata"]["namespace"], target["name"], target["uid"]].append(one)
        for (namespace, name, uid), found in by_target.items():
            pod = await self._find_pod(namespace, name, uid)
            mine = [one for one in evictions if one["spec"]["target"]["pod"]["uid"] == uid]
            current = next((one for one in mine if not _is_final(one)), None)
            if current is None and pod is not None and _requests_eviction(found):
                current = await self._create_eviction(namespace, pod, found)
            if current is not None:
                current = await self._advance(current, pod, found)
            for one in found:
                await self._report(one, current or max(mine, key=_created, default=None))

    async def _find_pod(self, namespace: str, name: str, uid: str) -> Json | None:
        with contextlib.suppress(ApiError):
            pod = await self._api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
            return pod if pod["metadata"]["uid"] == uid else None
        return None

    async def _create_eviction(self, namespace: str, pod: Json, requests: Sequence[Json]) -> Json:
        responders = _responders_of(pod)
        roles = {one["name"]: "responder" for one in responders}
        for one in requests:
            requester = one["spec"]["requester"]
            roles[requester] = "requester-responder" if requester in roles else "requester"
        metadata = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        body = {
            "apiVersion": "lifecycle.k8s.io/v1alpha1",
            "kind": "Eviction",
            "metadata": {"generateName": "eviction-", "labels": roles, "ownerReferences": [owner]},
            "spec": {"target": {"pod": {"name": metadata["name"], "uid": metadata["uid"]}}},
        }
        created = await self._api.request("POST", f"{GROUP}/namespaces/{namespace}/evictions", body)
        targets = [{**one, "state": "Active" if index == 0 else "Inactive"} for index, one in enumerate(responders)]
        statuses = [
            {"name": one["name"], **({"startTime": _now()} if index == 0 else {})}
            for index, one in enumerate(responders)
        ]
        status = {
            "observedGeneration": 1,
            "requesters": _requesters_of(requests),
            "targetResponders": targets,
            "responders": statuses,
            "conditions": _conditions(failed=("False", "AwaitingEviction"), evicted=("False", "AwaitingEviction")),
        }
        return await self._patch_status("evictions", created, status)

    async def _advance(self, eviction: Json, pod: Json | None, requests: Sequence[Json]) -> Json:
        """Take the next step of an Eviction that is not final."""
        status = eviction["status"]
        active = next((one for one in status["targetResponders"] if one["state"] == "Active"), None)
        progress: Json = next((one for one in status["responders"] if active and one["name"] == active["name"]), {})
        if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed"):
            reason = "PodDeleted" if pod is None else "PodTerminal"
            conditions = _conditions(failed=("False", "Succeeded"), evicted=("True", reason))
            ended = "Completed" if progress.get("completionTime") else "Interrupted"
            return await self._patch_status(
                "evictions", eviction, _transition(status, active, ended) | {"conditions": conditions}
            )
        if not _requests_eviction(requests):
            conditions = _conditions(failed=("True", "CanceledDueToNoRequesters"), evicted=("False", "EvictionFailed"))
            changes = _transition(status, active, "Canceled") | {"conditions": conditions}
            return await self._patch_status("evictions", eviction, changes | {"requesters": _requesters_of(requests)})
        if active is None:
            conditions = _conditions(failed=("True", "NoFurtherResponder"), evicted=("False", "EvictionFailed"))
            return await self._patch_status("evictions", eviction, {"conditions": conditions})
        if progress.get("completionTime") or _is_silent(progress):
            ended = "Completed" if progress.get("completionTime") else "Interrupted"
            return await self._patch_status(
                "evictions", eviction, _transition(status, active, ended, activate_next=True)
            )
        if active["name"] == EVICTOR and "deletionTimestamp" not in pod["metadata"]:
            return await self._evict(eviction, pod)
        return eviction

    async def _evict(self, eviction: Json, pod: Json) -> Json:
        """The default responder: the Eviction API, again in the next pass if a budget rejects it."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        try:
            await self._api.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
            return eviction
        except ApiError as error:
            message = str(error)[:200]
        responders = [
            {**one, "message": message, "heartbeatTime": _now()} if one["name"] == EVICTOR else one
            for one in eviction["status"]["responders"]
        ]
        return await self._patch_status("evictions", eviction, {"responders": responders})

    async def _report(self, request: Json, eviction: Json | None) -> None:
        """Copy the conditions of the Eviction to the request."""
        generation, status = request["metadata"]["generation"], request.get("status") or {}
        conditions = eviction["status"].get("conditions", []) if eviction else []
        if (status.get("observedGeneration"), _plain(status.get("conditions", []))) != (generation, _plain(conditions)):
            await self._patch_status(
                "evictionrequests", request, {"observedGeneration": generation, "conditions": conditions}
            )

    async def _patch_status(self, plural: str, item: Json, status: Json) -> Json:
        """With the resourceVersion, so that a responder's report in between is not lost."""
        metadata = item["metadata"]
        path = f"{GROUP}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}/status"
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        return await self._api.request("PATCH", path, body, MERGE)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _created(item: Json) -> str:
    return str(item["metadata"]["creationTimestamp"])


def _requests_eviction(requests: Iterable[Json]) -> bool:
    return any(one["spec"]["intent"] == "Eviction" for one in requests)


def _requesters_of(requests: Iterable[Json]) -> list[Json]:
    return [{"name": one["spec"]["requester"], "intent": one["spec"]["intent"]} for one in requests]


def _responders_of(pod: Json) -> list[Json]:
    """Names and priorities, highest first; the Eviction API last."""
    own = [{"name": one["name"], "priority": one["priority"]} for one in pod["spec"].get("evictionResponders") or ()]
    return sorted(
        [*own, {"name": EVICTOR, "priority": EVICTOR_PRIORITY}], key=lambda one: (-one["priority"], one["name"])
    )


def _transition(status: Json, active: Json | None, ended: str, *, activate_next: bool = False) -> Json:
    """End the active responder and, if requested, start the next one."""
    if active is None:
        return {}
    ordered = [one["name"] for one in sorted(status["targetResponders"], key=lambda one: -one["priority"])]
    following = ordered[ordered.index(active["name"]) + 1 :][:1] if activate_next else []
    states = {active["name"]: ended, **dict.fromkeys(following, "Active")}
    return {
        "targetResponders": [
            {**one, "state": states.get(one["name"], one["state"])} for one in status["targetResponders"]
        ],
        "responders": [
            {**one, "startTime": _now()} if one["name"] in following else one for one in status["responders"]
        ],
    }


def _conditions(*, failed: tuple[str, str], evicted: tuple[str, str]) -> list[Json]:
    return [
        {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": _now()}
        for kind, (status, reason) in (("Failed", failed), ("TargetEvicted", evicted))
    ]


def _plain(conditions: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    return [(one["type"], one["status"], one["reason"]) for one in conditions]


def _is_final(eviction: Json) -> bool:
    return any(one["status"] == "True" for one in (eviction.get("status") or {}).get("conditions") or ())


def _is_silent(progress: Json) -> bool:
    last: str = progress.get("heartbeatTime") or progress.get("startTime") or _now()
    return (datetime.now(UTC) - datetime.fromisoformat(last)).total_seconds() > HEARTBEAT_DEADLINE_SECONDS
