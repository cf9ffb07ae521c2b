"""NodeOverlays on a real API server: which are accepted, and their validation status."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from tenure.apis.nodeoverlay import NodeOverlay
from tenure.controller import settings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.resources import NODE_OVERLAYS
from tenure.kube.facts.objects import overlay_fact
from tests.support.apis.crd_rows import NODEOVERLAY

Unique = Callable[[str], str]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


async def read(admin: KubeClient, name: str) -> NodeOverlay:
    return NodeOverlay.from_object(await admin.request("GET", NODE_OVERLAYS.path(name)))


async def test_rejected_overlay_is_ignored_until_its_spec_changes(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("overlay")
    spec = {"requirements": [], "priceAdjustment": "-10%", "capacity": {"example.com/fuse": "2"}, "weight": 3}
    created = await admin.request("POST", NODE_OVERLAYS.path(), body=overlay_json(name, spec))
    (fact,) = [one for one in await kube.overlays.list_accepted() if one.name == name]
    assert (fact.adjustment, fact.capacity, fact.weight) == ("-10%", {"example.com/fuse": 2}, 3)
    assert fact.uid == created["metadata"]["uid"]

    assert await kube.overlays.write_validation(name, fact.uid, reason="Conflict", message="with another", now=NOW)
    rejected = await read(admin, name)
    condition = rejected.condition("ValidationSucceeded")
    assert condition is not None and (condition.status, condition.reason) == ("False", "Conflict")
    ready = rejected.condition("Ready")
    assert ready is not None and ready.is_false
    assert name not in {one.name for one in await kube.overlays.list_accepted()}

    assert await kube.overlays.write_validation(
        name, fact.uid, reason="Conflict", message="with another", now=NOW + timedelta(hours=1)
    )
    assert (await read(admin, name)).metadata.resource_version == rejected.metadata.resource_version

    await admin.merge(NODE_OVERLAYS.path(name), {"spec": {"weight": 4}})
    assert name in {one.name for one in await kube.overlays.list_accepted()}
    assert await kube.overlays.write_validation(name, fact.uid, now=NOW + timedelta(hours=2))
    assert (await read(admin, name)).is_true("Ready")

    await admin.request("DELETE", NODE_OVERLAYS.path(name))
    assert not await kube.overlays.write_validation(name, fact.uid, now=NOW)


async def test_invalid_overlay_is_never_accepted(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> None:
    name = unique("overlay")
    spec = {"requirements": [], "capacity": {"example.com/fuse": "-1"}}
    try:
        await admin.request("POST", NODE_OVERLAYS.path(), body=overlay_json(name, spec))
        assert name not in {one.name for one in await kube.overlays.list_accepted()}
    finally:
        await admin.request("DELETE", NODE_OVERLAYS.path(name))


async def test_worker_rights_suffice_for_every_feature_gate(kube: KubeAdapters) -> None:
    await settings.check(kube.client, {"NodeOverlay": True, "CapacityBuffer": True})


def test_invalid_quantity_is_a_problem_of_the_overlay() -> None:
    fact = overlay_fact(overlay_json("o", {"requirements": [], "capacity": {"a.b/c": "1 MB"}}, uid="u"))
    assert fact.problem.startswith("spec.capacity: a.b/c: '1 MB' is not a quantity")


def overlay_json(name: str, spec: Mapping[str, object], **metadata: str) -> Json:
    return NODEOVERLAY | {"metadata": {"name": name, **metadata}, "spec": spec}
