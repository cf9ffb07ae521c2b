"""Raw objects for caches, and facts for pure decisions."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.kube.client.list_watch import Delta
from tenure.model.facts import NodeClaimFact, NodeFact
from tests.support.kube.builders import claim_json, node_json, pod_json, pool_json

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
Json = dict[str, Any]


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def stamp(seconds: float = 0) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def claim_fact(**more: Any) -> NodeClaimFact:
    fields: dict[str, Any] = {
        "name": "c1",
        "uid": "uid-c1",
        "created": at(-100),
        "pool": "general",
        "node_class": "default",
        "provider_id": "aws:///us-west-2a/i-n1",
        "requests": {"cpu": 1000},
    }
    return NodeClaimFact.model_validate({**fields, **more})


def node_fact(**more: Any) -> NodeFact:
    fields: dict[str, Any] = {
        "name": "n1",
        "uid": "uid-n1",
        "provider_id": "aws:///us-west-2a/i-n1",
        "allocatable": {"cpu": 2000},
        "ready": True,
        "ready_changed": at(-60),
        "boot_id": "boot-1",
    }
    return NodeFact.model_validate({**fields, **more})


# --- raw objects, as list-watch delivers them ---


def claim(name: str, *, phase: str = "", pool: str = "general", deleting: bool = False, **metadata: Any) -> Json:
    """`phase`: empty, or the last true condition: Launched, Registered or Initialized."""
    reached = ("Launched", "Registered", "Initialized")
    raw = claim_json(name)
    raw["metadata"] |= {
        "uid": f"uid-{name}",
        "creationTimestamp": stamp(-100),
        "labels": {"karpenter.sh/nodepool": pool},
        "finalizers": ["karpenter.sh/termination"],
        **metadata,
    }
    if deleting:
        raw["metadata"]["deletionTimestamp"] = stamp()
    true = reached[: reached.index(phase) + 1] if phase else ()
    raw["status"] = {
        "conditions": [{"type": one, "status": "True", "lastTransitionTime": stamp(-50)} for one in true],
        **({"providerID": f"aws:///us-west-2a/i-{name}", "capacity": {"cpu": "2"}} if true else {}),
    }
    return raw


def blocked_nodeclaim(name: str, code: str, **more: Any) -> Json:
    raw = claim(name, **more)
    raw["status"]["conditions"] = [{"type": "tenure.sh/NeedsAttention", "status": "True", "reason": code}]
    return raw


def node(name: str, *, of: str = "", ready: bool = True, taints: list[Json] | None = None, **metadata: Any) -> Json:
    """`of`: name of the NodeClaim."""
    raw = node_json(name, provider_id=f"aws:///us-west-2a/i-{of}" if of else f"other:///{name}", taints=taints)
    raw["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": stamp(-60), **metadata}
    raw["status"] = {
        "allocatable": {"cpu": "2", "memory": "4Gi"},
        "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": stamp(-40)}],
        "nodeInfo": {"bootID": f"boot-{name}"},
    }
    return raw


def pod(name: str, *, on: str = "", owner: str = "ReplicaSet", phase: str = "", **more: Any) -> Json:
    metadata = {
        "uid": f"uid-{name}",
        "creationTimestamp": stamp(-30),
        "ownerReferences": [{"kind": owner, "uid": f"owner-{owner}", "controller": True}],
        **more.pop("metadata", {}),
    }
    raw = pod_json(name, node=on, metadata=metadata, **more)
    raw["status"] = {"phase": phase or ("Running" if on else "Pending")}
    if not on:
        raw["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return raw


def pod_of_scheduler(name: str, message: str, **more: Any) -> Json:
    """A pod that `batch-scheduler` has not bound, for this reason."""
    raw = pod(name, schedulerName="batch-scheduler", **more)
    raw["status"]["conditions"][0]["message"] = message
    return raw


def with_binding(raw: Json, after: float) -> Json:
    """The pod, bound `after` seconds after NOW."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(after)}
    return {**raw, "status": {**raw["status"], "startTime": stamp(after + 2), "conditions": [condition]}}


def pool(name: str = "general", **spec: Any) -> Json:
    raw = pool_json(name, **spec)
    raw["metadata"] |= {"uid": f"uid-{name}", "generation": 1, "creationTimestamp": stamp(-1000)}
    raw["status"] = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(-900)}]}
    return raw


def node_class(name: str = "default", *, generation: int = 1, deleting: bool = False) -> Json:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation, "creationTimestamp": stamp(-1000)}
    if deleting:
        metadata["deletionTimestamp"] = stamp()
    return {"metadata": metadata, "spec": {"role": "r"}, "status": {}}


class CacheHarness:
    """A cluster cache that gets its objects from the test, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = NOW
        self.cache = ClusterCache(lambda: self.now)

    def apply_objects(self, kind: str, *objects: Json) -> None:
        self.cache.on_deltas(kind, [Delta(one) for one in objects])

    def add_running_node(self, nodeclaim: str = "c1", name: str = "n1") -> None:
        """An initialized NodeClaim and its Node."""
        self.apply_objects("nodeclaims", claim(nodeclaim, phase="Initialized"))
        self.apply_objects("nodes", node(name, of=nodeclaim))

    def delete_objects(self, kind: str, *objects: Json) -> None:
        self.cache.on_deltas(kind, [Delta(one, is_deleted=True) for one in objects])


def not_ready_tracker(harness: CacheHarness, grace: float = 300) -> NotReadyTracker:
    """A tracker with the same grace period, in seconds, for every NodePool."""
    return NotReadyTracker(harness.cache, lambda pool: timedelta(seconds=grace))
