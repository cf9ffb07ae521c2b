"""The live acts of a command: all nodes out of service or none, deleted after a last look, put back where it fails."""

from typing import Any

import pytest

from tenure.apis.labels import DISRUPTION_REASON, DO_NOT_DISRUPT, REPLACES
from tenure.model.disruption.commands import CommandRequest, CommandResult
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.errors import TryLater
from tests.unit.activities.builders import FakeCluster, run_activity

COMMAND = "demo/disruption/1"


def build_candidates(*names: str) -> tuple[CommandCandidate, ...]:
    return tuple(
        CommandCandidate(node=f"node-{one}", claim=one, claim_uid=f"uid-{one}", pool="default") for one in names
    )


def command_request(*names: str, reason: Any = "Underutilized", **fields: Any) -> CommandRequest:
    return CommandRequest(workflow_id=COMMAND, reason=reason, candidates=build_candidates(*names), **fields)


def add_replacement(cluster: FakeCluster, name: str = "new", *, initialized: bool = True, of: str = COMMAND) -> None:
    cluster.add_running_node(name, spec={"annotations": {REPLACES: of}})
    cluster.claims.found[name]["status"]["nodeName"] = f"node-{name}"
    if initialized:
        cluster.claims.set_status(name, Initialized="True")


def is_deleting(cluster: FakeCluster, name: str) -> bool:
    return "deletionTimestamp" in cluster.claims.found[name]["metadata"]


def are_in_service(cluster: FakeCluster, *names: str) -> bool:
    """With nothing that says otherwise."""
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
    """Two nodes, each with a pod."""
    for name in ("a", "b"):
        cluster.add_running_node(name)
        cluster.pods.add(f"node-{name}", f"web-{name}")
    return cluster


async def test_all_candidates_are_taken_out_of_service_and_say_why(two_nodes: FakeCluster) -> None:
    assert (await begin_command(two_nodes, "a", "b")).outcome == "done"
    assert two_nodes.is_disrupted("node-a") and two_nodes.is_disrupted("node-b")
    assert two_nodes.claims.condition_text("a", DISRUPTION_REASON) == "True Underutilized"
    assert not is_deleting(two_nodes, "a")


async def test_one_that_has_to_stay_keeps_all_of_them(two_nodes: FakeCluster) -> None:
    two_nodes.nodes.update_node("node-b", annotations={DO_NOT_DISRUPT: "true"})
    result = await begin_command(two_nodes, "a", "b")
    assert (result.outcome, result.nodes) == ("held", ("uid-b",))
    assert DO_NOT_DISRUPT in result.why and are_in_service(two_nodes, "a", "b")


async def test_a_protected_pod_keeps_its_node(two_nodes: FakeCluster) -> None:
    two_nodes.pods.add("node-a", "db", protected=True)
    result = await begin_command(two_nodes, "a")
    assert result.outcome == "held" and "default/db" in result.why


async def test_a_drift_that_has_an_end_goes_ahead_whatever_pods_say(cluster: FakeCluster) -> None:
    """And only a drift; the Node's own annotation holds in any case."""
    cluster.add_running_node("a", spec={"terminationGracePeriod": "1h"})
    cluster.pods.add("node-a", "db", protected=True)
    assert (await begin_command(cluster, "a")).outcome == "held"
    assert (await begin_command(cluster, "a", reason="Drifted")).outcome == "done"
    await roll_back_command(cluster, "a", reason="Drifted")
    cluster.nodes.update_node("node-a", annotations={DO_NOT_DISRUPT: "true"})
    assert (await begin_command(cluster, "a", reason="Drifted")).outcome == "held"


async def test_a_drift_without_an_end_waits_for_its_pods(two_nodes: FakeCluster) -> None:
    two_nodes.pods.add("node-a", "db", protected=True)
    assert (await begin_command(two_nodes, "a", reason="Drifted")).outcome == "held"


@pytest.mark.parametrize("way", ["gone", "other", "deleting", "no node", "node deleting", "other node"])
async def test_a_candidate_that_is_not_what_it_was_stops_the_command(two_nodes: FakeCluster, way: str) -> None:
    match way:
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


async def test_what_is_said_between_the_look_and_the_taint_is_heard(
    two_nodes: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_disrupted = two_nodes.nodes.mark_disrupted

    async def annotated_meanwhile(name: str) -> Any:
        two_nodes.nodes.update_node("node-a", annotations={DO_NOT_DISRUPT: "true"})
        return await mark_disrupted(name)

    monkeypatch.setattr(two_nodes.nodes, "mark_disrupted", annotated_meanwhile)
    assert (await begin_command(two_nodes, "a", "b")).outcome == "held"
    assert are_in_service(two_nodes, "a", "b")


async def test_a_node_that_goes_for_another_reason_is_left_alone(two_nodes: FakeCluster) -> None:
    """It may be drained before its NodeClaim is deleted, by its own workflow."""
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
async def test_a_fault_on_the_way_puts_all_back(two_nodes: FakeCluster, port: str, call: str, after: int) -> None:
    getattr(two_nodes, port).faults[call] = [*[None] * after, TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await begin_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "a", "b")
    assert (await begin_command(two_nodes, "a", "b")).outcome == "done"


async def test_beginning_twice_is_beginning_once(two_nodes: FakeCluster) -> None:
    await begin_command(two_nodes, "a", "b")
    assert (await begin_command(two_nodes, "a", "b")).outcome == "done"
    await roll_back_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "a", "b")


async def test_nodes_are_deleted_once_their_replacements_are_there(two_nodes: FakeCluster) -> None:
    add_replacement(two_nodes)
    await begin_command(two_nodes, "a", "b")
    assert (await finish_command(two_nodes, "a", "b", replacements=("new",), why="cheaper")).outcome == "done"
    assert is_deleting(two_nodes, "a") and is_deleting(two_nodes, "b") and not is_deleting(two_nodes, "new")
    assert two_nodes.events.published[0] == ("a", "DisruptionTerminating", "Underutilized: cheaper")


async def test_a_replacement_that_is_not_there_yet_is_waited_for(two_nodes: FakeCluster) -> None:
    add_replacement(two_nodes, initialized=False)
    assert (await finish_command(two_nodes, "a", replacements=("new",))).outcome == "waiting"
    two_nodes.claims.set_status("new", Initialized="True")
    two_nodes.nodes.update_node("node-new", ready=False)
    assert (await finish_command(two_nodes, "a", replacements=("new",))).outcome == "waiting"
    assert not is_deleting(two_nodes, "a")
    two_nodes.claims.set_status("new", deleting=True)
    assert (await finish_command(two_nodes, "a", replacements=("new",))).outcome == "lost"
    assert not is_deleting(two_nodes, "a")


async def test_a_wish_that_came_while_replacements_were_waited_for_is_heard(two_nodes: FakeCluster) -> None:
    await begin_command(two_nodes, "a", "b")
    two_nodes.pods.add("node-b", "db", protected=True)
    result = await finish_command(two_nodes, "a", "b")
    assert (result.outcome, result.nodes) == ("held", ("uid-b",))
    assert not is_deleting(two_nodes, "a")


async def test_one_that_went_by_itself_keeps_none_of_the_others(two_nodes: FakeCluster) -> None:
    await begin_command(two_nodes, "a", "b")
    two_nodes.claims.set_status("a", deleting=True)
    assert (await finish_command(two_nodes, "a", "b")).outcome == "done"
    assert is_deleting(two_nodes, "b")
    del two_nodes.claims.found["a"]
    assert (await finish_command(two_nodes, "a")).outcome == "done"


async def test_a_deletion_that_was_cut_is_finished_by_the_next_try(two_nodes: FakeCluster) -> None:
    await begin_command(two_nodes, "a", "b")
    two_nodes.claims.faults["delete"] = [None, TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await finish_command(two_nodes, "a", "b")
    assert is_deleting(two_nodes, "a") != is_deleting(two_nodes, "b")
    assert (await finish_command(two_nodes, "a", "b")).outcome == "done"
    assert is_deleting(two_nodes, "a") and is_deleting(two_nodes, "b")


async def test_undoing_puts_nodes_back_and_takes_replacements_away(two_nodes: FakeCluster) -> None:
    add_replacement(two_nodes)
    add_replacement(two_nodes, "later", initialized=False)
    add_replacement(two_nodes, "others", of="demo/disruption/2")
    await begin_command(two_nodes, "a", "b")
    await roll_back_command(two_nodes, "a", "b", why="no capacity")
    await roll_back_command(two_nodes, "a", "b", why="no capacity")
    assert are_in_service(two_nodes, "a", "b", "others")
    assert is_deleting(two_nodes, "new") and is_deleting(two_nodes, "later") and not is_deleting(two_nodes, "others")
    assert ("a", "DisruptionBlocked", "Underutilized: no capacity") in two_nodes.events.published


async def test_a_replacement_that_carries_pods_stays_in_service(two_nodes: FakeCluster) -> None:
    add_replacement(two_nodes)
    two_nodes.pods.add("node-new", "web-c")
    await roll_back_command(two_nodes, "a", "b")
    assert not is_deleting(two_nodes, "new") and are_in_service(two_nodes, "new")


async def test_pods_of_one_that_goes_all_the_same_keep_their_replacement(two_nodes: FakeCluster) -> None:
    """A deletion that was done is not undone."""
    add_replacement(two_nodes)
    await begin_command(two_nodes, "a", "b")
    two_nodes.claims.set_status("a", deleting=True)
    await roll_back_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "b") and two_nodes.is_disrupted("node-a") and not is_deleting(two_nodes, "new")


async def test_undoing_what_never_began_changes_nothing(two_nodes: FakeCluster) -> None:
    await roll_back_command(two_nodes, "a", "b")
    assert are_in_service(two_nodes, "a", "b") and two_nodes.events.published == []
