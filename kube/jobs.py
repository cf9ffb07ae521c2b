"""Jobs that hooks make. Satisfies `activities.hook_ports.Jobs`."""

from collections.abc import Mapping
from typing import Any, Final

from kube.client import KubeClient
from kube.errors import Json
from kube.objects import Objects
from kube.resources import JOBS
from model.hooks import HOOK_KEY, JobFact, JobWanted

KEPT: Final = 86_400
"""Seconds after its end until Kubernetes removes a Job: long enough for a worker that was away to see how it ended."""
_LATE: Final = "DeadlineExceeded"


class KubeJobs:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get(self, namespace: str, name: str) -> JobFact | None:
        found = await self._client.get(JOBS.path(name, namespace=namespace))
        return job_fact(found) if found else None

    async def create(self, wanted: JobWanted) -> JobFact:
        jobs = Objects(self._client, JOBS, wanted.namespace)
        return job_fact(await jobs.create(job(wanted)))


def job(wanted: JobWanted) -> Json:
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
