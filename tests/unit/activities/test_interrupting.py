"""What AWS says, written and said on the objects; an instance that is stopped and started, step by step."""

from datetime import datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.interruption.activities import NodeInterruptionActivities
from activities.nodeclaim.instance import CyclingActivities
from tenure.apis.labels import EXPECTED_BACK, INTERRUPTIONS
from tenure.model.errors import BadInput, TryLater
from tenure.model.interruption.records import EventText, NoticesTold
from tenure.model.nodeclaim_requests import ClaimRef, Cycled
from tenure.model.provider_results import InstanceFacts
from tests.unit.activities.builders import PROVIDER, Scene, performed

WORD = EventText(reason="SpotInterrupted", message="soon")
INSTANCE = PROVIDER.rpartition("/")[2]


def told(**fields: Any) -> NoticesTold:
    claim = ClaimRef(name="a", uid="uid-a", node_name="node-a", provider_id=PROVIDER)
    return NoticesTold.model_validate({"claim": claim, **fields})


async def tell(scene: Scene, **fields: Any) -> dict[str, str]:
    """The NodeClaim's annotations after it."""
    activities = NodeInterruptionActivities(claims=scene.claims, nodes=scene.nodes, events=scene.events)
    await performed(activities.tell_notices, told(**fields))
    marks: dict[str, str] = scene.claims.found["a"]["metadata"]["annotations"]
    return marks


async def test_what_is_said_is_said_on_the_nodeclaim_and_on_its_node(scene: Scene) -> None:
    scene.running()
    assert INTERRUPTIONS not in await tell(scene, said=[WORD])
    assert scene.events.said == [("a", "SpotInterrupted", "soon"), ("node-a", "SpotInterrupted", "soon")]


async def test_another_instance_s_node_of_the_same_name_is_told_nothing(scene: Scene) -> None:
    scene.running()
    scene.nodes.change("node-a", provider_id="aws:///us-west-2a/i-other")
    await tell(scene, said=[WORD])
    assert scene.events.reasons("node-a") == []


async def test_what_is_remembered_is_written_down_and_taken_off(scene: Scene) -> None:
    scene.running()
    until = datetime.fromisoformat("2026-06-01T12:00:00+00:00")
    marks = await tell(scene, write=True, text="[]", expected_back=until)
    assert (marks[INTERRUPTIONS], marks[EXPECTED_BACK]) == ("[]", until.isoformat())
    marks = await tell(scene, write=True)
    assert not {INTERRUPTIONS, EXPECTED_BACK} & marks.keys()


async def test_nothing_is_written_on_a_namesake(scene: Scene) -> None:
    scene.running()
    scene.claims.found["a"]["metadata"]["uid"] = "uid-other"
    assert INTERRUPTIONS not in await tell(scene, write=True, text="[]")


# --- stop and start ---


def runs(scene: Scene, state: str = "running", **facts: Any) -> None:
    scene.instances.running[INSTANCE] = InstanceFacts(instance_id=INSTANCE, state=state, **facts)


async def bring(scene: Scene, step: str) -> Cycled:
    activities = CyclingActivities(instances=scene.instances)
    call = activities.stop_instance if step == "stop" else activities.start_instance
    answer: Cycled = await performed(call, ClaimRef(name="a", uid="uid-a", provider_id=PROVIDER))
    return answer


@pytest.mark.parametrize(
    ("state", "step", "entered"), [("running", "stop", "stopped"), ("stopped", "start", "running")]
)
async def test_an_instance_is_brought_there_once(scene: Scene, state: str, step: str, entered: str) -> None:
    runs(scene, state, root="ebs")
    assert [(await bring(scene, step)).outcome for _ in range(2)] == ["done", "done"]
    assert scene.instances.entered == [entered], "a repeat asks for nothing"


async def test_an_instance_whose_root_would_be_lost_is_not_stopped(scene: Scene) -> None:
    runs(scene, root="instance-store")
    answer = await bring(scene, "stop")
    assert (answer.outcome, scene.instances.entered) == ("unfit", []) and "instance-store" in answer.why


@pytest.mark.parametrize("state", ["shutting-down", ""])
async def test_one_that_is_gone_is_not_waited_for(scene: Scene, state: str) -> None:
    if state:
        runs(scene, state)
    assert (await bring(scene, "start")).outcome == "gone"


async def test_where_ec2_has_no_room_it_is_tried_again(scene: Scene) -> None:
    runs(scene, "stopped")
    scene.instances.faults["start"] = [BadInput("no room", code="InsufficientInstanceCapacity")]
    with pytest.raises(ApplicationError) as refused:
        await bring(scene, "start")
    assert refused.value.type == TryLater.__name__ and not refused.value.non_retryable
