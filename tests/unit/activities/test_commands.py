"""The live acts of a command: all nodes out of service or none, deleted after a last look, put back where it fails."""

from typing import Any

import pytest

from tenure.apis.labels import DISRUPTION_REASON, DO_NOT_DISRUPT, REPLACES
from tenure.model.disruption.commands import CommandActed, CommandAsked
from tenure.model.disruption.planning import Leaving
from tenure.model.errors import TryLater
from tests.unit.activities.builders import Scene, performed

COMMAND = "demo/disruption/1"


def leaving(*names: str) -> tuple[Leaving, ...]:
    return tuple(Leaving(node=f"node-{one}", claim=one, claim_uid=f"uid-{one}", pool="default") for one in names)


def asked(*names: str, reason: Any = "Underutilized", **fields: Any) -> CommandAsked:
    return CommandAsked(workflow_id=COMMAND, reason=reason, candidates=leaving(*names), **fields)


def replacement(scene: Scene, name: str = "new", *, initialized: bool = True, of: str = COMMAND) -> None:
    scene.running(name, spec={"annotations": {REPLACES: of}})
    scene.claims.found[name]["status"]["nodeName"] = f"node-{name}"
    if initialized:
        scene.claims.give(name, Initialized="True")


def deleting(scene: Scene, name: str) -> bool:
    return "deletionTimestamp" in scene.claims.found[name]["metadata"]


def in_service(scene: Scene, *names: str) -> bool:
    """With nothing that says otherwise."""
    return not any(
        scene.out_of_service(f"node-{one}") or scene.claims.condition(one, DISRUPTION_REASON) for one in names
    )


async def begin(scene: Scene, *names: str, **fields: Any) -> CommandActed:
    return await performed(scene.commands.begin_command, asked(*names, **fields))


async def finish(scene: Scene, *names: str, **fields: Any) -> CommandActed:
    return await performed(scene.commands.finish_command, asked(*names, **fields))


async def undo(scene: Scene, *names: str, **fields: Any) -> CommandActed:
    return await performed(scene.commands.undo_command, asked(*names, **fields))


@pytest.fixture
def two(scene: Scene) -> Scene:
    """Two nodes, each with a pod."""
    for name in ("a", "b"):
        scene.running(name)
        scene.pods.place(f"node-{name}", f"web-{name}")
    return scene


async def test_all_candidates_are_taken_out_of_service_and_say_why(two: Scene) -> None:
    assert (await begin(two, "a", "b")).outcome == "done"
    assert two.out_of_service("node-a") and two.out_of_service("node-b")
    assert two.claims.condition("a", DISRUPTION_REASON) == "True Underutilized"
    assert not deleting(two, "a")


async def test_one_that_has_to_stay_keeps_all_of_them(two: Scene) -> None:
    two.nodes.change("node-b", annotations={DO_NOT_DISRUPT: "true"})
    answer = await begin(two, "a", "b")
    assert (answer.outcome, answer.nodes) == ("held", ("uid-b",))
    assert DO_NOT_DISRUPT in answer.why and in_service(two, "a", "b")


async def test_a_protected_pod_keeps_its_node(two: Scene) -> None:
    two.pods.place("node-a", "db", protected=True)
    answer = await begin(two, "a")
    assert answer.outcome == "held" and "default/db" in answer.why


async def test_a_drift_that_has_an_end_goes_ahead_whatever_pods_say(scene: Scene) -> None:
    """And only a drift; the Node's own annotation holds in any case."""
    scene.running("a", spec={"terminationGracePeriod": "1h"})
    scene.pods.place("node-a", "db", protected=True)
    assert (await begin(scene, "a")).outcome == "held"
    assert (await begin(scene, "a", reason="Drifted")).outcome == "done"
    await undo(scene, "a", reason="Drifted")
    scene.nodes.change("node-a", annotations={DO_NOT_DISRUPT: "true"})
    assert (await begin(scene, "a", reason="Drifted")).outcome == "held"


async def test_a_drift_without_an_end_waits_for_its_pods(two: Scene) -> None:
    two.pods.place("node-a", "db", protected=True)
    assert (await begin(two, "a", reason="Drifted")).outcome == "held"


@pytest.mark.parametrize("way", ["gone", "other", "deleting", "no node", "node deleting", "other node"])
async def test_a_candidate_that_is_not_what_it_was_stops_the_command(two: Scene, way: str) -> None:
    match way:
        case "gone":
            del two.claims.found["b"]
        case "other":
            two.claims.found["b"]["metadata"]["uid"] = "uid-other"
        case "deleting":
            two.claims.give("b", deleting=True)
        case "no node":
            del two.nodes.found["node-b"]
        case "node deleting":
            two.nodes.change("node-b", deleting=True)
        case "other node":
            two.nodes.change("node-b", provider_id="aws:///us-west-2a/i-other")
    assert (await begin(two, "a", "b")).nodes == ("uid-b",)
    assert in_service(two, "a")


async def test_what_is_said_between_the_look_and_the_taint_is_heard(
    two: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = two.nodes.mark_disrupted

    async def annotated_meanwhile(name: str) -> Any:
        two.nodes.change("node-a", annotations={DO_NOT_DISRUPT: "true"})
        return await marked(name)

    monkeypatch.setattr(two.nodes, "mark_disrupted", annotated_meanwhile)
    assert (await begin(two, "a", "b")).outcome == "held"
    assert in_service(two, "a", "b")


async def test_a_node_that_goes_for_another_reason_is_left_alone(two: Scene) -> None:
    """It may be drained before its NodeClaim is deleted, by its own workflow."""
    await two.nodes.mark_disrupted("node-b")
    two.claims.found["b"]["status"]["conditions"].append(
        {"type": DISRUPTION_REASON, "status": "True", "reason": "Empty"}
    )
    assert (await begin(two, "a", "b")).nodes == ("uid-b",)
    await undo(two, "a", "b")
    assert in_service(two, "a") and two.out_of_service("node-b")
    assert two.claims.condition("b", DISRUPTION_REASON) == "True Empty"


@pytest.mark.parametrize("port, call", [("claims", "patch"), ("nodes", "mark_disrupted"), ("pods", "on_node")])
@pytest.mark.parametrize("after", [0, 1])
async def test_a_fault_on_the_way_puts_all_back(two: Scene, port: str, call: str, after: int) -> None:
    getattr(two, port).faults[call] = [*[None] * after, TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await begin(two, "a", "b")
    assert in_service(two, "a", "b")
    assert (await begin(two, "a", "b")).outcome == "done"


async def test_beginning_twice_is_beginning_once(two: Scene) -> None:
    await begin(two, "a", "b")
    assert (await begin(two, "a", "b")).outcome == "done"
    await undo(two, "a", "b")
    assert in_service(two, "a", "b")


async def test_nodes_are_deleted_once_their_replacements_are_there(two: Scene) -> None:
    replacement(two)
    await begin(two, "a", "b")
    assert (await finish(two, "a", "b", replacements=("new",), why="cheaper")).outcome == "done"
    assert deleting(two, "a") and deleting(two, "b") and not deleting(two, "new")
    assert two.events.said[0] == ("a", "DisruptionTerminating", "Underutilized: cheaper")


async def test_a_replacement_that_is_not_there_yet_is_waited_for(two: Scene) -> None:
    replacement(two, initialized=False)
    assert (await finish(two, "a", replacements=("new",))).outcome == "waiting"
    two.claims.give("new", Initialized="True")
    two.nodes.change("node-new", ready=False)
    assert (await finish(two, "a", replacements=("new",))).outcome == "waiting"
    assert not deleting(two, "a")
    two.claims.give("new", deleting=True)
    assert (await finish(two, "a", replacements=("new",))).outcome == "lost"
    assert not deleting(two, "a")


async def test_a_wish_that_came_while_replacements_were_waited_for_is_heard(two: Scene) -> None:
    await begin(two, "a", "b")
    two.pods.place("node-b", "db", protected=True)
    answer = await finish(two, "a", "b")
    assert (answer.outcome, answer.nodes) == ("held", ("uid-b",))
    assert not deleting(two, "a")


async def test_one_that_went_by_itself_keeps_none_of_the_others(two: Scene) -> None:
    await begin(two, "a", "b")
    two.claims.give("a", deleting=True)
    assert (await finish(two, "a", "b")).outcome == "done"
    assert deleting(two, "b")
    del two.claims.found["a"]
    assert (await finish(two, "a")).outcome == "done"


async def test_a_deletion_that_was_cut_is_finished_by_the_next_try(two: Scene) -> None:
    await begin(two, "a", "b")
    two.claims.faults["delete"] = [None, TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await finish(two, "a", "b")
    assert deleting(two, "a") != deleting(two, "b")
    assert (await finish(two, "a", "b")).outcome == "done"
    assert deleting(two, "a") and deleting(two, "b")


async def test_undoing_puts_nodes_back_and_takes_replacements_away(two: Scene) -> None:
    replacement(two)
    replacement(two, "later", initialized=False)
    replacement(two, "others", of="demo/disruption/2")
    await begin(two, "a", "b")
    await undo(two, "a", "b", why="no capacity")
    await undo(two, "a", "b", why="no capacity")
    assert in_service(two, "a", "b", "others")
    assert deleting(two, "new") and deleting(two, "later") and not deleting(two, "others")
    assert ("a", "DisruptionBlocked", "Underutilized: no capacity") in two.events.said


async def test_a_replacement_that_carries_pods_stays_in_service(two: Scene) -> None:
    replacement(two)
    two.pods.place("node-new", "web-c")
    await undo(two, "a", "b")
    assert not deleting(two, "new") and in_service(two, "new")


async def test_pods_of_one_that_goes_all_the_same_keep_their_replacement(two: Scene) -> None:
    """A deletion that was done is not undone."""
    replacement(two)
    await begin(two, "a", "b")
    two.claims.give("a", deleting=True)
    await undo(two, "a", "b")
    assert in_service(two, "b") and two.out_of_service("node-a") and not deleting(two, "new")


async def test_undoing_what_never_began_changes_nothing(two: Scene) -> None:
    await undo(two, "a", "b")
    assert in_service(two, "a", "b") and two.events.said == []
