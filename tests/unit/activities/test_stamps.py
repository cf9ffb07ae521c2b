"""Stamps of another version of the static hash are brought up to date, and no node drifts for it."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash, nodepool_hash
from tenure.model.errors import Conflict
from tenure.model.nodeclaim_requests import NodeClassAsked, PoolAsked
from tests.unit.activities.builders import Scene, performed

POOL, CLASS = PoolAsked(name="default"), NodeClassAsked(name="default")
KEYS = {
    "pool": (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION),
    "class": (labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION),
}


def stamped(scene: Scene, name: str, version: str = "v3", *, launched: bool = True, **conditions: str) -> None:
    """A NodeClaim with the hash 1 of that version, by the pool and by the class."""
    marks = {mark: value for pair in KEYS.values() for mark, value in zip(pair, ("1", version), strict=True)}
    scene.claims.add(name, annotations=marks)
    scene.claims.give(name, provider_id=f"aws:///us-west-2a/i-{name}" if launched else "", deleting=False, **conditions)


def stamp(scene: Scene, name: str, of: str) -> tuple[str, str]:
    shown: dict[str, Any] = scene.claims.found[name]["metadata"]["annotations"]
    key, version = KEYS[of]
    return shown.get(key, ""), shown.get(version, "")


def class_of_version(scene: Scene, version: str) -> None:
    meta = {"name": "default", "uid": "uid-default", "annotations": {labels.NODECLASS_HASH_VERSION: version}}
    scene.node_classes.found["default"] = EC2NodeClass.model_validate({"metadata": meta, "spec": {"role": "r"}})


async def test_claims_of_a_pool_are_stamped_anew(scene: Scene) -> None:
    scene.pools.add("default")
    stamped(scene, "a")
    stamped(scene, "b", HASH_VERSION)
    await performed(scene.pool_status.update_pool, POOL)
    assert stamp(scene, "a", "pool") == (nodepool_hash(scene.pools.found["default"]), HASH_VERSION)
    assert stamp(scene, "b", "pool") == ("1", HASH_VERSION), "one of today's version is left: it may have drifted"


async def test_a_claim_that_has_drifted_stays_so_under_the_new_version(scene: Scene) -> None:
    scene.pools.add("default")
    class_of_version(scene, "v6")
    stamped(scene, "a", Drifted="True")
    stamped(scene, "b", Drifted="False")
    await performed(scene.pool_status.update_pool, POOL)
    await performed(scene.classes.resolve_node_class, CLASS)
    for of in KEYS:
        assert stamp(scene, "a", of) == ("1", HASH_VERSION)
        assert stamp(scene, "b", of)[0] != "1"


async def test_claims_of_a_class_of_another_version_are_stamped_anew(scene: Scene) -> None:
    class_of_version(scene, "v6")
    stamped(scene, "a")
    stamped(scene, "b", launched=False)
    await performed(scene.classes.resolve_node_class, CLASS)
    assert stamp(scene, "a", "class") == (nodeclass_hash(scene.node_classes.found["default"]), HASH_VERSION)
    assert stamp(scene, "b", "class") == ("1", "v3"), "it gets its stamp with its instance"


async def test_claims_that_the_watch_found_are_stamped_though_the_class_is_up_to_date(scene: Scene) -> None:
    class_of_version(scene, HASH_VERSION)
    stamped(scene, "a")
    await performed(scene.classes.resolve_node_class, CLASS)
    assert stamp(scene, "a", "class") == ("1", "v3")
    await performed(scene.classes.resolve_node_class, CLASS.model_copy(update={"restamp": True}))
    assert stamp(scene, "a", "class")[1] == HASH_VERSION


async def test_a_claim_that_was_never_stamped_is_left_so(scene: Scene) -> None:
    scene.pools.add("default")
    scene.claims.add("a", annotations={})
    scene.claims.give("a", provider_id="aws:///us-west-2a/i-a")
    await performed(scene.pool_status.update_pool, POOL)
    await performed(scene.classes.resolve_node_class, CLASS.model_copy(update={"restamp": True}))
    assert scene.claims.found["a"]["metadata"]["annotations"] == {}


async def test_the_pool_shows_the_new_version_only_after_its_claims_do(scene: Scene) -> None:
    scene.pools.add("default")
    stamped(scene, "a")
    scene.claims.faults["patch"] = [Conflict("somebody wrote")]
    with pytest.raises(ApplicationError):
        await performed(scene.pool_status.update_pool, POOL)
    assert scene.pools.statuses == {}
    await performed(scene.pool_status.update_pool, POOL)
    assert stamp(scene, "a", "pool")[1] == HASH_VERSION and scene.pools.statuses != {}
