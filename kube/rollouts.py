"""The Deployment behind a pod, and its restart. Satisfies `activities.drain_ports.Rollouts`."""

import math
from typing import Any, Final

from kube.client import KubeClient
from kube.errors import Json
from kube.pod_facts import controller
from kube.resources import WORKLOADS
from model.drains import Rollout
from model.faults import NotFound
from model.outcomes import DrainPod

RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
STRATEGIC = "application/strategic-merge-patch+json"


class KubeRollouts:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def of(self, pod: DrainPod) -> Rollout | None:
        """None for a pod that belongs to no Deployment."""
        if pod.owner_kind != "ReplicaSet":
            return None
        replica_set = await self._client.get(WORKLOADS["ReplicaSet"].path(pod.owner_name, namespace=pod.namespace))
        owner = controller((replica_set or {"metadata": {}})["metadata"].get("ownerReferences") or ())
        if owner.get("kind") != "Deployment":
            return None
        path = WORKLOADS["Deployment"].path(owner["name"], namespace=pod.namespace)
        deployment = await self._client.get(path)
        return rollout(deployment) if deployment and deployment["metadata"]["uid"] == owner["uid"] else None

    async def restart(self, found: Rollout, stamp: str) -> bool:
        """As `kubectl rollout restart` does it; said twice with one stamp it is done once. False when it is gone."""
        path = WORKLOADS["Deployment"].path(found.name, namespace=found.namespace)
        patch = {
            "metadata": {"uid": found.uid},
            "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: stamp}}}},
        }
        try:
            await self._client.request("PATCH", path, body=patch, content_type=STRATEGIC)
        except NotFound:
            return False
        return True


def rollout(deployment: Json) -> Rollout:
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"].get("metadata") or {}
    replicas = spec.get("replicas", 1)
    return Rollout(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        replicas=replicas,
        surges=_surges(spec, replicas),
        restarted_at=(template.get("annotations") or {}).get(RESTARTED_AT, ""),
    )


def _surges(spec: Json, replicas: int) -> bool:
    """Percentages of surge round up, and those of unavailability down, as the Deployment's controller has them; the
    old pod stays until the new one is Ready only where none may be unavailable."""
    strategy = spec.get("strategy") or {}
    if spec.get("paused") or strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return False
    rolling = strategy.get("rollingUpdate") or {}
    surge = _count(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    return surge > 0 and _count(rolling.get("maxUnavailable", "25%"), replicas, math.floor) == 0


def _count(written: Any, replicas: int, rounded: Any) -> int:
    text = str(written)
    return int(rounded(int(text[:-1]) * replicas / 100)) if text.endswith("%") else int(text)
