"""Launch templates and instance profiles go when nobody uses them, each by itself."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.model.errors import Forbidden
from tenure.model.garbage_collection import ProfileMark, TemplateMark
from tests.unit.activities.upkeep_world import Tidied, run


@pytest.fixture
def world() -> Tidied:
    return Tidied()


def template(world: Tidied, name: str, *, pool: str = "pool", age: float = 3600) -> None:
    made = datetime.now(UTC) - timedelta(seconds=age)
    world.leftovers.made_templates[name] = TemplateMark(
        id=name, name=f"karpenter.k8s.aws/{name}", created=made, pool=pool, node_class="default"
    )


def profile(world: Tidied, name: str, *, age: float = 7200) -> None:
    made = datetime.now(UTC) - timedelta(seconds=age)
    world.leftovers.made_profiles[name] = ProfileMark(name=name, node_class_uid="uid-default", created=made)


async def test_templates_that_nobody_launches_with_go(world: Tidied) -> None:
    template(world, "lt-running")
    world.instance("i-1", template="lt-running")
    template(world, "lt-young", age=600)
    template(world, "lt-old")
    template(world, "lt-buying", pool="default")
    world.claim("buys")
    done = await run(world.launches.collect_launch_templates)
    assert sorted(world.leftovers.made_templates) == ["lt-buying", "lt-running", "lt-young"]
    assert (done.looked_at, done.collected) == (4, 1)


async def test_a_template_that_may_not_be_deleted_hurts_no_other(world: Tidied) -> None:
    template(world, "lt-1")
    template(world, "lt-2")
    world.leftovers.faults["delete_template"] = [Forbidden("not allowed")]
    done = await run(world.launches.collect_launch_templates)
    assert (done.collected, done.failed, len(world.leftovers.made_templates)) == (1, 1, 1)


async def test_profiles_that_nobody_has_go(world: Tidied) -> None:
    world.node_classes.add("default")
    profile(world, "old-role")
    profile(world, "new-role", age=60)
    profile(world, "running")
    world.instance("i-1")
    world.found.running["i-1"] = world.found.running["i-1"].model_copy(update={"instance_profile": "running"})
    done = await run(world.launches.collect_profiles)
    assert sorted(world.leftovers.made_profiles) == ["new-role", "running"]
    assert (done.looked_at, done.collected) == (3, 1)


async def test_a_world_without_leftovers_is_not_asked_for_more(world: Tidied) -> None:
    world.found.faults["list_managed"] = [Forbidden("never asked")]
    assert (await run(world.launches.collect_launch_templates)).looked_at == 0
    assert (await run(world.launches.collect_profiles)).looked_at == 0
