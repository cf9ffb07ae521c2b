"""NodeClaims on a real API server: every write is idempotent, sends few requests, and survives a conflict."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest

from tenure.apis.labels import TERMINATION_FINALIZER
from tenure.apis.nodeclaim import NodeClaim
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.errors import BadInput
from tenure.model.provider_results import ConditionPatch
from tests.support.kube.builders import claim_json

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
Unique = Callable[[str], str]


async def create_nodeclaim(kube: KubeAdapters, name: str) -> NodeClaim:
    return await kube.claims.create(NodeClaim.from_object(claim_json(name)))


@pytest.fixture
async def claim(kube: KubeAdapters, unique: Unique) -> AsyncIterator[NodeClaim]:
    created = await create_nodeclaim(kube, unique("claim"))
    yield created
    await kube.claims.delete(created.name, created.uid)


async def test_repeated_create_returns_the_existing_nodeclaim(kube: KubeAdapters, unique: Unique) -> None:
    name = unique("claim")
    first = await create_nodeclaim(kube, name)
    second = await create_nodeclaim(kube, name)
    assert first.uid and second.uid == first.uid
    assert await kube.claims.delete(name, first.uid)


async def test_rejection_names_the_object_and_the_field(kube: KubeAdapters, unique: Unique) -> None:
    name = unique("claim")
    invalid = claim_json(name, requirements=[{"key": "kubernetes.io/arch", "operator": "Maybe"}])
    with pytest.raises(BadInput, match=rf"{name}.*requirements"):
        await kube.claims.create(NodeClaim.from_object(invalid))


async def test_launch_is_written_with_two_calls_and_repeats_change_nothing(
    kube: KubeAdapters, claim: NodeClaim
) -> None:
    launched = ConditionPatch(type="Launched", status="True")
    status = {"providerID": "aws:///us-west-2a/i-1", "capacity": {"cpu": "2", "pods": "29"}}
    before = kube.client.calls
    patched = await kube.claims.patch(
        claim.name, claim.uid, default_labels={"a": "b"}, status=status, conditions=(launched,), now=NOW
    )
    assert kube.client.calls - before == 2
    assert patched is not None and patched.metadata.labels["a"] == "b"
    assert patched.status.provider_id == "aws:///us-west-2a/i-1"
    assert patched.is_true("Launched") and not patched.is_true("Ready")
    version = patched.metadata.resource_version
    repeated = await kube.claims.patch(
        claim.name,
        claim.uid,
        default_labels={"a": "b"},
        status=status,
        conditions=(launched,),
        now=NOW + timedelta(hours=1),
    )
    assert repeated is not None and repeated.metadata.resource_version == version


async def test_existing_label_is_not_changed_by_a_default(kube: KubeAdapters, claim: NodeClaim) -> None:
    zone = "topology.kubernetes.io/zone"
    await kube.claims.patch(claim.name, claim.uid, default_labels={zone: "us-west-2a"}, now=NOW)
    patched = await kube.claims.patch(claim.name, claim.uid, default_labels={zone: "us-west-2b", "a": "b"}, now=NOW)
    assert patched is not None
    assert (patched.metadata.labels[zone], patched.metadata.labels["a"]) == ("us-west-2a", "b")


async def test_map_in_the_status_is_replaced(kube: KubeAdapters, claim: NodeClaim) -> None:
    for capacity in ({"cpu": "2", "pods": "29"}, {"cpu": "4"}):
        await kube.claims.patch(claim.name, claim.uid, status={"capacity": capacity}, now=NOW)
    found = await kube.claims.get(claim.name)
    assert found is not None and found.status.capacity == {"cpu": "4"}


async def test_concurrent_write_of_another_client_is_kept(
    kube: KubeAdapters, admin: KubeClient, claim: NodeClaim
) -> None:
    path = NODE_CLAIMS.path(claim.name)
    await admin.merge(path, {"metadata": {"annotations": {"theirs": "kept"}}})
    patched = await kube.claims.patch(
        claim.name, claim.uid, conditions=(ConditionPatch(type="Registered", status="True"),), now=NOW
    )
    assert patched is not None and patched.is_true("Registered")
    assert patched.metadata.annotations["theirs"] == "kept"


async def test_concurrent_writers_lose_no_change(kube: KubeAdapters, admin: KubeClient, claim: NodeClaim) -> None:
    """The server rejects a late write with 409; the writer then applies its change to the new version."""
    replicas = [kube, *(KubeAdapters(kube.client) for _ in range(3))]
    for one in replicas:
        assert await one.claims.get(claim.name) is not None
    responses = await asyncio.gather(
        *(
            one.claims.patch(claim.name, claim.uid, annotations={f"writer-{number}": "was-here"}, now=NOW)
            for number, one in enumerate(replicas)
        )
    )
    assert all(responses)
    found = await kube.claims.get(claim.name)
    assert found is not None and set(found.metadata.annotations) >= {f"writer-{n}" for n in range(len(replicas))}


async def test_removed_condition_does_not_affect_ready(kube: KubeAdapters, claim: NodeClaim) -> None:
    drifted = ConditionPatch(type="Drifted", status="True", reason="AMIDrift", message="an old image")
    patched = await kube.claims.patch(claim.name, claim.uid, conditions=(drifted,), now=NOW)
    assert patched is not None and patched.is_true("Drifted")
    other = drifted.model_copy(update={"reason": "SubnetDrift"})
    repeated = await kube.claims.patch(claim.name, claim.uid, conditions=(other,), now=NOW + timedelta(hours=1))
    assert repeated is not None
    before, after = patched.condition("Drifted"), repeated.condition("Drifted")
    assert before is not None and after is not None and after.reason == "SubnetDrift"
    assert before.last_transition_time == after.last_transition_time, "the time changes only with the status"
    removed = ConditionPatch(type="Drifted", status="")
    for _ in range(2):
        remaining = await kube.claims.patch(claim.name, claim.uid, conditions=(removed,), now=NOW)
        assert (
            remaining is not None
            and remaining.condition("Drifted") is None
            and remaining.condition("Ready") is not None
        )


async def test_nodeclaim_with_another_uid_is_not_changed(kube: KubeAdapters, claim: NodeClaim) -> None:
    assert await kube.claims.patch(claim.name, "other-uid", default_labels={"a": "b"}, now=NOW) is None
    assert not await kube.claims.ensure_finalizer(claim.name, "other-uid")
    assert not await kube.claims.delete(claim.name, "other-uid")
    assert not await kube.claims.release(claim.name, "other-uid")
    found = await kube.claims.get(claim.name)
    assert found is not None and "a" not in found.metadata.labels


async def test_finalizer_keeps_a_deleted_nodeclaim_until_released(kube: KubeAdapters, claim: NodeClaim) -> None:
    assert await kube.claims.ensure_finalizer(claim.name, claim.uid)
    assert await kube.claims.delete(claim.name, claim.uid)
    deleting = await kube.claims.get(claim.name)
    assert deleting is not None and deleting.metadata.is_deleting
    assert deleting.metadata.finalizers == (TERMINATION_FINALIZER,)
    assert await kube.claims.release(claim.name, claim.uid)
    assert await kube.claims.get(claim.name) is None
    assert not await kube.claims.release(claim.name, claim.uid)
    assert not await kube.claims.delete(claim.name, claim.uid)


async def test_nodeclaims_are_listed_by_label(kube: KubeAdapters, claim: NodeClaim) -> None:
    await kube.claims.patch(claim.name, claim.uid, default_labels={"listed": claim.name}, now=NOW)
    assert [one.name for one in await kube.claims.list(labels={"listed": claim.name})] == [claim.name]


async def test_labels_are_patched_once_and_only_on_this_nodeclaim(
    kube: KubeAdapters, unique: Unique, claim: NodeClaim
) -> None:
    await kube.claims.patch(claim.name, claim.uid, default_labels={"a": "1", "b": "2", "c": "3"}, now=NOW)
    changes = {"a": "9", "b": None, "new": "x", "never": None}
    assert await kube.claims.patch_labels(claim.name, claim.uid, changes)
    found = await kube.claims.get(claim.name)
    assert found is not None
    current = found.metadata.labels
    assert (current["a"], current["c"], current["new"]) == ("9", "3", "x")
    assert not {"b", "never"} & current.keys()
    before = kube.client.calls
    assert await kube.claims.patch_labels(claim.name, claim.uid, changes)
    reread = await kube.claims.get(claim.name)
    assert reread is not None and reread.metadata.resource_version == found.metadata.resource_version
    assert kube.client.calls - before <= 2
    assert not await kube.claims.patch_labels(claim.name, "00000000-0000-0000-0000-00000000dead", changes)
    assert not await kube.claims.patch_labels(unique("nobody"), claim.uid, changes)
