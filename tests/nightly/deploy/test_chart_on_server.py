"""The charts in front of the real API server: all that they render is taken, by dry run, and pods are admitted."""

from asyncio import to_thread
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import ApiError
from tenure.sandbox.kube_client import KubeApi
from tests.nightly.deploy.charts import (
    ALL_VALUES,
    BUILD_SECONDS,
    CHART,
    CLOUD_VALUES,
    CRD_CHART,
    LEAST_VALUES,
    Document,
    render_chart,
    render_crds,
    run_helm,
    single_document,
)

pytestmark = pytest.mark.timeout(BUILD_SECONDS)
APPLY = "application/apply-patch+yaml"
NAMESPACE = "chart"
NAMED = {"name": "worker", "namespace": NAMESPACE}
OPERATORS = (("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules"))


def permissive_crd(kind: str, plural: str) -> Document:
    """A kind of the Prometheus operator, which is not part of a cluster: here any object will do."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    group = "monitoring.coreos.com"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest_asyncio.fixture(scope="module")
async def api(sandbox: Sandbox) -> AsyncIterator[KubeApi]:
    """As admin, with a namespace as strict as Kubernetes has them, and what it takes for the operator's kinds."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    made = [namespace, *(permissive_crd(*one) for one in OPERATORS)]
    async with sandbox.cluster.client() as client:
        for document in made:
            await apply(client, document, dry_run=False)
        try:
            yield client
        finally:
            for document in made:
                await client.request("DELETE", await client.path_of(document))


async def apply(api: KubeApi, document: Document, *, dry_run: bool = True) -> Any:
    query = "fieldManager=helm&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
    return await api.request("PATCH", f"{await api.path_of(document)}?{query}", document, APPLY)


@pytest.mark.parametrize("values", [LEAST_VALUES, CLOUD_VALUES, ALL_VALUES], ids=lambda path: path.stem)
async def test_the_server_takes_all_that_the_chart_renders(api: KubeApi, values: Path) -> None:
    documents = render_chart(values, namespace=NAMESPACE)
    assert len(documents) > 14
    for document in documents:
        response = await apply(api, document)
        assert response["metadata"]["name"] == document["metadata"]["name"]


@pytest.mark.parametrize("values", [LEAST_VALUES, CLOUD_VALUES, ALL_VALUES], ids=lambda path: path.stem)
async def test_its_pods_are_admitted_where_pod_security_is_restricted(api: KubeApi, values: Path) -> None:
    documents = render_chart(values, namespace=NAMESPACE)
    template = single_document(documents, "Deployment")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": template["metadata"] | NAMED}
    account = await apply(api, single_document(documents, "ServiceAccount"), dry_run=False)
    response = await apply(api, pod)
    assert response["spec"]["securityContext"]["runAsNonRoot"]
    # The level is really held: the same pod as root is refused.
    pod["spec"]["securityContext"]["runAsNonRoot"] = False
    with pytest.raises(ApiError, match="violates PodSecurity"):
        await apply(api, pod)
    await api.request("DELETE", await api.path_of(account))


async def test_the_server_takes_the_kinds(api: KubeApi) -> None:
    for document in render_crds():
        await apply(api, document)


async def test_a_release_comes_says_what_is_next_and_goes(api: KubeApi, sandbox: Sandbox) -> None:
    there = ("--kubeconfig", str(sandbox.cluster.kubeconfig), "--namespace", NAMESPACE)
    # That namespace is the world's already.
    value_flags = ("--values", str(ALL_VALUES), "--set", "hooks.createNamespace=false")
    installed = await to_thread(run_helm, "install", "nodes", CHART, *there, *value_flags)
    assert installed.returncode == 0, installed.stderr
    assert f"kubectl -n {NAMESPACE} exec deploy/nodes -- tenure doctor" in installed.stdout
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/nodes"
    assert (await api.request("GET", deployment))["spec"]["replicas"] == 3
    went = await to_thread(run_helm, "uninstall", "nodes", *there, "--wait")
    assert went.returncode == 0, went.stderr
    with pytest.raises(ApiError, match="404"):
        await api.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodes")


async def test_kinds_that_are_there_are_taken_over_and_stay_when_their_chart_goes(
    api: KubeApi, sandbox: Sandbox
) -> None:
    there = ("--kubeconfig", str(sandbox.cluster.kubeconfig), "--namespace", NAMESPACE)
    rejected = await to_thread(run_helm, "install", "kinds", CRD_CHART, *there)
    assert "cannot be imported into the current release" in rejected.stderr
    upgraded = await to_thread(run_helm, "upgrade", "--install", "kinds", CRD_CHART, *there, "--take-ownership")
    assert upgraded.returncode == 0, upgraded.stderr
    went = await to_thread(run_helm, "uninstall", "kinds", *there)
    assert went.returncode == 0, went.stderr
    for kind in render_crds():
        found = await api.request("GET", await api.path_of(kind))
        assert "deletionTimestamp" not in found["metadata"]
