"""Plans go by what nodes have shown: of live nodes, and of those that the workflow knew."""

from collections.abc import AsyncIterator

import pytest

from tenure.model.discovered_capacity import Learnt
from tenure.model.provisioning import PlanOutcome, PlanRequest
from tests.support.controller.builders import node_class, pod, pool
from tests.unit.controller.test_learning import machine
from tests.unit.controller.test_planning import Stage
from tests.unit.scheduling.builders import COMMON

IMAGE = "ami-1"
GIB = 1 << 30


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Pods of 7 GiB: by the estimate an m.large, of 8, takes one."""
    stage = Stage()
    stage.types.kinds = [one.model_copy(update={"image_id": IMAGE}) for one in COMMON]
    stage.hear("nodepools", pool())
    stage.hear("ec2nodeclasses", node_class())
    yield stage
    await stage.planning.close()


def want(stage: Stage, name: str) -> None:
    requests = {"cpu": "1", "memory": "7Gi"}
    stage.hear("pods", pod(name, containers=[{"name": "main", "image": "none", "resources": {"requests": requests}}]))


async def plan(stage: Stage, number: int, learnt: Learnt | None = None) -> PlanOutcome:
    return await stage.planning.plan(PlanRequest(plan_id=f"plan-{number}", learnt=learnt or Learnt()))


def bought(stage: Stage) -> list[str]:
    """The cheapest type of each NodeClaim, in order of creation."""
    return [
        next(one["values"][0] for one in raw["spec"]["requirements"] if one["key"].endswith("instance-type"))
        for raw in stage.claims.found.values()
    ]


def live(stage: Stage, memory: str) -> None:
    for kind, raw in zip(("nodeclaims", "nodes"), machine("old", memory, image=IMAGE, of="m.large"), strict=True):
        stage.hear(kind, raw)


async def test_the_very_next_plan_uses_what_was_learnt(stage: Stage) -> None:
    want(stage, "first")
    await plan(stage, 1)
    live(stage, "7Gi")
    want(stage, "second")
    await plan(stage, 2)
    assert bought(stage) == ["m.large", "m.xlarge"]


async def test_live_nodes_have_taught_before_the_first_plan(stage: Stage) -> None:
    live(stage, "7Gi")
    want(stage, "first")
    await plan(stage, 1)
    assert bought(stage) == ["m.xlarge"]


async def test_a_new_host_plans_by_what_the_workflow_kept_of_nodes_that_are_gone(stage: Stage) -> None:
    want(stage, "first")
    await plan(stage, 1, Learnt(images={IMAGE: {"m.large": 7 * GIB}}))
    assert bought(stage) == ["m.xlarge"]


async def test_of_both_the_smaller_counts(stage: Stage) -> None:
    live(stage, "8Gi")
    want(stage, "first")
    await plan(stage, 1, Learnt(images={IMAGE: {"m.large": 7 * GIB}}))
    assert bought(stage) == ["m.xlarge"]
    assert stage.planning.learning.learnt.memory(IMAGE, "m.large") == 7 * GIB


async def test_a_new_planner_is_told_too(stage: Stage) -> None:
    live(stage, "7Gi")
    await stage.planning.feed()
    await stage.planning.close()
    want(stage, "first")
    await plan(stage, 1)
    assert bought(stage) == ["m.xlarge"]


async def test_a_shortfall_is_told_on_the_claim_when_its_pods_are_planned_anew(stage: Stage) -> None:
    want(stage, "first")
    await plan(stage, 1)
    (name,) = stage.claims.found
    _, node = machine(name, "7Gi", image=IMAGE, of="m.large")
    raw, _ = machine(name, image=IMAGE, of="m.large")
    requests = stage.claims.found[name]["spec"]["resources"]
    raw["spec"]["resources"] = requests
    raw["metadata"]["uid"] = f"uid-{name}"
    node["status"]["allocatable"] = {"cpu": "2", "memory": "6656Mi", "pods": "58"}
    stage.hear("nodeclaims", raw)
    stage.hear("nodes", node)
    assert stage.planning.sizes.release([name])
    outcome = await plan(stage, 2)
    assert outcome.created == 1 and bought(stage) == ["m.large", "m.xlarge"]
    assert ("SmallerThanPlanned", True) in {
        (reason, "6656Mi" in said and "7Gi" in said) for _, reason, said in stage.events.said
    }
