"""Steps of a command: taint all nodes or none, delete them after a final check, and roll back after a failure."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis.labels import (
    DISRUPTION_REASON,
    DO_NOT_DISRUPT,
    DO_NOT_REPAIR,
    NODECLAIM_TERMINATION_TIMESTAMP,
    NODEPOOL,
    REPAIR_DUE,
    REPLACES,
)
from tenure.clock import utc_now
from tenure.model.disruption.commands import CommandRequest, CommandResult
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.errors import Forbidden, TryLater
from tenure.model.node_health import RepairDue
from tests.support.fakes.kubernetes import node_conditions
from tests.unit.activities.builders import FakeCluster, run_activity

COMMAND = "demo/disruption/1"


def build_candidates(*names: str) -> tuple[CommandCandidate, ...]:
    return tuple(
        CommandCandidate(node=f"node-{one}", claim=one, claim_uid=f"uid-{one}", pool="default") for one in names
    )


def command_request(*names: str, reason: Any = "Underutilized", **fields: Any) -> CommandRequest:
    return CommandRequest(workflow_id=COMMAND, reason=reason, candidates=build_candidates(*names), **fields)


def add_replacement(
    cluster: FakeCluster, name: str = "new", *, initialized: bool = True, command: str = COMMAND
) -> None:
    cluster.add_running_node(name, spec={"annotations": {REPLACES: command}})
    cluster.claims.found[name]["status"]["nodeName"] = f"node-{name}"
    if initialized:
        cluster.claims.set_status(name, Initialized="True")


def is_deleting(cluster: FakeCluster, name: str) -> bool:
    return "deletionTimestamp" in cluster.claims.found[name]["metadata"]


def are_in_service(cluster: FakeCluster, *names: str) -> bool:
    """Whether no node has a disruption taint or reason."""
    return not any(
        cluster.is_disrupted(f"node-{one}") or cluster.claims.condition_text(one, DISRUPTION_REASON) for one in names
    )


async def begin_command(cluster: FakeCluster, *names: str, **fields: Any) -> CommandResult:
    return await run_activity(cluster.disruption.begin_command, command_request(*names, **fields))


async def finish_command(cluster: FakeCluster, *names: str, **fields: Any) -> CommandResult:
    return await run_activity(cluster.disruption.finish_command, command_request(*names, **fields))


async def roll_back_command(cluster: FakeCluster, *names: str, **fields: Any) -> CommandResult:
    return await run_activity(cluster.disruption.roll_back_command, command_request(*names, **fields))


@pytest.fixture
def two_nodes(cluster: FakeCluster) -> FakeCluster:
    """Two nodes with one pod each."""
    for name in ("a", "b"):
        cluster.add_running_node(name)
        cluster.pods.add(f"node-{name}", f"web-{name}")
    return cluster


async def test_all_candidates_are_tainted_with_reason(two_nodes: FakeCluster) -> None:
    assert (await begin_command(two_nodes, "a", "b")).outcome == "done"
    assert two_nodes.is_disrupted("node-a") and two_nodes.is_disrupted("node-b")
    assert two_nodes.claims.condition_text("a", DISRUPTION_REASON) == "True Underutilized"
    assert not is_deleting(two_nodes, "a")


async def test_one_blocked_node_keeps_all_candidates(two_nodes: FakeCluster) -> None:
    two_nodes.nodes.update_node("node-b", annotations={DO_NOT_DISRUPT: "true"})
    result = await begin_command(two_nodes, "a", "b")
    assert (result.outcome, result.nodes) == ("held", ("uid-b",))
    assert DO_NOT_DISRUPT in result.why and are_in_service(two_nodes, "a", "b")


async def test_do_not_disrupt_pod_blocks_its_node(two_nodes: FakeCluster) -> None:
    two_nodes.pods.add("node-a", "db", protected=True)
    result = await begin_command(two_nodes, "a")
    assert result.outcome == "held" and "default/db" in result.why


async def test_drift_with_grace_period_ignores_do_not_disrupt_pods(cluster: FakeCluster) -> None:
    """Other reasons do not ignore them, and the annotation of the Node blocks drift too."""
    cluster.add_running_node("a", spec={"terminationGracePeriod": "1h"})
    cluster.claims.set_status("a", Drifted="True")
    cluster.pods.add("node-a", "db", protected=True)
    assert (await begin_command(cluster, "a")).outcome == "held"
    assert (await begin_command(cluster, "a", reason="Drifted")).outcome == "done"
    await roll_back_command(cluster, "a", reason="Drifted")
    cluster.nodes.update_node("node-a", annotations={DO_NOT_DISRUPT: "true"})
    assert (await begin_command(cluster, "a", reason="Drifted")).outcome == "held"


async def test_drift_without_grace_period_is_blocked_by_pods(two_nodes: FakeCluster) -> None:
    two_nodes.claims.set_status("a", Drifted="True")
    two_nodes.pods.add("node-a", "db", protected=True)
    assert (await begin_command(two_nodes, "a", reason="Drifted")).outcome == "held"


async def test_node_whose_drift_is_reverted_is_kept(two_nodes: FakeCluster) -> None:
    """The NodePool's template changes back while the replacement starts."""
    two_nodes.claims.set_status("a", Drifted="True")
    assert (await begin_command(two_nodes, "a", reason="Drifted")).outcome == "done"
    two_nodes.claims.found["a"]["status"]["conditions"][0]["status"] = "False"
    result = await finish_command(two_nodes, "a", reason="Drifted")
    assert (result.outcome, result.why) == ("held", "NodeClaim a has not drifted")
    assert not is_deleting(two_nodes, "a")


@pytest.mark.parametrize("change", ["gone", "other", "deleting", "no node", "node deleting", "other node"])
async def test_changed_candidate_stops_command(two_nodes: FakeCluster, change: str) -> None:
    match change:
        case "gone":
            del two_nodes.claims.found["b"]
        case "other":
            two_nodes.claims.found["b"]["metadata"]["uid"] = "uid-other"
        case "deleting":
            two_nodes.claims.set_status("b", deleting=True)
        case "no node":
            del two_nodes.nodes.found["node-b"]
        case "node deleting":
            two_nodes.nodes.update_node("node-b", deleting=True)
        case "other node":
            two_nodes.nodes.update_node("node-b", provider_id="aws:///us-west-2a/i-other")
    assert (await begin_command(two_nodes, "a", "b")).nodes == ("uid-b",)
    assert are_in_service(two_nodes, "a")


async def test_annotation_between_check_and_taint_blocks(
    two_nodes: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_disrupted = two_nodes.nodes.mark_disrupted

    async def annotated_meanwhile(name: str) -> Any:
        two_nodes.nodes.update_node("node-a", annotations={DO_NOT_DISRUPT: "true"})
        return await mark_disrupted(name)

    monkeypatch.setattr(two_nodes.nodes, "mark_disrupted", annotated_meanwhile)
    assert (await begin_command(two_nodes, "a", "b")).outcome == "held"
    assert are_in_service(two_nodes, "a", "b")


async def test_node_disrupted_by_its_own_workflow_is_kept(two_nodes: FakeCluster) -> None:
    """Its own workflow may drain it before it deletes the NodeClaim."""
    await two_nodes.nodes.mark_disrupted("node-b")
    two_nodes.claims.found["b"]["status"]["conditions"].append(
        {"type": DISRUPTION_REASON, "status": "True", "reason": "Empty"}
    )
    assert (await begin_command(two_nodes, "a", "b")).nodes == ("uid-b",)
    await roll_back_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "a") and two_nodes.is_disrupted("node-b")
    assert two_nodes.claims.condition_text("b", DISRUPTION_REASON) == "True Empty"


@pytest.mark.parametrize("port, call", [("claims", "patch"), ("nodes", "mark_disrupted"), ("pods", "on_node")])
@pytest.mark.parametrize("after", [0, 1])
async def test_fault_during_begin_restores_all_nodes(two_nodes: FakeCluster, port: str, call: str, after: int) -> None:
    getattr(two_nodes, port).faults[call] = [*[None] * after, TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await begin_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "a", "b")
    assert (await begin_command(two_nodes, "a", "b")).outcome == "done"


async def test_repeated_begin_changes_nothing(two_nodes: FakeCluster) -> None:
    await begin_command(two_nodes, "a", "b")
    assert (await begin_command(two_nodes, "a", "b")).outcome == "done"
    await roll_back_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "a", "b")


async def test_nodes_are_deleted_after_replacements_are_ready(two_nodes: FakeCluster) -> None:
    add_replacement(two_nodes)
    await begin_command(two_nodes, "a", "b")
    assert (await finish_command(two_nodes, "a", "b", replacements=("new",), why="cheaper")).outcome == "done"
    assert is_deleting(two_nodes, "a") and is_deleting(two_nodes, "b") and not is_deleting(two_nodes, "new")
    assert two_nodes.events.published[:2] == [
        ("a", "DisruptionTerminating", "Disrupting NodeClaim: Underutilized: cheaper"),
        ("node-a", "DisruptionTerminating", "Disrupting Node: Underutilized: cheaper"),
    ]


async def test_uninitialized_replacement_is_awaited_and_deleting_one_is_lost(two_nodes: FakeCluster) -> None:
    add_replacement(two_nodes, initialized=False)
    assert (await finish_command(two_nodes, "a", replacements=("new",))).outcome == "waiting"
    two_nodes.claims.set_status("new", Initialized="True")
    two_nodes.nodes.update_node("node-new", ready=False)
    assert (await finish_command(two_nodes, "a", replacements=("new",))).outcome == "waiting"
    assert not is_deleting(two_nodes, "a")
    two_nodes.claims.set_status("new", deleting=True)
    assert (await finish_command(two_nodes, "a", replacements=("new",))).outcome == "lost"
    assert not is_deleting(two_nodes, "a")


async def test_do_not_disrupt_before_finish_blocks(two_nodes: FakeCluster) -> None:
    await begin_command(two_nodes, "a", "b")
    two_nodes.pods.add("node-b", "db", protected=True)
    result = await finish_command(two_nodes, "a", "b")
    assert (result.outcome, result.nodes) == ("held", ("uid-b",))
    assert not is_deleting(two_nodes, "a")


async def test_deleted_candidate_does_not_block_others(two_nodes: FakeCluster) -> None:
    await begin_command(two_nodes, "a", "b")
    two_nodes.claims.set_status("a", deleting=True)
    assert (await finish_command(two_nodes, "a", "b")).outcome == "done"
    assert is_deleting(two_nodes, "b")
    del two_nodes.claims.found["a"]
    assert (await finish_command(two_nodes, "a")).outcome == "done"


async def test_interrupted_finish_is_completed_by_retry(two_nodes: FakeCluster) -> None:
    await begin_command(two_nodes, "a", "b")
    two_nodes.claims.faults["delete"] = [None, TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await finish_command(two_nodes, "a", "b")
    assert is_deleting(two_nodes, "a") != is_deleting(two_nodes, "b")
    assert (await finish_command(two_nodes, "a", "b")).outcome == "done"
    assert is_deleting(two_nodes, "a") and is_deleting(two_nodes, "b")


async def test_rollback_restores_nodes_and_deletes_replacements(two_nodes: FakeCluster) -> None:
    add_replacement(two_nodes)
    add_replacement(two_nodes, "later", initialized=False)
    add_replacement(two_nodes, "others", command="demo/disruption/2")
    await begin_command(two_nodes, "a", "b")
    await roll_back_command(two_nodes, "a", "b", why="no capacity")
    await roll_back_command(two_nodes, "a", "b", why="no capacity")
    assert are_in_service(two_nodes, "a", "b", "others")
    assert is_deleting(two_nodes, "new") and is_deleting(two_nodes, "later") and not is_deleting(two_nodes, "others")
    assert ("a", "DisruptionBlocked", "Underutilized: no capacity") in two_nodes.events.published


async def test_rollback_deletes_replacements_before_it_restores_nodes(two_nodes: FakeCluster) -> None:
    """Otherwise a static NodePool would have more nodes than replicas in between."""
    add_replacement(two_nodes)
    await begin_command(two_nodes, "a", "b")
    two_nodes.claims.faults["delete"] = [TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await roll_back_command(two_nodes, "a", "b")
    assert two_nodes.is_disrupted("node-a") and two_nodes.is_disrupted("node-b")
    await roll_back_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "a", "b") and is_deleting(two_nodes, "new")


async def test_rollback_keeps_replacement_with_pods(two_nodes: FakeCluster) -> None:
    add_replacement(two_nodes)
    two_nodes.pods.add("node-new", "web-c")
    await roll_back_command(two_nodes, "a", "b")
    assert not is_deleting(two_nodes, "new") and are_in_service(two_nodes, "new")


async def test_rollback_keeps_replacement_of_deleting_node(two_nodes: FakeCluster) -> None:
    """A completed deletion is not rolled back."""
    add_replacement(two_nodes)
    await begin_command(two_nodes, "a", "b")
    two_nodes.claims.set_status("a", deleting=True)
    await roll_back_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "b") and two_nodes.is_disrupted("node-a") and not is_deleting(two_nodes, "new")


async def test_rollback_before_begin_changes_nothing(two_nodes: FakeCluster) -> None:
    await roll_back_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "a", "b") and two_nodes.events.published == []


def make_unhealthy(cluster: FakeCluster, *, grace: timedelta | None = timedelta(minutes=10), **node: Any) -> None:
    """Node a is unhealthy, and its repair is due. Four other nodes of the NodePool are healthy."""
    due = RepairDue(
        condition="KernelReady=False",
        order_at=utc_now(),
        grace=grace,
        conditions=(("KernelReady", "False"),),
        max_unhealthy="20%",
    )
    pool = {NODEPOOL: "default"}
    cluster.add_running_node("a", spec={"annotations": {REPAIR_DUE: due.format()}}, **{"labels": pool, **node})
    cluster.nodes.update_node("node-a", conditions=node_conditions(Ready="True", KernelReady="False"))
    for number in range(4):
        cluster.nodes.join(f"other-{number}", f"aws:///us-west-2a/i-{number + 1}", labels=pool)


@pytest.mark.parametrize("own", [None, "1m"])
async def test_repair_bounds_the_drain_from_the_deletion_on(cluster: FakeCluster, own: str | None) -> None:
    make_unhealthy(cluster, annotations={DO_NOT_DISRUPT: "true"})
    cluster.pods.add("node-a", "db", protected=True)
    if own:
        cluster.claims.found["a"]["spec"]["terminationGracePeriod"] = own
    began = utc_now()
    assert (await begin_command(cluster, "a", reason="Unhealthy")).outcome == "done"
    annotations = cluster.claims.found["a"]["metadata"]["annotations"]
    assert NODECLAIM_TERMINATION_TIMESTAMP not in annotations
    assert (await finish_command(cluster, "a", reason="Unhealthy")).outcome == "done"
    bound = datetime.fromisoformat(annotations[NODECLAIM_TERMINATION_TIMESTAMP]) - began
    expected = timedelta(minutes=1 if own else 10)
    assert is_deleting(cluster, "a") and expected - timedelta(seconds=5) < bound < expected + timedelta(seconds=60)


async def test_bound_of_a_repair_whose_deletion_is_rejected_ends_with_its_rollback(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    assert (await begin_command(cluster, "a", reason="Unhealthy")).outcome == "done"
    cluster.claims.faults["delete"] = [Forbidden("admission webhook denied the request")]
    with pytest.raises(ApplicationError):
        await finish_command(cluster, "a", reason="Unhealthy")
    assert NODECLAIM_TERMINATION_TIMESTAMP in cluster.claims.found["a"]["metadata"]["annotations"]
    await roll_back_command(cluster, "a", reason="Unhealthy")
    assert NODECLAIM_TERMINATION_TIMESTAMP not in cluster.claims.found["a"]["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("recovered", "Node node-a is healthy"),
        ("withdrawn", "Node node-a is healthy"),
        ("do-not-repair", "karpenter.sh/do-not-repair"),
        ("pod", "default/db"),
    ],
)
async def test_repair_reads_live_state_before_every_step(cluster: FakeCluster, case: str, why: str) -> None:
    make_unhealthy(cluster, grace=None)
    match case:
        case "recovered":
            cluster.nodes.update_node("node-a", conditions=node_conditions(Ready="True", KernelReady="True"))
        case "withdrawn":
            del cluster.claims.found["a"]["metadata"]["annotations"][REPAIR_DUE]
        case "do-not-repair":
            cluster.nodes.update_node("node-a", annotations={DO_NOT_REPAIR: "true"})
        case _:
            cluster.pods.add("node-a", "db", protected=True)
    for step in (begin_command, finish_command):
        result = await step(cluster, "a", reason="Unhealthy")
        assert result.outcome == "held" and why in result.why
    assert are_in_service(cluster, "a") and not is_deleting(cluster, "a")


async def test_too_many_unhealthy_nodes_hold_the_command_before_a_taint(cluster: FakeCluster) -> None:
    make_unhealthy(cluster)
    cluster.nodes.update_node("other-1", conditions=node_conditions(Ready="True", KernelReady="False"))
    result = await begin_command(cluster, "a", reason="Unhealthy")
    assert result.outcome == "held" and "2 of 5 nodes of NodePool default are unhealthy" in result.why
    assert are_in_service(cluster, "a")
    assert "NodeRepairBlocked" in cluster.events.reasons_for("node-a")
    assert "NodeRepairBlocked" in cluster.events.reasons_for("a")
