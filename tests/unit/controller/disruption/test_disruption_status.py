"""What people are shown: what would be done, and what keeps a node or a pod, from a pass that changes nothing."""

from tenure.controller.disruption.facade import DisruptionPreviewer
from tenure.model.disruption.commands import ActivePause
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tests.support.controller.builders import pod, with_binding
from tests.unit.controller.disruption import test_controller
from tests.unit.controller.disruption.test_controller import DisruptionHarness

harness = test_controller.harness


async def preview(harness: DisruptionHarness, name: str = "") -> DisruptionStatus:
    return await DisruptionPreviewer(harness.cache, harness.controller).preview_disruption(
        DisruptionPreviewRequest(cluster="east", name=name)
    )


async def test_what_would_be_done_with_its_sums_and_what_keeps_the_others(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    harness.add_node("empty", "m.large")
    harness.add_node("held", "m.2xlarge", 7)
    raw = pod("held-9", on="node-held", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    harness.apply_objects("pods", with_binding(raw, -3600))
    found = await preview(harness)
    assert [(one.reason, one.nodes) for one in found.commands] == [
        ("Empty", ("node-empty",)),
        ("Underutilized", ("node-big",)),
    ]
    (bought,) = found.commands[1].replacements
    assert bought == "general: m.large, m.xlarge" and found.commands[1].pods == 1
    assert (found.nodes, found.eligible, found.ineligible) == (3, 2, {"PodDoNotDisrupt": 1}) and found.at == harness.now
    assert not harness.decisions and not harness.claims.found, "nothing is done, and nobody is told"


async def test_it_shows_what_the_cluster_workflow_holds_too(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    await harness.compute_disruption(blockers=(ActivePause(scope="cluster", why="audit"),))
    assert (await preview(harness)).ineligible == {"Paused": 1}


async def test_one_node_by_its_name_or_that_of_its_claim(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    harness.add_node("other", "m.large", 1)
    harness.apply_objects(
        "pods", pod("picky", on="node-other", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    )
    for name in ("big", "node-big"):
        found = await preview(harness, name)
        assert [one.claim for one in found.verdicts] == ["big"] and len(found.commands) == 1
    other = await preview(harness, "other")
    assert not other.commands and "PodDoNotDisrupt" in {one.cause for one in other.verdicts[0].excluded}


async def test_a_pod_says_where_it_would_go_or_what_keeps_its_node(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    found = await preview(harness, "default/big-0")
    assert (found.pod, found.verdicts[0].node) == ("default/big-0", "node-big")
    assert found.messages[0].startswith("it would move from node-big to a new node of NodePool general: node-big: ")
    harness.apply_objects("pods", pod("waits"), pod("elsewhere", on="strange"))
    assert (await preview(harness, "waits")).messages == ("it has no node yet",)
    assert (await preview(harness, "elsewhere")).messages == ("it runs on strange, which is no node of a NodePool",)
    assert (await preview(harness, "nobody")).messages == ("no NodeClaim, Node or pod has the name nobody",)
    assert not (await preview(harness, "nobody")).pod


async def test_what_cannot_be_said_says_why(harness: DisruptionHarness) -> None:
    harness.types.broken = True
    harness.add_node("big", "m.2xlarge", 1)
    assert "instance types" in (await preview(harness, "big")).blocked
