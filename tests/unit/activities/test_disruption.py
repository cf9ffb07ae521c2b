"""Deleting a NodeClaim: after a last look, and not by half."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.apis.labels import DISRUPTION_REASON, DO_NOT_DISRUPT, NODECLAIM_TERMINATION_TIMESTAMP
from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim_requests import DisruptionAsked, Report
from tests.unit.activities.builders import REF, Scene, performed

EMPTY = DisruptionAsked(claim=REF, reason="Empty")
EXPIRED = DisruptionAsked(claim=REF, reason="Expired", voluntary=False)


async def test_an_empty_node_is_taken_out_of_service_and_its_claim_deleted(scene: Scene) -> None:
    scene.running()
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "deleting"
    assert scene.out_of_service()
    assert "deletionTimestamp" in scene.claims.found["a"]["metadata"]
    assert scene.claims.condition("a", "DisruptionReason") == "True Empty"


async def test_a_pod_that_came_meanwhile_keeps_the_node_in_service(scene: Scene) -> None:
    scene.running()
    scene.pods.place("node-a", "web")
    answer = await performed(scene.disruption.disrupt_claim, EMPTY)
    assert (answer.outcome, answer.why) == ("not now", "not empty: default/web")
    assert not scene.out_of_service() and "deletionTimestamp" not in scene.claims.found["a"]["metadata"]


async def test_pods_that_need_no_other_place_do_not_count(scene: Scene) -> None:
    scene.running()
    scene.pods.place("node-a", "daemon", reschedulable=False)
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "deleting"


async def test_a_node_annotated_do_not_disrupt_stays(scene: Scene) -> None:
    scene.running()
    scene.nodes.change("node-a", annotations={DO_NOT_DISRUPT: "true"})
    answer = await performed(scene.disruption.disrupt_claim, EMPTY)
    assert answer.outcome == "not now" and DO_NOT_DISRUPT in answer.why
    assert not scene.out_of_service()


async def test_what_is_forced_asks_nobody(scene: Scene) -> None:
    scene.running()
    scene.pods.place("node-a", "web")
    scene.nodes.change("node-a", annotations={DO_NOT_DISRUPT: "true"})
    assert (await performed(scene.disruption.disrupt_claim, EXPIRED)).outcome == "deleting"


@pytest.mark.parametrize("asked", [EMPTY, EXPIRED])
async def test_one_that_may_be_given_up_is_taken_out_of_service_and_keeps_its_claim(
    scene: Scene, asked: DisruptionAsked
) -> None:
    scene.running()
    kept = asked.model_copy(update={"keep": True})
    assert (await performed(scene.disruption.disrupt_claim, kept)).outcome == "deleting"
    assert scene.out_of_service() and "deletionTimestamp" not in scene.claims.found["a"]["metadata"]
    assert scene.claims.condition("a", "DisruptionReason") == f"True {asked.reason}"


async def test_a_claim_that_is_gone_or_another_now_is_left_alone(scene: Scene) -> None:
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "gone"
    scene.claims.add("a", uid="uid-other")
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "gone"
    assert "deletionTimestamp" not in scene.claims.found["a"]["metadata"]


async def test_a_claim_whose_node_is_missing_can_go(scene: Scene) -> None:
    scene.running()
    scene.nodes.found.clear()
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "deleting"


@pytest.mark.parametrize("fault", [TryLater("500"), BadInput("422")])
@pytest.mark.parametrize("call", ["patch", "delete"])
async def test_a_deletion_that_fails_puts_the_node_back_into_service(
    scene: Scene, call: str, fault: TryLater | BadInput
) -> None:
    scene.running()
    scene.claims.faults[call] = [fault]
    with pytest.raises(Exception, match=str(fault)):
        await performed(scene.disruption.disrupt_claim, EMPTY)
    assert not scene.out_of_service()
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "deleting"


async def test_a_look_that_fails_puts_the_node_back_into_service(scene: Scene) -> None:
    scene.running()
    scene.pods.faults["on_node"] = [TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await performed(scene.disruption.disrupt_claim, EMPTY)
    assert not scene.out_of_service()


async def test_a_deletion_that_fails_leaves_no_reason_behind(scene: Scene) -> None:
    scene.running()
    scene.claims.faults["delete"] = [BadInput("422")]
    with pytest.raises(Exception, match="422"):
        await performed(scene.disruption.disrupt_claim, EMPTY)
    assert scene.claims.condition("a", DISRUPTION_REASON) == ""


async def test_what_a_try_that_was_killed_left_is_cleared_where_the_node_stays(scene: Scene) -> None:
    scene.running()
    await scene.nodes.mark_disrupted("node-a")
    scene.claims.give("a", DisruptionReason="True")
    scene.pods.place("node-a", "web")
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "not now"
    assert not scene.out_of_service() and scene.claims.condition("a", DISRUPTION_REASON) == ""


@pytest.mark.parametrize(("owner", "stays"), [("", False), ("test/disruption/1", True)])
async def test_a_node_is_put_back_unless_a_command_has_it(scene: Scene, owner: str, stays: bool) -> None:
    scene.running()
    await scene.nodes.mark_disrupted("node-a")
    scene.claims.give("a", DisruptionReason="True")
    scene.claims.found["a"]["status"]["conditions"][-1]["message"] = owner
    await performed(scene.disruption.put_back, REF)
    assert scene.out_of_service() is stays and bool(scene.claims.condition("a", DISRUPTION_REASON)) is stays


async def test_a_node_that_goes_is_not_put_back(scene: Scene) -> None:
    scene.running()
    await performed(scene.disruption.disrupt_claim, EMPTY)
    await performed(scene.disruption.put_back, REF)
    assert scene.out_of_service()


async def test_repeating_a_deletion_changes_nothing(scene: Scene) -> None:
    scene.running()
    await performed(scene.disruption.disrupt_claim, EMPTY)
    scene.pods.place("node-a", "late")
    assert (await performed(scene.disruption.disrupt_claim, EMPTY)).outcome == "deleting"


async def test_a_report_writes_a_condition_and_an_event(scene: Scene) -> None:
    scene.running()
    said = Report(claim=REF, condition="Initialized", reason="NodeNotReady", message="no kubelet", event="Overdue")
    await performed(scene.disruption.report, said)
    assert scene.claims.condition("a", "Initialized") == "Unknown NodeNotReady"
    assert scene.events.said == [("a", "Overdue", "no kubelet")]


async def test_a_report_may_be_only_one_of_the_two(scene: Scene) -> None:
    scene.running()
    await performed(scene.disruption.report, Report(claim=REF, event="LaunchTimeout", message="late"))
    await performed(scene.disruption.report, Report(claim=REF, condition="Initialized", reason="Waiting"))
    assert scene.events.reasons("a") == ["LaunchTimeout"]
    assert scene.claims.condition("a", "Initialized") == "Unknown Waiting"


async def test_an_end_that_nothing_may_hold_up_is_stamped_before_the_deletion(scene: Scene) -> None:
    scene.running()
    await performed(scene.disruption.disrupt_claim, EXPIRED.model_copy(update={"at_once": True}))
    metadata = scene.claims.found["a"]["metadata"]
    stamped = datetime.fromisoformat(metadata["annotations"][NODECLAIM_TERMINATION_TIMESTAMP])
    assert "deletionTimestamp" in metadata and datetime.now(UTC) - stamped < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("written", "sooner"), [("an hour ago", True), ("in an hour", False), ("soon", False), ("2026-01-01T00:00", False)]
)
async def test_the_earlier_end_of_a_grace_period_stays(scene: Scene, written: str, sooner: bool) -> None:
    """What is no moment with a time zone is written anew."""
    scene.running()
    hours = {"an hour ago": -1, "in an hour": 1}.get(written)
    written = (datetime.now(UTC) + timedelta(hours=hours)).isoformat() if hours else written
    annotations = scene.claims.found["a"]["metadata"]["annotations"]
    annotations[NODECLAIM_TERMINATION_TIMESTAMP] = written
    await performed(scene.disruption.disrupt_claim, EXPIRED.model_copy(update={"at_once": True}))
    assert (annotations[NODECLAIM_TERMINATION_TIMESTAMP] == written) is sooner


async def test_what_is_only_forced_has_its_grace_period(scene: Scene) -> None:
    scene.running()
    await performed(scene.disruption.disrupt_claim, EXPIRED)
    assert NODECLAIM_TERMINATION_TIMESTAMP not in scene.claims.found["a"]["metadata"]["annotations"]
