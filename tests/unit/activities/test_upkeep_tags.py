"""Instances whose Node has joined get their names, once, and whoever may not be tagged stops nobody else."""

import pytest

from tenure.apis import labels
from tenure.model.errors import Forbidden, TryLater
from tests.unit.activities.upkeep_world import CLUSTER, Tidied, run

DONE = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}


@pytest.fixture
def world() -> Tidied:
    return Tidied()


def marks(world: Tidied, name: str) -> dict[str, str]:
    found: dict[str, str] = world.claims.found[name]["metadata"]["annotations"]
    return found


async def test_only_what_is_absent_is_written_and_only_once(world: Tidied) -> None:
    world.claim("a", world.instance("i-1"), node="node-a")
    world.claim("b", world.instance("i-2", claim="b", Name="a person's"), node="node-b")
    first = await run(world.tags.tag_instances)
    assert world.leftovers.tagged == {"i-1": {labels.TAG_NAME: "node-a", labels.TAG_NODECLAIM: "a"}}
    assert marks(world, "a") == marks(world, "b") == DONE
    assert (first.looked_at, first.collected) == (2, 1)
    assert (await run(world.tags.tag_instances)).looked_at == 0


async def test_an_instance_from_before_gets_the_clusters_name(world: Tidied) -> None:
    world.claim("a", world.instance("i-1", claim="a", Name="node-a"), node="node-a")
    facts = world.found.running["i-1"]
    tags = {key: value for key, value in facts.tags.items() if key != labels.TAG_EKS_CLUSTER_NAME}
    world.found.running["i-1"] = facts.model_copy(update={"tags": tags})
    await run(world.tags.tag_instances)
    assert world.leftovers.tagged == {"i-1": {labels.TAG_EKS_CLUSTER_NAME: CLUSTER}}


async def test_one_that_may_not_be_tagged_hurts_no_other_and_is_told(world: Tidied) -> None:
    for number in range(3):
        world.claim(f"c{number}", world.instance(f"i-{number}"), node=f"node-{number}")
    world.leftovers.faults["tag"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run(world.tags.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    (refused,) = [name for name in world.claims.found if marks(world, name) != DONE]
    assert world.events.reasons(refused) == ["TaggingFailed"]


async def test_a_worker_that_may_tag_nothing_soon_stops_trying(world: Tidied) -> None:
    for number in range(50):
        world.claim(f"c{number}", world.instance(f"i-{number}"), node=f"node-{number}")
    world.leftovers.faults["tag"] = [Forbidden("not allowed")] * 50
    assert (await run(world.tags.tag_instances)).failed == 5


async def test_a_nodeclaim_that_cannot_be_read_hurts_no_other(world: Tidied) -> None:
    world.claim("odd", world.instance("i-odd"), node="node-odd")
    world.claims.found["odd"]["spec"]["requirements"] = "nonsense"
    world.claim("well", world.instance("i-well"), node="node-well")
    done = await run(world.tags.tag_instances)
    assert (done.collected, done.failed) == (2, 1)
    assert marks(world, "well") == DONE


async def test_an_instance_that_is_gone_is_not_marked_as_tagged(world: Tidied) -> None:
    world.claim("a", "aws:///a/i-gone", node="node-a")
    assert (await run(world.tags.tag_instances)).collected == 0
    assert marks(world, "a") == {}


async def test_a_mark_that_could_not_be_written_is_written_by_the_next_run(world: Tidied) -> None:
    world.claim("a", world.instance("i-1"), node="node-a")
    world.claims.faults["patch"] = [TryLater("no API server")]
    assert (await run(world.tags.tag_instances)).failed == 1
    await run(world.tags.tag_instances)
    assert marks(world, "a") == DONE
