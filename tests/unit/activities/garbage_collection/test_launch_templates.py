"""Launch templates and instance profiles go when nobody uses them, each by itself."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.model.errors import Forbidden
from tenure.model.garbage_collection import InventoryInstanceProfile, InventoryLaunchTemplate
from tests.unit.activities.garbage_collection.fake_cluster import GarbageCollectionCluster, run_collection


@pytest.fixture
def fake_cluster() -> GarbageCollectionCluster:
    return GarbageCollectionCluster()


def add_template(fake_cluster: GarbageCollectionCluster, name: str, *, pool: str = "pool", age: float = 3600) -> None:
    made = datetime.now(UTC) - timedelta(seconds=age)
    fake_cluster.orphaned_resources.existing_templates[name] = InventoryLaunchTemplate(
        id=name, name=f"karpenter.k8s.aws/{name}", created=made, pool=pool, node_class="default"
    )


def add_profile(fake_cluster: GarbageCollectionCluster, name: str, *, age: float = 7200) -> None:
    made = datetime.now(UTC) - timedelta(seconds=age)
    fake_cluster.orphaned_resources.existing_profiles[name] = InventoryInstanceProfile(
        name=name, node_class_uid="uid-default", created=made
    )


async def test_templates_that_nobody_launches_with_go(fake_cluster: GarbageCollectionCluster) -> None:
    add_template(fake_cluster, "lt-running")
    fake_cluster.add_instance("i-1", template="lt-running")
    add_template(fake_cluster, "lt-young", age=600)
    add_template(fake_cluster, "lt-old")
    add_template(fake_cluster, "lt-buying", pool="default")
    fake_cluster.add_nodeclaim("buys")
    done = await run_collection(fake_cluster.launches.collect_launch_templates)
    assert sorted(fake_cluster.orphaned_resources.existing_templates) == ["lt-buying", "lt-running", "lt-young"]
    assert (done.checked, done.collected) == (4, 1)


async def test_a_template_that_may_not_be_deleted_hurts_no_other(fake_cluster: GarbageCollectionCluster) -> None:
    add_template(fake_cluster, "lt-1")
    add_template(fake_cluster, "lt-2")
    fake_cluster.orphaned_resources.faults["delete_template"] = [Forbidden("not allowed")]
    done = await run_collection(fake_cluster.launches.collect_launch_templates)
    assert (done.collected, done.failed, len(fake_cluster.orphaned_resources.existing_templates)) == (1, 1, 1)


async def test_profiles_that_nobody_has_go(fake_cluster: GarbageCollectionCluster) -> None:
    fake_cluster.node_classes.add("default")
    add_profile(fake_cluster, "old-role")
    add_profile(fake_cluster, "new-role", age=60)
    add_profile(fake_cluster, "running")
    fake_cluster.add_instance("i-1")
    fake_cluster.found.running["i-1"] = fake_cluster.found.running["i-1"].model_copy(
        update={"instance_profile": "running"}
    )
    done = await run_collection(fake_cluster.launches.collect_instance_profiles)
    assert sorted(fake_cluster.orphaned_resources.existing_profiles) == ["new-role", "running"]
    assert (done.checked, done.collected) == (3, 1)


async def test_a_world_without_leftovers_is_not_asked_for_more(fake_cluster: GarbageCollectionCluster) -> None:
    fake_cluster.found.faults["list_managed"] = [Forbidden("never asked")]
    assert (await run_collection(fake_cluster.launches.collect_launch_templates)).checked == 0
    assert (await run_collection(fake_cluster.launches.collect_instance_profiles)).checked == 0
