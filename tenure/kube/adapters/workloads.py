"""Deployments that `tenure adopt` scales with the user's permissions, rollouts of pods' Deployments, and hook Jobs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tenure.apis.labels import POD_TEMPLATE_HASH, REPLICAS_BEFORE
from tenure.kube.client.client import STRATEGIC_MERGE, KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import JOBS, PODS, WORKLOADS
from tenure.kube.facts.pods import controller_owner
from tenure.model.base import Value
from tenure.model.disruption.drain import DeploymentRollout
from tenure.model.errors import NotFound
from tenure.model.hooks import HOOK_KEY, DesiredJob, JobFact
from tenure.model.provider_results import DrainPod

_NAME_LABEL: Final = "app.kubernetes.io/name"


class DeploymentState(Value):
    """Observable state of a Deployment."""

    namespace: str
    name: str
    replicas: int
    """Desired replicas."""
    replicas_before: int = 0
    """Replicas before it was scaled to zero; 0 if not recorded."""
    image: str = ""
    environment: dict[str, str] = {}
    """Values by variable; command-line flags override them, as in Karpenter."""
    external_variables: tuple[str, ...] = ()
    """Variables with `valueFrom`, and the objects of `envFrom`."""

    @property
    def qualified_name(self) -> str:
        return f"{self.namespace}/{self.name}"


class KubeDeployments:
    """Raises model.faults."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get(self, namespace: str, name: str) -> DeploymentState | None:
        found = await self._client.get(WORKLOADS["Deployment"].path(name, namespace=namespace))
        return deployment_state(found) if found else None

    async def list_by_name_label(self, name: str) -> Sequence[DeploymentState]:
        """Deployments of all namespaces with the name label of Helm charts."""
        found = await Objects(self._client, WORKLOADS["Deployment"]).list({_NAME_LABEL: name})
        return [deployment_state(one) for one in found]

    async def list_pods(self, namespace: str, name: str) -> list[str]:
        """Names of the Deployment's pods, except ended ones. `status.replicas` does not count terminating pods."""
        found = await self._client.get(WORKLOADS["Deployment"].path(name, namespace=namespace))
        selector = found["spec"]["selector"].get("matchLabels") if found else None
        pods = Objects(self._client, PODS, namespace).iterate(selector)
        return [one["metadata"]["name"] async for one in pods if _is_active_pod_of(one, name)]

    async def stop(self, namespace: str, name: str) -> bool:
        """Scale to zero and record the replicas in an annotation. False if the Deployment is gone."""

        def build_stop_patch(item: Json) -> Json | None:
            replicas = item["spec"].get("replicas", 1)
            if not replicas:
                return None
            return {"metadata": {"annotations": {REPLICAS_BEFORE: str(replicas)}}, "spec": {"replicas": 0}}

        return await self._deployments_in(namespace).patch_with_retry(name, build_stop_patch) is not None

    async def start(self, namespace: str, name: str, *, default_replicas: int) -> bool:
        """Restore the recorded replicas, or `default_replicas`, unless the Deployment is already scaled up.

        False if the Deployment is gone.
        """

        def build_start_patch(item: Json) -> Json | None:
            if item["spec"].get("replicas", 1):
                return None
            before = deployment_state(item).replicas_before or default_replicas
            return {"metadata": {"annotations": {REPLICAS_BEFORE: None}}, "spec": {"replicas": before}}

        return await self._deployments_in(namespace).patch_with_retry(name, build_start_patch) is not None

    def _deployments_in(self, namespace: str) -> Objects:
        return Objects(self._client, WORKLOADS["Deployment"], namespace)


def deployment_state(deployment: Json) -> DeploymentState:
    metadata, spec = deployment["metadata"], deployment["spec"]
    containers = spec["template"]["spec"].get("containers") or [{}]
    first = next((one for one in containers if one.get("name") == "controller"), containers[0])
    variables = first.get("env") or ()
    literal_variables = {one["name"]: str(one.get("value", "")) for one in variables if "valueFrom" not in one}
    before = (metadata.get("annotations") or {}).get(REPLICAS_BEFORE, "")
    return DeploymentState(
        namespace=metadata["namespace"],
        name=metadata["name"],
        replicas=spec.get("replicas", 1),
        replicas_before=int(before) if before.isdecimal() else 0,
        image=first.get("image", ""),
        environment=literal_variables | _parse_flags([*(first.get("command") or ()), *(first.get("args") or ())]),
        external_variables=(
            *(one["name"] for one in variables if "valueFrom" in one),
            *(_describe_env_source(one) for one in first.get("envFrom") or ()),
        ),
    )


def _is_active_pod_of(pod: Json, deployment: str) -> bool:
    """By its ReplicaSet, which has the name of its Deployment and the hash of the pods' template."""
    owner = controller_owner(pod["metadata"].get("ownerReferences") or ())
    template_hash = (pod["metadata"].get("labels") or {}).get(POD_TEMPLATE_HASH)
    is_owned = owner.get("kind") == "ReplicaSet" and owner.get("name") == f"{deployment}-{template_hash}"
    return is_owned and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _parse_flags(arguments: Sequence[str]) -> dict[str, str]:
    """Flags by the name of their variable: `--batch-idle-duration=2s` is BATCH_IDLE_DURATION. No value means true."""
    found: dict[str, str] = {}
    for number, one in enumerate(arguments):
        if not one.startswith("-"):
            continue
        flag, separator, value = one.lstrip("-").partition("=")
        after = arguments[number + 1] if number + 1 < len(arguments) else "-"
        if not separator:
            value = "true" if after.startswith("-") else after
        found[flag.upper().replace("-", "_")] = value
    return found


def _describe_env_source(one: Mapping[str, Any]) -> str:
    kind = next((key for key in ("configMapRef", "secretRef") if key in one), "")
    return f"{'Secret' if kind == 'secretRef' else 'ConfigMap'} {one.get(kind, {}).get('name', '')}"


RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"


class KubeRollouts:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def find_for_pod(self, pod: DrainPod) -> DeploymentRollout | None:
        """None for a pod without a Deployment."""
        if pod.owner_kind != "ReplicaSet":
            return None
        replica_set = await self._client.get(WORKLOADS["ReplicaSet"].path(pod.owner_name, namespace=pod.namespace))
        owner = controller_owner((replica_set or {"metadata": {}})["metadata"].get("ownerReferences") or ())
        if owner.get("kind") != "Deployment":
            return None
        path = WORKLOADS["Deployment"].path(owner["name"], namespace=pod.namespace)
        deployment = await self._client.get(path)
        return (
            rollout_of_deployment(deployment) if deployment and deployment["metadata"]["uid"] == owner["uid"] else None
        )

    async def restart_deployment(self, found: DeploymentRollout, stamp: str) -> bool:
        """Like `kubectl rollout restart`; idempotent for the same timestamp. False if it is gone."""
        path = WORKLOADS["Deployment"].path(found.name, namespace=found.namespace)
        patch = {
            "metadata": {"uid": found.uid},
            "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: stamp}}}},
        }
        try:
            await self._client.request("PATCH", path, body=patch, content_type=STRATEGIC_MERGE)
        except NotFound:
            return False
        return True


def rollout_of_deployment(deployment: Json) -> DeploymentRollout:
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"].get("metadata") or {}
    replicas = spec.get("replicas", 1)
    return DeploymentRollout(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        replicas=replicas,
        surges=_is_surge_first(spec, replicas),
        restarted_at=(template.get("annotations") or {}).get(RESTARTED_AT, ""),
        min_ready_seconds=spec.get("minReadySeconds") or 0,
    )


def _is_surge_first(spec: Json, replicas: int) -> bool:
    """Whether the old pod stays until the new pod is Ready, which requires that no pod may be unavailable.

    As in the Deployment controller, percentages of maxSurge round up and those of maxUnavailable round down.
    """
    strategy = spec.get("strategy") or {}
    if spec.get("paused") or strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return False
    rolling = strategy.get("rollingUpdate") or {}
    surge = _resolve_int_or_percent(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    return surge > 0 and _resolve_int_or_percent(rolling.get("maxUnavailable", "25%"), replicas, math.floor) == 0


def _resolve_int_or_percent(value: Any, replicas: int, rounding: Any) -> int:
    text = str(value)
    return int(rounding(int(text[:-1]) * replicas / 100)) if text.endswith("%") else int(text)


TTL_SECONDS_AFTER_FINISHED: Final = 86_400
"""Kubernetes deletes a finished Job after this time, so that a worker can read the result after an outage."""
_DEADLINE_EXCEEDED: Final = "DeadlineExceeded"


class KubeJobs:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get(self, namespace: str, name: str) -> JobFact | None:
        found = await self._client.get(JOBS.path(name, namespace=namespace))
        return job_fact(found) if found else None

    async def create(self, desired: DesiredJob) -> JobFact:
        jobs = Objects(self._client, JOBS, desired.namespace)
        return job_fact(await jobs.create(build_job(desired)))


def build_job(desired: DesiredJob) -> Json:
    """The Job with the hook's pod template, extended by labels, environment and a default restartPolicy."""
    template: Json = dict(desired.template)
    metadata: Json = dict(template.get("metadata") or {})
    spec: Json = {"restartPolicy": "Never", **_mapping_or_empty(template.get("spec"))}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            spec[kind] = [_with_environment(one, desired.env) for one in spec[kind]]
    metadata["labels"] = {**(metadata.get("labels") or {}), **desired.labels}
    return {
        "metadata": {
            "name": desired.name,
            "namespace": desired.namespace,
            "labels": dict(desired.labels),
            "annotations": {HOOK_KEY: desired.key},
        },
        "spec": {
            "backoffLimit": desired.retries,
            "activeDeadlineSeconds": desired.seconds,
            "ttlSecondsAfterFinished": TTL_SECONDS_AFTER_FINISHED,
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
            outcome = "timed out" if reason == _DEADLINE_EXCEEDED else "failed"
            return JobFact.model_validate({"key": key, "outcome": outcome, "why": f"{reason}: {message}"})
    return JobFact(key=key)


def _with_environment(container: Mapping[str, Any], env: Mapping[str, str]) -> Json:
    """Add variables; the container's own values take precedence."""
    own = list(container.get("env") or ())
    names = {one.get("name") for one in own}
    return {**container, "env": [*({"name": key, "value": env[key]} for key in env if key not in names), *own]}


def _mapping_or_empty(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
