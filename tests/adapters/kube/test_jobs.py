"""Jobs of hooks under the worker's rights: their manifest, their outcome, and one Job per name."""

from collections.abc import Callable
from typing import Any

import pytest

from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.workloads import TTL_SECONDS_AFTER_FINISHED, build_job, job_fact
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import JOBS
from tenure.model.errors import BadInput, Forbidden
from tenure.model.hooks import HOOK_KEY, HOOK_NODE, NAMESPACE, DesiredJob, JobFact

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "snapshot"}},
    "spec": {
        "initContainers": [{"name": "init", "image": "snapshot:1"}],
        "containers": [{"name": "main", "image": "snapshot:1", "env": [{"name": "TENURE_NODE", "value": "mine"}]}],
        "serviceAccountName": "snapshots",
    },
}


def desired_job(**fields: Any) -> DesiredJob:
    defaults: dict[str, Any] = {
        "namespace": NAMESPACE,
        "name": "snapshot-0123456789",
        "key": "uid-a-beforeDrain-snapshot",
        "labels": {HOOK_NODE: "node-a"},
        "env": {"TENURE_NODE": "node-a", "TENURE_POINT": "beforeDrain"},
        "template": TEMPLATE,
        "retries": 2,
        "seconds": 180,
    }
    return DesiredJob.model_validate({**defaults, **fields})


def finished_job(kind: str, reason: str = "", message: str = "", status: str = "True") -> JobFact:
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    meta = {"annotations": {HOOK_KEY: "uid-a-beforeDrain-snapshot"}}
    return job_fact({"metadata": meta, "status": {"conditions": [condition]}})


def test_job_has_its_template_and_owner_labels() -> None:
    job = build_job(desired_job())
    spec, pods = job["spec"], job["spec"]["template"]
    assert job["metadata"]["annotations"] == {HOOK_KEY: "uid-a-beforeDrain-snapshot"}
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (
        2,
        180,
        TTL_SECONDS_AFTER_FINISHED,
    )
    assert job["metadata"]["labels"] == {HOOK_NODE: "node-a"}
    assert pods["metadata"]["labels"] == {"app": "snapshot", HOOK_NODE: "node-a"}
    assert (pods["spec"]["restartPolicy"], pods["spec"]["serviceAccountName"]) == ("Never", "snapshots")


def test_containers_get_node_variables_and_keep_their_own() -> None:
    spec = build_job(desired_job())["spec"]["template"]["spec"]
    environments = [
        {one["name"]: one["value"] for one in spec[kind][0]["env"]} for kind in ("initContainers", "containers")
    ]
    assert environments == [
        {"TENURE_NODE": "node-a", "TENURE_POINT": "beforeDrain"},
        {"TENURE_NODE": "mine", "TENURE_POINT": "beforeDrain"},
    ]
    assert TEMPLATE["spec"]["initContainers"] == [{"name": "init", "image": "snapshot:1"}], "the template was modified"


def test_job_outcome_is_read_from_its_conditions() -> None:
    key = "uid-a-beforeDrain-snapshot"
    assert finished_job("Complete") == JobFact(key=key, outcome="succeeded")
    assert finished_job("Failed", "BackoffLimitExceeded", "it failed").outcome == "failed"
    assert finished_job("Failed", "DeadlineExceeded", "too long") == JobFact(
        key=key, outcome="timed out", why="DeadlineExceeded: too long"
    )
    assert finished_job("Complete", status="False").outcome is None and finished_job("FailureTarget").outcome is None
    assert job_fact({"metadata": {}}) == JobFact(key="")


async def test_job_is_created_once_per_name(
    kube: KubeAdapters, admin: KubeClient, unique: Callable[[str], str]
) -> None:
    name = unique("snapshot")
    assert await kube.jobs.get(NAMESPACE, name) is None
    assert await kube.jobs.create(desired_job(name=name)) == JobFact(key="uid-a-beforeDrain-snapshot")
    uid = (await admin.request("GET", JOBS.path(name, namespace=NAMESPACE)))["metadata"]["uid"]
    repeated = await kube.jobs.create(desired_job(name=name, key="another"))
    assert repeated == await kube.jobs.get(NAMESPACE, name) == JobFact(key="uid-a-beforeDrain-snapshot")
    assert (await admin.request("GET", JOBS.path(name, namespace=NAMESPACE)))["metadata"]["uid"] == uid
    await admin.request("DELETE", JOBS.path(name, namespace=NAMESPACE), params={"propagationPolicy": "Background"})


async def test_rejection_has_the_message_of_the_api_server(kube: KubeAdapters, unique: Callable[[str], str]) -> None:
    broken = {"spec": {"containers": [{"name": "main"}]}}
    with pytest.raises(BadInput, match="image: Required value"):
        await kube.jobs.create(desired_job(name=unique("snapshot"), template=broken))
    with pytest.raises(Forbidden):
        await kube.jobs.create(desired_job(name=unique("snapshot"), namespace="default"))
