"""Deployments of controllers: what one is told by its environment, how many run, and scaling to zero and back.

For `tenure adopt`, with a person's rights: the worker's own role may not change Deployments.

The Deployment behind a pod, and its restart. Satisfies `activities.drain_ports.Rollouts`.

Jobs that hooks make. Satisfies `activities.hook_ports.Jobs`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tenure.apis.labels import REPLICAS_BEFORE
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import JOBS, WORKLOADS
from tenure.kube.facts.pods import controller
from tenure.model.base import Value
from tenure.model.disruption.drain import Rollout
from tenure.model.errors import NotFound
from tenure.model.hooks import HOOK_KEY, DesiredJob, JobFact
from tenure.model.provider_results import DrainPod

_NAME_LABEL: Final = "app.kubernetes.io/name"


class Deployed(Value):
    """A Deployment, as one sees from outside what its controller does."""

    namespace: str
    name: str
    replicas: int
    """Asked for."""
    running: int = 0
    before: int = 0
    """How many were asked for when it was scaled to zero; 0 where nobody wrote that down."""
    image: str = ""
    environment: dict[str, str] = {}
    """By variable, what flags say in its stead first: those win with Karpenter."""
    elsewhere: tuple[str, ...] = ()
    """Variables whose value stands in another object, and objects that hold some."""

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"


class KubeDeployments:
    """Raises model.faults."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get(self, namespace: str, name: str) -> Deployed | None:
        found = await self._client.get(WORKLOADS["Deployment"].path(name, namespace=namespace))
        return deployed(found) if found else None

    async def called(self, name: str) -> Sequence[Deployed]:
        """In any namespace, by the label that Helm charts put on."""
        found = await Objects(self._client, WORKLOADS["Deployment"]).list({_NAME_LABEL: name})
        return [deployed(one) for one in found]

    async def stop(self, namespace: str, name: str) -> bool:
        """Scale to zero, and write down how many there were. False when it is gone."""

        def stopped(item: Json) -> Json | None:
            replicas = item["spec"].get("replicas", 1)
            if not replicas:
                return None
            return {"metadata": {"annotations": {REPLICAS_BEFORE: str(replicas)}}, "spec": {"replicas": 0}}

        return await self._objects(namespace).change(name, stopped) is not None

    async def start(self, namespace: str, name: str, *, otherwise: int) -> bool:
        """As many as there were, or `otherwise` where nobody knows; one that runs is left alone. False when gone."""

        def started(item: Json) -> Json | None:
            if item["spec"].get("replicas", 1):
                return None
            before = deployed(item).before or otherwise
            return {"metadata": {"annotations": {REPLICAS_BEFORE: None}}, "spec": {"replicas": before}}

        return await self._objects(namespace).change(name, started) is not None

    def _objects(self, namespace: str) -> Objects:
        return Objects(self._client, WORKLOADS["Deployment"], namespace)


def deployed(deployment: Json) -> Deployed:
    metadata, spec = deployment["metadata"], deployment["spec"]
    containers = spec["template"]["spec"].get("containers") or [{}]
    first = next((one for one in containers if one.get("name") == "controller"), containers[0])
    variables = first.get("env") or ()
    said = {one["name"]: str(one.get("value", "")) for one in variables if "valueFrom" not in one}
    before = (metadata.get("annotations") or {}).get(REPLICAS_BEFORE, "")
    return Deployed(
        namespace=metadata["namespace"],
        name=metadata["name"],
        replicas=spec.get("replicas", 1),
        running=(deployment.get("status") or {}).get("replicas", 0),
        before=int(before) if before.isdecimal() else 0,
        image=first.get("image", ""),
        environment=said | _flags([*(first.get("command") or ()), *(first.get("args") or ())]),
        elsewhere=(
            *(one["name"] for one in variables if "valueFrom" in one),
            *(_source(one) for one in first.get("envFrom") or ()),
        ),
    )


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """`--batch-idle-duration=2s` as the variable of that name; a flag by itself is a switch."""
    found: dict[str, str] = {}
    for number, one in enumerate(arguments):
        if not one.startswith("-"):
            continue
        flag, given, value = one.lstrip("-").partition("=")
        after = arguments[number + 1] if number + 1 < len(arguments) else "-"
        if not given:
            value = "true" if after.startswith("-") else after
        found[flag.upper().replace("-", "_")] = value
    return found


def _source(one: Mapping[str, Any]) -> str:
    kind = next((key for key in ("configMapRef", "secretRef") if key in one), "")
    return f"{'Secret' if kind == 'secretRef' else 'ConfigMap'} {one.get(kind, {}).get('name', '')}"


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


KEPT: Final = 86_400
"""Seconds after its end until Kubernetes removes a Job: long enough for a worker that was away to see how it ended."""
_LATE: Final = "DeadlineExceeded"


class KubeJobs:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get(self, namespace: str, name: str) -> JobFact | None:
        found = await self._client.get(JOBS.path(name, namespace=namespace))
        return job_fact(found) if found else None

    async def create(self, wanted: DesiredJob) -> JobFact:
        jobs = Objects(self._client, JOBS, wanted.namespace)
        return job_fact(await jobs.create(job(wanted)))


def job(wanted: DesiredJob) -> Json:
    """As it is sent: the template in its own words, and what says whose it is."""
    template: Json = dict(wanted.template)
    metadata: Json = dict(template.get("metadata") or {})
    spec: Json = {"restartPolicy": "Never", **_mapping(template.get("spec"))}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            spec[kind] = [_told(one, wanted.env) for one in spec[kind]]
    metadata["labels"] = {**(metadata.get("labels") or {}), **wanted.labels}
    return {
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": dict(wanted.labels),
            "annotations": {HOOK_KEY: wanted.key},
        },
        "spec": {
            "backoffLimit": wanted.retries,
            "activeDeadlineSeconds": wanted.seconds,
            "ttlSecondsAfterFinished": KEPT,
            "template": {**template, "metadata": metadata, "spec": spec},
        },
    }


def job_fact(found: Json) -> JobFact:
    key = (found["metadata"].get("annotations") or {}).get(HOOK_KEY, "")
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition["type"] == "Complete":
            return JobFact(key=key, outcome="succeeded")
        if condition["type"] == "Failed":
            reason, message = condition.get("reason", ""), condition.get("message", "")
            outcome = "timed out" if reason == _LATE else "failed"
            return JobFact.model_validate({"key": key, "outcome": outcome, "why": f"{reason}: {message}"})
    return JobFact(key=key)


def _told(container: Mapping[str, Any], env: Mapping[str, str]) -> Json:
    """What the container says itself counts."""
    own = list(container.get("env") or ())
    names = {one.get("name") for one in own}
    return {**container, "env": [*({"name": key, "value": env[key]} for key in env if key not in names), *own]}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
