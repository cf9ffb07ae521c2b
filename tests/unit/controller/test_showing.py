"""What people are shown: what would be done, and what keeps a node or a pod, from a pass that changes nothing."""

from tenure.controller.disruption.facade import Showing
from tenure.model.disruption.commands import Hold
from tenure.model.operator_requests import ShowAsked, Shown
from tests.support.controller.builders import bound, pod
from tests.unit.controller import test_disrupting
from tests.unit.controller.test_disrupting import Stage

stage = test_disrupting.stage


async def show(stage: Stage, name: str = "") -> Shown:
    return await Showing(stage.caches, stage.disrupting).show(ShowAsked(cluster="east", name=name))


async def test_what_would_be_done_with_its_sums_and_what_keeps_the_others(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    stage.stand("empty", "m.large")
    stage.stand("held", "m.2xlarge", 7)
    raw = pod("held-9", on="node-held", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    stage.hear("pods", bound(raw, -3600))
    found = await show(stage)
    assert [(one.reason, one.nodes) for one in found.commands] == [
        ("Empty", ("node-empty",)),
        ("Underutilized", ("node-big",)),
    ]
    (bought,) = found.commands[1].replacements
    assert bought == "general: m.large, m.xlarge" and found.commands[1].pods == 1
    assert (found.nodes, found.eligible, found.kept) == (3, 2, {"PodDoNotDisrupt": 1}) and found.at == stage.now
    assert not stage.decided and not stage.claims.found, "nothing is done, and nobody is told"


async def test_it_shows_what_the_cluster_workflow_holds_too(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    await stage.decide(holds=(Hold(scope="cluster", why="audit"),))
    assert (await show(stage)).kept == {"Paused": 1}


async def test_one_node_by_its_name_or_that_of_its_claim(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    stage.stand("other", "m.large", 1)
    stage.hear("pods", pod("picky", on="node-other", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}))
    for name in ("big", "node-big"):
        found = await show(stage, name)
        assert [one.claim for one in found.verdicts] == ["big"] and len(found.commands) == 1
    other = await show(stage, "other")
    assert not other.commands and "PodDoNotDisrupt" in {one.cause for one in other.verdicts[0].excluded}


async def test_a_pod_says_where_it_would_go_or_what_keeps_its_node(stage: Stage) -> None:
    stage.stand("big", "m.2xlarge", 1)
    found = await show(stage, "default/big-0")
    assert (found.pod, found.verdicts[0].node) == ("default/big-0", "node-big")
    assert found.said[0].startswith("it would move from node-big to a new node of NodePool general: node-big: ")
    stage.hear("pods", pod("waits"), pod("elsewhere", on="strange"))
    assert (await show(stage, "waits")).said == ("it has no node yet",)
    assert (await show(stage, "elsewhere")).said == ("it runs on strange, which is no node of a NodePool",)
    assert (await show(stage, "nobody")).said == ("no NodeClaim, Node or pod of the name nobody is there",)
    assert not (await show(stage, "nobody")).pod


async def test_what_cannot_be_said_says_why(stage: Stage) -> None:
    stage.types.broken = True
    stage.stand("big", "m.2xlarge", 1)
    assert "instance types" in (await show(stage, "big")).blocked
