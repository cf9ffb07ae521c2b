"""Adapters on the sandbox's real API server with the worker's shipped rights, and an admin client to arrange tests."""

import uuid
from collections.abc import AsyncIterator, Callable

import pytest

from deploy.resources import OPTIONAL_RBAC, rbac_documents
from tenure.kube.adapters.build import KubeAdapters, connect_all
from tenure.kube.client.client import KubeClient, connect
from tests.support.product.shared_sandbox import SharedSandbox

RBAC_API = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="session")
async def kube(shared_sandbox: SharedSandbox) -> AsyncIterator[KubeAdapters]:
    adapters = await connect_all(str(shared_sandbox.service_account_kubeconfig("tenure", "tenure")))
    yield adapters
    await adapters.close()


@pytest.fixture(scope="session")
async def admin(shared_sandbox: SharedSandbox) -> AsyncIterator[KubeClient]:
    client = await connect(str(shared_sandbox.kubeconfig))
    yield client
    await client.close()


@pytest.fixture(scope="session")
async def kube_with_optional_rights(shared_sandbox: SharedSandbox, admin: KubeClient) -> AsyncIterator[KubeAdapters]:
    """A separate ServiceAccount with the rights of all settings; the worker's keeps the shipped ones."""
    name = f"optional-rights-{uuid.uuid4().hex[:8]}"
    roles = {one["metadata"]["name"]: one for one in rbac_documents(OPTIONAL_RBAC) if one["kind"] == "ClusterRole"}
    del roles["tenure-admin"]  # For users, not for the worker.
    role = {"metadata": {"name": name}, "rules": [rule for one in roles.values() for rule in one["rules"]]}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    await admin.request("POST", "/api/v1/namespaces/default/serviceaccounts", body={"metadata": {"name": name}})
    await admin.request("POST", f"{RBAC_API}/clusterroles", body=role)
    await admin.request("POST", f"{RBAC_API}/clusterrolebindings", body=binding)
    adapters = await connect_all(str(shared_sandbox.service_account_kubeconfig("default", name)))
    yield adapters
    await adapters.close()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Creates names that no other test uses."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"
