"""LifecyclePolicies on a real API server: their validation status, and the start check for a missing CRD."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tenure.apis.lifecyclepolicy import LifecyclePolicy
from tenure.controller import settings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import LIFECYCLE_POLICIES
from tenure.model.errors import BadInput
from tenure.model.operator_requests import PolicyValidation

Unique = Callable[[str], str]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


async def read(admin: KubeClient, name: str) -> LifecyclePolicy:
    return LifecyclePolicy.from_object(await admin.request("GET", LIFECYCLE_POLICIES.path(name)))


async def test_validation_is_written_once_with_worker_permissions(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("policy")
    body = {
        "apiVersion": LIFECYCLE_POLICIES.api_version,
        "kind": "LifecyclePolicy",
        "metadata": {"name": name},
        "spec": {"nodePoolSelector": {"names": [unique("nobody")]}, "launch": {"deadline": "4m"}},
    }
    created = await admin.request("POST", LIFECYCLE_POLICIES.path(), body=body)
    uid, write_status = created["metadata"]["uid"], kube.lifecycle_policies.write_validation
    rejection = PolicyValidation(rejected=True, reason="Conflict", message="with another", node_pools=("a", "b"))
    assert await write_status(name, uid, rejection, now=NOW)
    found = await read(admin, name)
    condition, ready = found.condition("ValidationSucceeded"), found.condition("Ready")
    assert condition is not None and (condition.status, condition.reason) == ("False", "Conflict")
    assert ready is not None and ready.is_false and found.status.node_pools == ("a", "b")

    assert await write_status(name, uid, rejection, now=NOW + timedelta(hours=1))
    assert (await read(admin, name)).metadata.resource_version == found.metadata.resource_version
    assert await write_status(name, uid, PolicyValidation(), now=NOW + timedelta(hours=2))
    accepted = await read(admin, name)
    assert accepted.is_true("Ready") and accepted.status.node_pools == ()

    await admin.request("DELETE", LIFECYCLE_POLICIES.path(name))
    assert not await write_status(name, uid, rejection, now=NOW)


async def test_missing_crd_is_reported_at_start(kube: KubeAdapters, monkeypatch: pytest.MonkeyPatch) -> None:
    await settings.check(kube.client, dict.fromkeys(("NodeOverlay", "CapacityBuffer"), False))
    missing = LIFECYCLE_POLICIES.__class__("tenure.sh/v1alpha1", "nosuchthings", "NoSuchThing")
    monkeypatch.setattr(resources, "LIFECYCLE_POLICIES", missing)
    with pytest.raises(BadInput, match=r"nosuchthings .* cannot be listed: .*kubectl apply -f deploy/crds"):
        await settings.check(kube.client, dict.fromkeys(("NodeOverlay", "CapacityBuffer"), False))
