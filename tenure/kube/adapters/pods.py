"""Pods: eviction, forced deletion, nomination, deletion costs, attached volumes, and PodDisruptionBudgets."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Final

from tenure.apis.labels import NOMINATED, OWN_DELETION_COST, POD_DELETION_COST
from tenure.clock import utc_now
from tenure.kube.client import resources
from tenure.kube.client.client import MERGE_PATCH, STRATEGIC_MERGE, KubeClient, Response
from tenure.kube.client.errors import Json, fault_of, status_of
from tenure.kube.client.objects import SharedRead
from tenure.kube.facts.objects import pod_budget_fact
from tenure.kube.facts.pod_drain import drain_pod
from tenure.kube.facts.pod_topology import claim_names
from tenure.kube.facts.pods import controller_owner, deletion_cost_fields
from tenure.model.base import format_timestamp
from tenure.model.facts import PodDisruptionBudgetFact, PodFact
from tenure.model.provider_results import AttachedVolume, CostedPod, DeletionCostWrite, DrainPod, Eviction

_POD_DELETED_CODES: Final = (404, 409)
"""The pod does not exist, or another pod has its name."""
_MULTIPLE_BUDGETS: Final = "more than one PodDisruptionBudget"


class KubePods:
    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._attachments = SharedRead(self._list_attachments)

    async def on_node(self, node_name: str, *, now: datetime) -> Sequence[DrainPod]:
        """From a live list."""
        return [drain_pod(pod, now) for pod in await self._list(node_name)]

    async def evict(self, pod: DrainPod) -> Eviction:
        """A missing pod counts as evicted. A blocking budget is a result, throttling is a fault."""
        path = resources.PODS.path(pod.name, namespace=pod.namespace, sub="eviction")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        response = await self._client.send("POST", path, body=body)
        pod_key = f"{pod.namespace}/{pod.name}"
        if response.is_success or response.code in _POD_DELETED_CODES:
            not_found = not response.is_success
            return Eviction(pod=pod_key, accepted=True, not_found=not_found, status=response.code)
        blocked_by = _blocking_budget_message(response)
        if blocked_by:
            has_multiple_budgets = _MULTIPLE_BUDGETS in blocked_by
            return Eviction(
                pod=pod_key,
                accepted=False,
                blocked_by=blocked_by,
                multiple_budgets=has_multiple_budgets,
                status=response.code,
            )
        raise fault_of(response.code, response.body, what=f"evicting {pod_key}", retry_after=response.retry_after)

    async def force_delete(self, pod: DrainPod, *, grace_seconds: int) -> bool:
        """Delete the pod regardless of budgets and annotations. False if the pod is gone."""
        path = resources.PODS.path(pod.name, namespace=pod.namespace)
        body = {"gracePeriodSeconds": grace_seconds, "preconditions": {"uid": pod.uid}}
        response = await self._client.send("DELETE", path, body=body)
        if response.is_success:
            return True
        if response.code in _POD_DELETED_CODES:
            return False
        what = f"deleting {pod.namespace}/{pod.name}"
        raise fault_of(response.code, response.body, what=what, retry_after=response.retry_after)

    async def nominate(self, pod: PodFact, node: str, *, now: datetime) -> bool:
        """Set `nominatedNodeName`, which kube-scheduler tries first, and a condition. False if the pod is gone."""
        path = resources.PODS.path(pod.name, namespace=pod.namespace, sub="status")
        stamp = format_timestamp(now)
        condition = {"type": NOMINATED, "status": "True", "reason": "Planned", "message": node}
        body = {
            "metadata": {"uid": pod.uid},
            "status": {"nominatedNodeName": node, "conditions": [{**condition, "lastTransitionTime": stamp}]},
        }
        response = await self._client.send("PATCH", path, body=body, content_type=STRATEGIC_MERGE)
        if response.is_success or response.code in _POD_DELETED_CODES or _is_uid_mismatch(response):
            return response.is_success
        what = f"nominating {node} for {pod.namespace}/{pod.name}"
        raise fault_of(response.code, response.body, what=what, retry_after=response.retry_after)

    async def list_costed(self, node_name: str) -> Sequence[CostedPod]:
        """The node's pods that a ReplicaSet of apps/v1 controls, without those that end or have a cost of a user. The
        list may be seconds old."""
        params = {"fieldSelector": f"spec.nodeName={node_name}", "resourceVersion": "0"}
        response = await self._client.request("GET", resources.PODS.path(), params=params)
        return [_costed_pod(one) for one in response.get("items") or () if _may_have_cost(one)]

    async def write_deletion_cost(self, pod: CostedPod, cost: int | None) -> DeletionCostWrite:
        """Set or remove the deletion cost. Raises Fault, except for a pod that is gone or has changed."""
        if pod.cost == cost:
            return "skipped_unchanged"
        path = resources.PODS.path(pod.name, namespace=pod.namespace)
        annotations = dict.fromkeys((POD_DELETION_COST, OWN_DELETION_COST), None if cost is None else str(cost))
        body = {"metadata": {"resourceVersion": pod.version, "annotations": annotations}}
        response = await self._client.send("PATCH", path, body=body, content_type=MERGE_PATCH)
        if response.is_success:
            return "updated"
        match response.code:
            case HTTPStatus.NOT_FOUND:
                return "skipped_notfound"
            case HTTPStatus.CONFLICT:
                return "skipped_conflict"
        what = f"writing the deletion cost of {pod.namespace}/{pod.name}"
        raise fault_of(response.code, response.body, what=what, retry_after=response.retry_after)

    async def read_scheduler_message(self, pod: PodFact) -> str:
        """The message of its condition PodScheduled; empty without one, or if the pod is gone."""
        found = await self._client.get(resources.PODS.path(pod.name, namespace=pod.namespace)) or {}
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next((one.get("message", "") for one in conditions if one.get("type") == "PodScheduled"), "")

    async def attached_volumes(self, node_name: str) -> Sequence[AttachedVolume]:
        """Volumes to wait for. Those of pods that the drain does not wait for detach with the instance. A missing or
        released PersistentVolume is not awaited: no pod can use it on another node."""
        here = [
            one for one in await self._attachments() if one["spec"].get("nodeName") == node_name and _volume_name(one)
        ]
        if not here:
            return ()
        staying = await self._volumes_of_staying_pods(node_name)
        awaited = [one for one in here if _volume_name(one) not in staying]
        volumes = await asyncio.gather(
            *(self._client.get(resources.PERSISTENT_VOLUMES.path(_volume_name(one))) for one in awaited)
        )
        found = (
            _attached_volume(one, volume)
            for one, volume in zip(awaited, volumes, strict=True)
            if volume and (volume.get("status") or {}).get("phase") != "Released"
        )
        return sorted(found, key=lambda one: one.attachment)

    async def _volumes_of_staying_pods(self, node_name: str) -> set[str]:
        now = utc_now()
        claims = {
            (pod["metadata"]["namespace"], name)
            for pod in await self._list(node_name)
            if stays_until_termination(pod, now)
            for name in claim_names(pod["metadata"], pod["spec"])
        }
        found = await asyncio.gather(
            *(
                self._client.get(resources.PERSISTENT_VOLUME_CLAIMS.path(name, namespace=space))
                for space, name in claims
            )
        )
        return {claim["spec"].get("volumeName", "") for claim in found if claim}

    async def _list(self, node_name: str) -> list[Json]:
        params = {"fieldSelector": f"spec.nodeName={node_name}"}
        response = await self._client.request("GET", resources.PODS.path(), params=params)
        return list(response.get("items") or ())

    async def _list_attachments(self) -> list[Json]:
        response = await self._client.request("GET", resources.VOLUME_ATTACHMENTS.path())
        return list(response.get("items") or ())


def stays_until_termination(pod: Json, now: datetime) -> bool:
    """Whether the pod runs and the drain does not wait for it. A stuck pod keeps its volumes until termination too."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and not drain_pod(pod, now).waits


def _may_have_cost(pod: Json) -> bool:
    metadata = pod["metadata"]
    owner = controller_owner(metadata.get("ownerReferences") or ())
    is_ended = "deletionTimestamp" in metadata or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    is_of_replicaset = (owner.get("apiVersion"), owner.get("kind")) == ("apps/v1", "ReplicaSet")
    has_foreign_cost: bool = deletion_cost_fields(metadata.get("annotations") or {})["has_foreign_cost"]
    return is_of_replicaset and not is_ended and not has_foreign_cost


def _costed_pod(pod: Json) -> CostedPod:
    metadata = pod["metadata"]
    return CostedPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        version=metadata["resourceVersion"],
        cost=deletion_cost_fields(metadata.get("annotations") or {})["written_cost"],
    )


def _volume_name(attachment: Json) -> str:
    name: str = attachment["spec"].get("source", {}).get("persistentVolumeName", "")
    return name


def _attached_volume(attachment: Json, volume: Json) -> AttachedVolume:
    metadata, spec = attachment["metadata"], attachment["spec"]
    error = (attachment.get("status") or {}).get("detachError") or {}
    claim = volume["spec"].get("claimRef") or {}
    return AttachedVolume(
        attachment=metadata["name"],
        driver=spec["attacher"],
        volume=_volume_name(attachment),
        claim=f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        detaching="deletionTimestamp" in metadata,
        error=error.get("message", ""),
    )


def _is_uid_mismatch(response: Response) -> bool:
    """For a patch with another UID, the API server reports an immutable field, and not a conflict as for deletions."""
    causes = (status_of(response.body).get("details") or {}).get("causes") or ()
    return response.code == HTTPStatus.UNPROCESSABLE_ENTITY and any(
        one.get("field") == "metadata.uid" for one in causes
    )


def _blocking_budget_message(response: Response) -> str:
    """The API server's message about the blocking budget; empty for other errors."""
    status = status_of(response.body)
    causes = (status.get("details") or {}).get("causes") or ()
    cause_messages = "; ".join(one.get("message", "") for one in causes if one.get("reason") == "DisruptionBudget")
    message: str = status.get("message", "")
    if response.code == 429 and cause_messages:
        return cause_messages
    return message if _MULTIPLE_BUDGETS in message else ""


class KubePodDisruptionBudgets:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def in_namespace(self, namespace: str) -> Sequence[PodDisruptionBudgetFact]:
        response = await self._client.request("GET", resources.POD_DISRUPTION_BUDGETS.path(namespace=namespace))
        return [pod_budget_fact(one) for one in response.get("items") or ()]
