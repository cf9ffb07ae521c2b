"""Launch templates and instance profiles go when nobody uses them, each by itself."""

from datetime import UTC, datetime, timedelta

from tenure.model.errors import Forbidden
from tenure.model.garbage_collection import InventoryInstanceProfile, InventoryLaunchTemplate
from tests.unit.activities.builders import FakeCluster, run_collection


def add_template(cluster: FakeCluster, name: str, *, pool: str = "pool", age: float = 3600) -> None:
    made = datetime.now(UTC) - timedelta(seconds=age)
    cluster.orphaned_resources.existing_templates[name] = InventoryLaunchTemplate(
        id=name, name=f"karpenter.k8s.aws/{name}", created=made, pool=pool, node_class="default"
    )


def add_profile(cluster: FakeCluster, name: str, *, age: float = 7200) -> None:
    made = datetime.now(UTC) - timedelta(seconds=age)
    cluster.orphaned_resources.existing_profiles[name] = InventoryInstanceProfile(
        name=name, node_class_uid="uid-default", created=made
    )


async def test_templates_that_nobody_launches_with_go(cluster: FakeCluster) -> None:
    add_template(cluster, "lt-running")
    cluster.add_instance("i-1", template="lt-running")
    add_template(cluster, "lt-young", age=600)
    add_template(cluster, "lt-old")
    add_template(cluster, "lt-buying", pool="default")
    cluster.add_nodeclaim("buys")
    done = await run_collection(cluster.aws.collect_launch_templates)
    assert sorted(cluster.orphaned_resources.existing_templates) == ["lt-buying", "lt-running", "lt-young"]
    assert (done.checked, done.collected) == (4, 1)


async def test_a_template_that_may_not_be_deleted_hurts_no_other(cluster: FakeCluster) -> None:
    add_template(cluster, "lt-1")
    add_template(cluster, "lt-2")
    cluster.orphaned_resources.faults["delete_template"] = [Forbidden("not allowed")]
    done = await run_collection(cluster.aws.collect_launch_templates)
    assert (done.collected, done.failed, len(cluster.orphaned_resources.existing_templates)) == (1, 1, 1)


async def test_profiles_that_nobody_has_go(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default")
    add_profile(cluster, "old-role")
    add_profile(cluster, "new-role", age=60)
    add_profile(cluster, "running")
    cluster.add_instance("i-1")
    cluster.instances.running["i-1"] = cluster.instances.running["i-1"].model_copy(
        update={"instance_profile": "running"}
    )
    done = await run_collection(cluster.aws.collect_instance_profiles)
    assert sorted(cluster.orphaned_resources.existing_profiles) == ["new-role", "running"]
    assert (done.checked, done.collected) == (3, 1)


async def test_a_world_without_leftovers_is_not_asked_for_more(cluster: FakeCluster) -> None:
    cluster.instances.faults["list_managed"] = [Forbidden("never asked")]
    assert (await run_collection(cluster.aws.collect_launch_templates)).checked == 0
    assert (await run_collection(cluster.aws.collect_instance_profiles)).checked == 0
