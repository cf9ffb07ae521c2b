"""Query results with explanations, so that the CLI needs no knowledge of workflow states."""

from tenure.cli.nodes.why import query_explanation
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.nodeclaim.history import NodeClaimExplanation, Phase
from tenure.model.observations import ObservedNodePool
from tenure.model.signals import Pause
from tenure.policy.lifecycle.pauses import normalize_pause, write_pause
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import wait_until
from tests.support.workflows.nodeclaim_workflows import BUSY, pause_for, ready_nodeclaim, start_nodepool
from tests.unit.workflows.phases.test_drift_status import OLD_IMAGE
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow


async def test_node_explanation_has_phases_pause_and_drift(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    pause = await pause_for(fake, hours=1)
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)

    async def drifted() -> bool:
        explanation: NodeClaimExplanation = await handle.query("explain", result_type=NodeClaimExplanation)
        return explanation.drift.startswith("AMIDrift: m6i.large runs ami-1; ")

    await wait_until(drifted)
    explanation: NodeClaimExplanation = await handle.query("explain", result_type=NodeClaimExplanation)
    assert [one.phase for one in explanation.steps] == [
        Phase.LAUNCH,
        Phase.REGISTRATION,
        Phase.INITIALIZATION,
        Phase.READY,
    ]
    assert explanation.paused.startswith("is paused by ops@example.com until ")
    assert (explanation.drain, explanation.not_ready, explanation.events) == ((), "", ())


async def test_nodepool_reports_its_own_and_cluster_pause(fake: WorkerHarness) -> None:
    handle = await start_nodepool(fake)
    assert await handle.query("pauses", result_type=list[str]) == []
    pause: Pause = normalize_pause(await pause_for(fake, hours=1))
    await handle.execute_update(NodePoolWorkflow.pause, pause)
    [own] = await handle.query("pauses", result_type=list[str])
    assert own.startswith("NodePool default is paused by ops@example.com until ")
    await handle.signal(
        NodePoolWorkflow.observe, ObservedNodePool(number=2, generation=1, cluster_pause=write_pause(pause))
    )
    _, cluster_pause = await handle.query("pauses", result_type=list[str])
    assert cluster_pause.startswith("the cluster is paused by ops@example.com until ")


async def test_missing_explanation_query_is_reported(fake: WorkerHarness) -> None:
    """A worker of an older version has no such query."""
    handle = await start_nodepool(fake)
    explanation = await query_explanation(fake.client, NodeClaimSummary(handle.id, "a", "Ready"))
    assert isinstance(explanation, str) and "older version" in explanation and "explain" in explanation
