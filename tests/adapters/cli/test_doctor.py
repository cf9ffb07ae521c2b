"""`tenure doctor` on the real parts: all sides are looked at, and what does not answer is a finding, not a crash."""

from cli.doctor import examine
from sandbox.world import Sandbox
from settings import Settings, load


def settings_of(world: Sandbox, **more: str) -> Settings:
    given = {
        "cluster-name": world.plan.cluster_name,
        "kubeconfig": str(world.kubeconfig),
        "aws-endpoint-url": world.aws_endpoint,
        "temporal-address": world.temporal_address,
        **more,
    }
    return load([part for key, value in given.items() for part in (f"--{key}", value)])


async def test_the_world_is_looked_at_from_all_sides(world: Sandbox) -> None:
    found = await examine(settings_of(world))
    assert {"cluster", "rights", "account", "permissions", "temporal"} <= {one.area for one in found}
    (rights,) = [one for one in found if one.area == "rights"]
    assert rights.level == "ok" and "system:serviceaccount:tenure:tenure" in rights.subject
    assert not [one for one in found if one.level == "problem" and one.area in ("cluster", "rights", "account")]
    assert all(one.todo for one in found if one.level != "ok")


async def test_each_side_that_does_not_answer_is_a_problem_of_its_own(world: Sandbox) -> None:
    dead = "127.0.0.1:1"
    found = await examine(
        settings_of(world, **{"temporal-address": dead, "aws-endpoint-url": f"http://{dead}", "kubeconfig": "/no/such"})
    )
    assert {one.area for one in found if one.level == "problem"} == {"cluster", "account", "temporal"}
