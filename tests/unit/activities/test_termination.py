"""The end: instance first, then the Node, then the NodeClaim; each step can be repeated."""

from types import SimpleNamespace

import pytest
from temporalio.exceptions import ApplicationError

from activities.nodeclaim.instance import LOOK_SLOWEST
from tenure.model.errors import NotFound, TryLater
from tenure.model.nodeclaim_requests import ClaimRef, TerminationAsked
from tests.unit.activities.builders import PROVIDER, REF, Scene, performed

ASKED = TerminationAsked(claim=REF, reason="Deleted")
UNKNOWN = TerminationAsked(claim=ClaimRef(name="a", uid="uid-a"), reason="LaunchTimeout")


def deleted(scene: Scene) -> None:
    scene.running()
    scene.claims.give("a", deleting=True)


async def test_instance_node_and_claim_go(scene: Scene) -> None:
    deleted(scene)
    await performed(scene.ending.terminate_node, ASKED)
    assert scene.instances.terminated == ["i-0000"]
    assert scene.nodes.found == {} and scene.claims.found == {}


async def test_finalizers_stay_until_ec2_no_longer_lists_the_instance(scene: Scene) -> None:
    deleted(scene)
    scene.instances.lingers = 3
    scene.instances.faults["get"] = [TryLater("503")]
    with pytest.raises(ApplicationError):
        await performed(scene.ending.terminate_node, ASKED)
    assert "a" in scene.claims.found and "node-a" in scene.nodes.found
    assert scene.claims.condition("a", "InstanceTerminating").startswith("True")
    await performed(scene.ending.terminate_node, ASKED)
    assert scene.claims.found == {} and scene.instances.terminated == ["i-0000"]


async def test_it_waits_while_the_instance_shuts_down(scene: Scene) -> None:
    deleted(scene)
    scene.instances.lingers = 3
    await performed(scene.ending.terminate_node, ASKED)
    assert scene.instances.lingers == 0 and scene.claims.found == {}


async def test_looks_at_an_instance_that_lingers_become_rarer_up_to_a_limit(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("activities.nodeclaim.instance.LOOK_EVERY", 1.0)
    monkeypatch.setattr("activities.nodeclaim.instance.asyncio", SimpleNamespace(sleep=sleep))
    deleted(scene)
    scene.instances.lingers = 8
    await performed(scene.ending.terminate_node, ASKED)
    assert pauses[0] == 1.0 and pauses[-2:] == [LOOK_SLOWEST, LOOK_SLOWEST]
    assert pauses == sorted(pauses) and len(pauses) == 8


async def test_an_instance_that_is_gone_already_is_no_error(scene: Scene) -> None:
    deleted(scene)
    scene.instances.running.clear()
    await performed(scene.ending.terminate_node, ASKED)
    assert scene.claims.found == {} and scene.nodes.found == {}


async def test_the_claims_own_status_may_know_of_an_instance(scene: Scene) -> None:
    deleted(scene)
    await performed(scene.ending.terminate_node, UNKNOWN)
    assert scene.instances.terminated == ["i-0000"]
    assert scene.nodes.found == {} and scene.claims.found == {}


async def test_a_claim_without_an_instance_is_only_let_go(scene: Scene) -> None:
    scene.claims.add("a")
    scene.claims.give("a", deleting=True)
    await performed(scene.ending.terminate_node, UNKNOWN)
    assert scene.claims.found == {} and scene.instances.terminated == []


async def test_the_instance_of_a_claim_made_anew_under_the_name_is_left_alone(scene: Scene) -> None:
    scene.running()
    scene.claims.found["a"]["metadata"]["uid"] = "uid-other"
    await performed(scene.ending.terminate_node, UNKNOWN)
    assert scene.instances.terminated == [] and "a" in scene.claims.found


async def test_a_node_that_took_the_name_over_is_left_alone(scene: Scene) -> None:
    deleted(scene)
    scene.nodes.change("node-a", provider_id="aws:///us-west-2a/i-9999")
    await performed(scene.ending.terminate_node, ASKED)
    assert "node-a" in scene.nodes.found and scene.claims.found == {}


async def test_a_node_that_goes_by_itself_meanwhile_is_no_error(scene: Scene) -> None:
    deleted(scene)
    scene.nodes.faults["release"] = [NotFound("node-a")]
    await performed(scene.ending.terminate_node, ASKED)
    assert scene.claims.found == {}


@pytest.mark.parametrize("call", ["delete", "release"])
async def test_a_fault_on_the_way_is_repeated_from_where_it_came(scene: Scene, call: str) -> None:
    deleted(scene)
    scene.nodes.faults[call] = [TryLater("503")]
    with pytest.raises(ApplicationError):
        await performed(scene.ending.terminate_node, ASKED)
    await performed(scene.ending.terminate_node, ASKED)
    assert scene.instances.terminated == ["i-0000"] and scene.claims.found == {}


async def test_whether_an_instance_runs(scene: Scene) -> None:
    deleted(scene)
    ref = ClaimRef(name="a", uid="uid-a", provider_id=PROVIDER)
    assert await performed(scene.ending.instance_runs, ref) is True
    scene.instances.running.clear()
    assert await performed(scene.ending.instance_runs, ref) is False
