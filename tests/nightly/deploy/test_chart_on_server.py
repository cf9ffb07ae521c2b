"""The charts on a real API server: a dry run accepts all documents, and their pods are admitted."""

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
    MINIMAL_VALUES,
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
    """A CRD of the Prometheus operator that accepts any object; the cluster does not have the operator."""
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
    """An admin client, with a namespace that enforces the restricted pod security level, and the operator's CRDs."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    objects = [namespace, *(permissive_crd(*one) for one in OPERATORS)]
    async with sandbox.cluster.client() as client:
        for document in objects:
            await apply(client, document, dry_run=False)
        try:
            yield client
        finally:
            for document in objects:
                await client.request("DELETE", await client.path_of(document))


async def apply(api: KubeApi, document: Document, *, dry_run: bool = True) -> Any:
    query = "fieldManager=helm&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
    return await api.request("PATCH", f"{await api.path_of(document)}?{query}", document, APPLY)


@pytest.mark.parametrize("values", [MINIMAL_VALUES, CLOUD_VALUES, ALL_VALUES], ids=lambda path: path.stem)
async def test_server_accepts_all_documents_of_the_chart(api: KubeApi, values: Path) -> None:
    documents = render_chart(values, namespace=NAMESPACE)
    assert len(documents) > 14
    for document in documents:
        response = await apply(api, document)
        assert response["metadata"]["name"] == document["metadata"]["name"]


@pytest.mark.parametrize("values", [MINIMAL_VALUES, CLOUD_VALUES, ALL_VALUES], ids=lambda path: path.stem)
async def test_pods_are_admitted_at_the_restricted_level(api: KubeApi, values: Path) -> None:
    """Except with the host's network, which that level forbids."""
    documents = render_chart(values, "--set", "hostNetwork=false", namespace=NAMESPACE)
    account = await apply(api, single_document(documents, "ServiceAccount"), dry_run=False)
    for template in (one["spec"]["template"] for one in documents if one["kind"] in ("Deployment", "Job")):
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": template["metadata"] | NAMED}
        response = await apply(api, pod)
        assert response["spec"]["securityContext"]["runAsNonRoot"]
        # The level is enforced: the same pod as root is rejected.
        pod["spec"]["securityContext"]["runAsNonRoot"] = False
        with pytest.raises(ApiError, match="violates PodSecurity"):
            await apply(api, pod)
    await api.request("DELETE", await api.path_of(account))


async def test_server_accepts_the_crds(api: KubeApi) -> None:
    for document in render_crds():
        await apply(api, document)


async def test_release_installs_prints_next_steps_and_uninstalls(api: KubeApi, sandbox: Sandbox) -> None:
    release_flags = ("--kubeconfig", str(sandbox.cluster.kubeconfig), "--namespace", NAMESPACE)
    # The sandbox already has that namespace.
    value_flags = ("--values", str(ALL_VALUES), "--set", "hooks.createNamespace=false")
    installed = await to_thread(run_helm, "install", "nodes", CHART, *release_flags, *value_flags)
    assert installed.returncode == 0, installed.stderr
    assert f"kubectl -n {NAMESPACE} exec deploy/nodes -- tenure doctor" in installed.stdout
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/nodes"
    assert (await api.request("GET", deployment))["spec"]["replicas"] == 3
    uninstalled = await to_thread(run_helm, "uninstall", "nodes", *release_flags, "--wait")
    assert uninstalled.returncode == 0, uninstalled.stderr
    with pytest.raises(ApiError, match="404"):
        await api.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodes")


async def test_existing_crds_are_adopted_and_kept_after_uninstall(api: KubeApi, sandbox: Sandbox) -> None:
    release_flags = ("--kubeconfig", str(sandbox.cluster.kubeconfig), "--namespace", NAMESPACE)
    rejected = await to_thread(run_helm, "install", "kinds", CRD_CHART, *release_flags)
    assert "cannot be imported into the current release" in rejected.stderr
    upgraded = await to_thread(run_helm, "upgrade", "--install", "kinds", CRD_CHART, *release_flags, "--take-ownership")
    assert upgraded.returncode == 0, upgraded.stderr
    uninstalled = await to_thread(run_helm, "uninstall", "kinds", *release_flags)
    assert uninstalled.returncode == 0, uninstalled.stderr
    for kind in render_crds():
        found = await api.request("GET", await api.path_of(kind))
        assert "deletionTimestamp" not in found["metadata"]
