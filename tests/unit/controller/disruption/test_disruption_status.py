"""The disruption preview: commands and ineligibility causes from a pass without side effects."""

from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.pod_verdicts import PodVerdicts
from tenure.controller.disruption.facade import DisruptionPreviewer
from tenure.model.disruption.commands import ActivePause
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tests.support.controller.builders import not_ready_tracker, pod, pool, with_binding
from tests.unit.controller.disruption import test_controller
from tests.unit.controller.disruption.test_controller import DisruptionHarness

harness = test_controller.harness


async def preview(harness: DisruptionHarness, name: str = "", *, pending_pods: bool = False) -> DisruptionStatus:
    not_ready = not_ready_tracker(harness)
    expected_pods = ExpectedPods(harness.cache, harness.nominations, not_ready)
    verdicts = PodVerdicts(harness.cache, harness.nominations, not_ready, expected_pods, lambda pool: Deadlines())
    previewer = DisruptionPreviewer(harness.cache, verdicts, harness.controller, lambda: harness.now)
    request = DisruptionPreviewRequest(cluster="east", name=name, pending_pods=pending_pods)
    return await previewer.preview_disruption(request)


async def test_preview_lists_commands_and_counts_ineligible_nodes(harness: DisruptionHarness) -> None:
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
    (replacement,) = found.commands[1].replacements
    assert replacement == "general: m.large, m.xlarge" and found.commands[1].pods == 1
    assert (found.nodes, found.eligible, found.ineligible) == (3, 2, {"PodDoNotDisrupt": 1}) and found.at == harness.now
    assert not harness.decisions and not harness.claims.found, "the preview has no side effects"


async def test_preview_includes_blockers_of_the_cluster_workflow(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    await harness.compute_disruption(blockers=(ActivePause(scope="cluster", why="audit"),))
    assert (await preview(harness)).ineligible == {"Paused": 1}


async def test_preview_of_one_node_by_node_or_nodeclaim_name(harness: DisruptionHarness) -> None:
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


async def test_preview_of_a_running_pod_shows_its_move_or_why_there_is_none(harness: DisruptionHarness) -> None:
    harness.add_node("big", "m.2xlarge", 1)
    found = await preview(harness, "default/big-0")
    assert (found.pod, found.verdicts[0].node) == ("default/big-0", "node-big")
    assert found.messages[0].startswith("it would move from node-big to a new node of NodePool general: node-big: ")
    harness.apply_objects("pods", pod("elsewhere", on="strange"))
    assert (await preview(harness, "elsewhere")).messages == ("it runs on strange, which belongs to no NodePool",)
    assert (await preview(harness, "missing")).messages == ("no NodeClaim, Node or pod has the name missing",)
    assert not (await preview(harness, "missing")).pod


async def test_preview_of_a_pending_pod_has_its_verdict_while_planning_is_blocked(harness: DisruptionHarness) -> None:
    harness.types.broken = True
    harness.apply_objects("pods", pod("waits"), pod("waits", metadata={"namespace": "shop", "uid": "other"}))
    found = await preview(harness, "waits")
    assert found.verdict and found.verdict.code == "PlanPending" and not found.blocked
    assert (found.pod, found.messages) == ("default/waits", ("1 more pods have this name: write namespace/name",))


async def test_pending_pods_that_need_attention_are_listed_without_a_plan(harness: DisruptionHarness) -> None:
    harness.types.broken = True
    harness.apply_objects("pods", pod("waits"), pod("claims", resourceClaims=[{"name": "a", "resourceClaimName": "a"}]))
    found = await preview(harness, pending_pods=True)
    assert [(one.pod, one.verdict.code) for one in found.pending_pods] == [("default/claims", "PodUnplannable")]


async def test_nodepools_that_are_not_ready_are_listed_with_pending_pods(harness: DisruptionHarness) -> None:
    raw = pool("broken")
    raw["status"]["conditions"] = [
        {"type": "ValidationSucceeded", "status": "False", "message": "spec.limits: invalid"},
        {"type": "NodeClassReady", "status": "True", "message": ""},
    ]
    harness.apply_objects("nodepools", raw)
    found = await preview(harness, pending_pods=True)
    assert found.nodepools_not_ready == {"broken": {"ValidationSucceeded": "spec.limits: invalid"}}


async def test_preview_reports_why_it_is_blocked(harness: DisruptionHarness) -> None:
    harness.types.broken = True
    harness.add_node("big", "m.2xlarge", 1)
    assert "instance types" in (await preview(harness, "big")).blocked
