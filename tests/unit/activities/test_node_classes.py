"""EC2NodeClasses: finalizer first, status after, clean-up only when nothing holds them."""

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.model.errors import Forbidden, Throttled
from tenure.model.nodeclaim_requests import NodeClassAsked, NodeClassResolved
from tenure.model.provider_results import ConditionPatch
from tests.unit.activities.builders import Scene, performed

ASKED = NodeClassAsked(name="default")


async def test_what_resolves_is_ready(scene: Scene) -> None:
    answer = await performed(scene.classes.resolve_node_class, ASKED)
    assert answer == NodeClassResolved(generation=1, ready="True")
    assert scene.node_classes.finalizers == {"default"}
    assert scene.node_classes.statuses["default"]["AMIsReady"] == "True"


async def test_what_does_not_resolve_is_not_ready_and_says_what(scene: Scene) -> None:
    scene.resolver.conditions = (
        ConditionPatch(type="AMIsReady", status="True"),
        ConditionPatch(type="SubnetsReady", status="False", reason="SubnetsNotFound", message="none match"),
    )
    answer = await performed(scene.classes.resolve_node_class, ASKED)
    assert (answer.ready, answer.message) == ("False", "SubnetsReady: SubnetsNotFound none match")


async def test_the_finalizer_is_on_before_anything_is_made_at_aws(scene: Scene) -> None:
    scene.resolver.faults["resolve"] = [Throttled("slow down")]
    with pytest.raises(ApplicationError):
        await performed(scene.classes.resolve_node_class, ASKED)
    assert scene.node_classes.finalizers == {"default"} and scene.node_classes.statuses == {}


async def test_a_class_that_goes_or_is_gone_is_not_resolved(scene: Scene) -> None:
    scene.node_classes.add("default", deleting=True)
    assert (await performed(scene.classes.resolve_node_class, ASKED)).ready == ""
    scene.node_classes.found.clear()
    assert not (await performed(scene.classes.resolve_node_class, ASKED)).exists
    assert scene.resolver.resolved == 0 and scene.node_classes.finalizers == set()


async def test_a_class_is_let_go_after_its_clean_up(scene: Scene) -> None:
    scene.node_classes.add("default", deleting=True)
    scene.resolver.faults["clean_up"] = [Throttled("slow down")]
    with pytest.raises(ApplicationError):
        await performed(scene.classes.remove_node_class, ASKED)
    assert "default" in scene.node_classes.found
    assert await performed(scene.classes.remove_node_class, ASKED) is True
    assert scene.resolver.cleaned == ["default"] and scene.node_classes.found == {}


async def test_a_class_that_a_claim_names_is_kept_whatever_the_claims_labels_say(scene: Scene) -> None:
    scene.node_classes.add("default", deleting=True)
    scene.claims.add("a", labels={"karpenter.k8s.aws/ec2nodeclass": "other"})
    assert await performed(scene.classes.remove_node_class, ASKED) is False
    assert scene.resolver.cleaned == []


async def test_a_class_that_is_not_being_deleted_is_not_removed(scene: Scene) -> None:
    assert await performed(scene.classes.remove_node_class, ASKED) is False
    assert "default" in scene.node_classes.found


async def test_the_resolver_is_told_of_the_pools_that_use_the_class(scene: Scene) -> None:
    scene.pools.add("mine")
    scene.pools.add("foreign", template={"spec": {"nodeClassRef": {"name": "other"}}})
    await performed(scene.classes.resolve_node_class, ASKED)
    assert scene.resolver.pools == ["mine"]


async def test_what_aws_does_not_answer_leaves_the_rest_written_and_is_told(scene: Scene) -> None:
    scene.resolver.unanswered = ("SubnetsReady: RequestLimitExceeded",)
    answer = await performed(scene.classes.resolve_node_class, ASKED)
    assert (answer.ready, answer.unanswered) == ("Unknown", "SubnetsReady: RequestLimitExceeded")
    assert scene.node_classes.statuses["default"]["AMIsReady"] == "True"
    assert scene.events.reasons("default") == [labels.AWS_NOT_ANSWERING]


async def test_what_is_wrong_beside_what_is_not_answered_makes_a_class_not_ready(scene: Scene) -> None:
    scene.resolver.unanswered = ("AMIsReady: slow",)
    scene.resolver.conditions = (ConditionPatch(type="SubnetsReady", status="False", reason="SubnetsNotFound"),)
    assert (await performed(scene.classes.resolve_node_class, ASKED)).ready == "False"


async def test_a_condition_that_stays_false_for_another_reason_is_told(scene: Scene) -> None:
    def wrong(reason: str) -> ConditionPatch:
        return ConditionPatch(type="ValidationSucceeded", status="False", reason=reason, message=f"because of {reason}")

    scene.node_classes.add("default", ValidationSucceeded="False TagValidationFailed")
    scene.resolver.conditions = (wrong("TagValidationFailed"),)
    await performed(scene.classes.resolve_node_class, ASKED)
    assert scene.events.said == []
    scene.resolver.conditions = (wrong("InvalidUserData"),)
    await performed(scene.classes.resolve_node_class, ASKED)
    assert scene.events.said == [
        ("default", "InvalidUserData", "ValidationSucceeded: because of InvalidUserData"),
    ]


async def test_warnings_are_told(scene: Scene) -> None:
    scene.resolver.warnings = (("UserDataNearLimit", "spec.userData: nearly full"),)
    await performed(scene.classes.resolve_node_class, ASKED)
    assert scene.events.said == [("default", "UserDataNearLimit", "spec.userData: nearly full")]


async def test_a_class_that_waits_says_for_which_claims(scene: Scene) -> None:
    scene.node_classes.add("default", deleting=True)
    for name in "abcdefg":
        scene.claims.add(name)
    assert await performed(scene.classes.remove_node_class, ASKED) is False
    (told,) = scene.events.said
    assert told[1] == "WaitingOnNodeClaimTermination"
    assert told[2] == "waits until its 7 NodeClaims are gone: a, b, c, d, e, ..."


async def test_a_clean_up_that_fails_is_told_and_keeps_the_class(scene: Scene) -> None:
    scene.node_classes.add("default", deleting=True)
    scene.resolver.faults["clean_up"] = [Forbidden("iam: not allowed")]
    with pytest.raises(ApplicationError):
        await performed(scene.classes.remove_node_class, ASKED)
    assert scene.events.reasons("default") == ["CleanUpFailed"]
    assert "default" in scene.node_classes.found


async def test_removing_what_is_gone_is_done(scene: Scene) -> None:
    scene.node_classes.found.clear()
    assert await performed(scene.classes.remove_node_class, ASKED) is True
