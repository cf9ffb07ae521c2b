"""Nodes: registration, taints and labels, deletion, and the pods on them.

A patch replaces whole lists of a Node (taints, finalizers, owners). Therefore such a patch has the resourceVersion, and
is built again if the kubelet has changed the Node in between.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import structlog

from tenure.apis import labels
from tenure.apis.meta import Taint
from tenure.apis.nodeclaim import NodeClaim
from tenure.kube.client.client import JSON_PATCH, STRATEGIC_MERGE, KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.objects import BuildPatch, Objects, SharedRead
from tenure.kube.client.patches import AnnotationPatcher, stamp_condition
from tenure.kube.client.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_SLICES
from tenure.kube.facts.device_classes import extended_resource_of, select_dra_resources
from tenure.kube.facts.objects import is_set_by_others, node_fact, registration_gaps
from tenure.kube.facts.pod_drain import is_protected, is_reschedulable
from tenure.kube.facts.pods import read_pod
from tenure.kube.facts.resource_slices import list_published_drivers, resource_slice
from tenure.model.base import object_log_fields
from tenure.model.errors import Forbidden, NotFound
from tenure.model.extra_capacity import MovedPod, NodeLoad
from tenure.model.facts import NodeFact
from tenure.model.nodeclaim.node_identity import NODEPOOL_GAP, REGISTERED_GAP
from tenure.model.provider_results import ConditionPatch

log = structlog.get_logger(__name__)

_LB: Final = labels.EXCLUDE_FROM_LOAD_BALANCERS
_TAINTS: Final = "/spec/taints"
_TAINT: Final = {"key": labels.DISRUPTED_TAINT_KEY, "effect": labels.NO_SCHEDULE}
_REBOOTING_TAINT: Final = {"key": labels.REBOOTING_TAINT_KEY, "effect": labels.NO_SCHEDULE}


class KubeNodes(AnnotationPatcher):
    def __init__(self, client: KubeClient, *, plans_devices: bool = False) -> None:
        self._client, self._plans_devices = client, plans_devices
        self._nodes = Objects(client, NODES)
        super().__init__(self._nodes)
        self._read_all_nodes = SharedRead(self._nodes.list)

    async def get(self, name: str) -> NodeFact | None:
        node = await self._nodes.get(name)
        return node_fact(node) if node else None

    async def find_by_provider_id(self, provider_id: str) -> Sequence[NodeFact]:
        """From a live list, which concurrent callers share, because the API server has no selector for provider IDs."""
        return [
            node_fact(node) for node in await self._read_all_nodes() if node["spec"].get("providerID") == provider_id
        ]

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[NodeFact]:
        """An invalid Node has only its identity, is not Ready, and is protected from disruption."""
        return await self._nodes.read_each(node_fact, _node_identity, labels)

    async def register(self, name: str, claim: NodeClaim) -> NodeFact | None:
        """Register the Node. Of a registered Node, only what Tenure needs is restored, since users may have changed the
        rest."""
        node = await self._nodes.patch_with_retry(name, lambda item: _registration_patch(item, claim))
        return node_fact(node) if node else None

    async def mark_initialized(self, name: str) -> bool:
        try:
            await self._client.merge(NODES.path(name), {"metadata": {"labels": {labels.INITIALIZED: "true"}}})
        except NotFound:
            return False
        return True

    async def list_missing_drivers(self, name: str, drivers: Collection[str]) -> tuple[str, ...]:
        if not (drivers and self._plans_devices):
            return ()
        params = {"fieldSelector": f"spec.nodeName={name}"}
        found = await self._client.request("GET", RESOURCE_SLICES.path(), params=params)
        published = list_published_drivers(map(resource_slice, found.get("items") or ()))
        return tuple(one for one in drivers if one not in published)

    async def list_dra_resources(self, requested: Collection[str]) -> tuple[str, ...]:
        try:
            found = await self._client.request("GET", DEVICE_CLASSES.path())
        except (NotFound, Forbidden):
            return select_dra_resources(requested, ())
        return select_dra_resources(requested, {extended_resource_of(one) for one in found.get("items") or ()})

    async def patch_labels(self, name: str, uid: str, labels: Mapping[str, str | None]) -> bool:
        return await self._nodes.patch_metadata(name, uid=uid, labels=labels) is not None

    async def mark_disrupted(self, name: str) -> NodeFact | None:
        node = await self._patch_taints(name, _disruption_patch, "tainted node")
        return node_fact(node) if node else None

    async def _patch_taints(self, name: str, build_patch: BuildPatch, message: str, *, uid: str = "") -> Json | None:
        """The Node after the patch; None if it is gone. Logs the message if the taints changed."""
        patch: Json | None = None

        def build_and_store(item: Json) -> Json | None:
            nonlocal patch
            patch = build_patch(item)
            return patch

        node = await self._nodes.patch_with_retry(name, build_and_store, uid=uid)
        if node and patch and "spec" in patch:
            log.info(message, **_log_fields(node))
        return node

    async def mark_early_evicted(self, name: str, uid: str, *, tainted: bool, at: datetime) -> bool:
        stamp = at.isoformat(timespec="seconds")
        patch = _early_eviction_json_patch(uid, tainted=tainted, stamp=stamp)
        response = await self._client.send("PATCH", NODES.path(name), body=patch, content_type=JSON_PATCH)
        if response.is_success:
            log.info("tainted node", Node={"name": name})
        if response.is_success or response.code == HTTPStatus.NOT_FOUND:
            return response.is_success
        # The Node is not in the expected state: another UID, or its taints were added or removed meanwhile.
        return (
            await self._patch_taints(name, lambda node: _early_eviction_patch(node, stamp), "tainted node", uid=uid)
            is not None
        )

    async def unmark_disrupted(self, name: str) -> bool:
        return await self._patch_taints(name, _undo_disruption_patch, "untainted node") is not None

    async def mark_rebooting(self, name: str) -> bool:
        return await self._patch_taints(name, _rebooting_patch, "tainted node to reboot it") is not None

    async def unmark_rebooting(self, name: str) -> bool:
        return await self._patch_taints(name, _undo_rebooting_patch, "untainted rebooted node") is not None

    async def set_conditions(self, name: str, conditions: Sequence[ConditionPatch], *, now: datetime) -> bool:
        node = await self._nodes.get(name)
        if node is None:
            return False
        current = {one["type"]: one for one in (node.get("status") or {}).get("conditions") or ()}
        # A strategic merge patch finds a condition by its type. The kubelet's conditions stay as they are.
        patches = [
            stamp_condition(current.get(one.type, {}), one, now)
            if one.status
            else {"type": one.type, "$patch": "delete"}
            for one in conditions
            if _may_write(current.get(one.type), one)
        ]
        if not patches:
            return True
        body = {"status": {"conditions": patches}}
        try:
            await self._client.request("PATCH", NODES.path(name, sub="status"), body=body, content_type=STRATEGIC_MERGE)
        except NotFound:
            return False
        return True

    async def delete(self, name: str, uid: str) -> bool:
        return await self._nodes.delete(name, uid=uid)

    async def release(self, name: str, uid: str) -> bool:
        return await self._nodes.drop_finalizer(name, labels.TERMINATION_FINALIZER, uid=uid)


def _may_write(current: Json | None, patch: ConditionPatch) -> bool:
    """False if another controller has set the lifecycle condition, or there is nothing to remove."""
    if current is None:
        return bool(patch.status)
    is_active = current["status"] == "True" or not patch.status
    return not (is_active and is_set_by_others(current))


def _log_fields(node: Json) -> dict[str, Any]:
    """Karpenter's keys of a log line about a Node."""
    pool = (node["metadata"].get("labels") or {}).get(labels.NODEPOOL, "")
    fields = object_log_fields(Node=node["metadata"]["name"], NodePool=pool)
    return {**fields, "provider-id": node["spec"].get("providerID", "")}


def _node_identity(node: Json) -> NodeFact:
    metadata = node["metadata"]
    return NodeFact(
        name=metadata["name"],
        uid=metadata["uid"],
        provider_id=(node.get("spec") or {}).get("providerID", ""),
        labels=metadata.get("labels") or {},
        annotations={**(metadata.get("annotations") or {}), labels.DO_NOT_DISRUPT: "true"},
        deleting="deletionTimestamp" in metadata,
        finalizers=tuple(metadata.get("finalizers") or ()),
    )


def _registration_patch(node: Json, claim: NodeClaim) -> Json | None:
    metadata, pool = node["metadata"], claim.metadata.labels.get(labels.NODEPOOL, "")
    gaps = [one for one in registration_gaps(node) if pool or one != NODEPOOL_GAP]
    if not gaps:
        return None
    is_new = REGISTERED_GAP in gaps
    current_labels = metadata.get("labels") or {}
    patch: Json = {
        "metadata": {"ownerReferences": _with_nodeclaim_owner(metadata.get("ownerReferences") or [], claim)},
        "spec": {
            "taints": _registration_taints(
                node, claim, sync=is_new and current_labels.get(labels.DO_NOT_SYNC_TAINTS) != "true"
            )
        },
    }
    if is_new:
        patch["metadata"]["labels"] = {**claim.metadata.labels, labels.REGISTERED: "true"}
        patch["metadata"]["annotations"] = {
            key: value for key, value in claim.metadata.annotations.items() if key != labels.PAUSE
        }
    elif pool:
        patch["metadata"]["labels"] = {labels.NODEPOOL: pool}
    finalizers = metadata.get("finalizers") or []
    if labels.TERMINATION_FINALIZER not in finalizers and "deletionTimestamp" not in metadata:
        patch["metadata"]["finalizers"] = [*finalizers, labels.TERMINATION_FINALIZER]
    return patch


def _with_nodeclaim_owner(owners: list[Json], claim: NodeClaim) -> list[Json]:
    owner = {
        "apiVersion": labels.NODEPOOL_API_VERSION,
        "kind": "NodeClaim",
        "name": claim.name,
        "uid": claim.uid,
        "blockOwnerDeletion": True,
    }
    return [*(one for one in owners if one.get("uid") != claim.uid), owner]


def _registration_taints(node: Json, claim: NodeClaim, *, sync: bool) -> list[Json]:
    present_taints = [one for one in node["spec"].get("taints") or () if one["key"] != labels.UNREGISTERED_TAINT_KEY]
    if not sync:
        return present_taints
    present = {(one["key"], one["effect"]) for one in present_taints}
    desired: dict[tuple[str, str], Json] = {
        (one.key, one.effect): _taint_to_json(one) for one in (*claim.spec.taints, *claim.spec.startup_taints)
    }
    return present_taints + [taint for pair, taint in desired.items() if pair not in present]


def _taint_to_json(taint: Taint) -> dict[str, Any]:
    written = {"key": taint.key, "effect": taint.effect}
    return {**written, "value": taint.value} if taint.value else written


def _is_disrupted(taint: Json) -> bool:
    return bool(taint["key"] == labels.DISRUPTED_TAINT_KEY and taint["effect"] == labels.NO_SCHEDULE)


def _early_eviction_json_patch(uid: str, *, tainted: bool, stamp: str) -> list[Json]:
    """The API server rejects the patch if the Node has changed. A test for null means that the field is absent."""
    label, annotation = (one.replace("/", "~1") for one in (_LB, labels.EARLY_EVICTED_AT))
    create_taint_list = [
        {"op": "test", "path": _TAINTS, "value": None},
        {"op": "add", "path": _TAINTS, "value": [_TAINT]},
    ]
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        *([{"op": "add", "path": f"{_TAINTS}/-", "value": _TAINT}] if tainted else create_taint_list),
        {"op": "add", "path": f"/metadata/labels/{label}", "value": labels.EXCLUDE_FROM_LOAD_BALANCERS_VALUE},
        {"op": "add", "path": f"/metadata/annotations/{annotation}", "value": stamp},
    ]


def _disruption_patch(node: Json) -> Json | None:
    current_labels = node["metadata"].get("labels") or {}
    patch = _add_taint(node, _TAINT, _is_disrupted)
    if _LB not in current_labels:
        patch["metadata"] = {"labels": {_LB: labels.EXCLUDE_FROM_LOAD_BALANCERS_VALUE}}
    return patch or None


def _early_eviction_patch(node: Json, stamp: str) -> Json:
    patch = _disruption_patch(node) or {}
    return {**patch, "metadata": {**patch.get("metadata", {}), "annotations": {labels.EARLY_EVICTED_AT: stamp}}}


def _undo_disruption_patch(node: Json) -> Json | None:
    current_labels = node["metadata"].get("labels") or {}
    patch = _remove_taints(node, _is_disrupted)
    if current_labels.get(_LB) == labels.EXCLUDE_FROM_LOAD_BALANCERS_VALUE:
        patch["metadata"] = {"labels": {_LB: None}}
    if labels.EARLY_EVICTED_AT in (node["metadata"].get("annotations") or {}):
        patch.setdefault("metadata", {})["annotations"] = {labels.EARLY_EVICTED_AT: None}
    return patch or None


def _rebooting_patch(node: Json) -> Json | None:
    return _add_taint(node, _REBOOTING_TAINT, _is_rebooting) or None


def _undo_rebooting_patch(node: Json) -> Json | None:
    return _remove_taints(node, _is_rebooting) or None


def _add_taint(node: Json, taint: Json, is_present: Callable[[Json], bool]) -> Json:
    """A patch; empty if the taint is present."""
    taints = node["spec"].get("taints") or []
    return {} if any(map(is_present, taints)) else {"spec": {"taints": [*taints, taint]}}


def _remove_taints(node: Json, is_removed: Callable[[Json], bool]) -> Json:
    """A patch; empty if there is no such taint."""
    taints = node["spec"].get("taints") or []
    remaining = [one for one in taints if not is_removed(one)]
    return {"spec": {"taints": remaining}} if remaining != taints else {}


def _is_rebooting(taint: Json) -> bool:
    return bool(taint["key"] == labels.REBOOTING_TAINT_KEY)


MAX_CONCURRENT_LISTS: Final = 16


class KubeNodeLoads:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def on_nodes(self, names: Collection[str], *, now: datetime) -> Mapping[str, NodeLoad]:
        """From live lists, one per node."""
        semaphore = asyncio.Semaphore(MAX_CONCURRENT_LISTS)

        async def on_node(name: str) -> NodeLoad:
            async with semaphore:
                response = await self._client.request(
                    "GET", PODS.path(), params={"fieldSelector": f"spec.nodeName={name}"}
                )
            return node_load(response.get("items") or (), now)

        return dict(zip(names, await asyncio.gather(*(on_node(name) for name in names)), strict=True))


def node_load(pods: Collection[Json], now: datetime) -> NodeLoad:
    """Load of a node by its pods. DaemonSet pods can protect the node, but are not rescheduled."""
    moved_pods, protected = [], False
    for pod in pods:
        fact = read_pod(pod)
        if not fact.is_finished and not fact.deleting:
            protected = protected or is_protected(fact.do_not_disrupt, fact.started, now)
        if is_reschedulable(fact):
            moved_pods.append(MovedPod(priority=fact.priority, deletion_cost=fact.deletion_cost))
    return NodeLoad(moved=tuple(moved_pods), protected=protected)
