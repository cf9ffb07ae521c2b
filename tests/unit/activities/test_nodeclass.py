"""EC2NodeClasses: finalizer first, status after, clean-up only when nothing holds them."""

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.model.errors import Fault, Forbidden, Throttled
from tenure.model.nodeclaim.requests import NodeClassRequest, NodeClassResult
from tenure.model.provider_results import ConditionPatch
from tests.unit.activities.builders import FakeCluster, run_activity

REQUEST = NodeClassRequest(name="default")


async def test_what_resolves_is_ready(cluster: FakeCluster) -> None:
    result = await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert result == NodeClassResult(generation=1, ready="True")
    assert cluster.node_classes.finalizers == {"default"}
    assert cluster.node_classes.statuses["default"]["AMIsReady"] == "True"


@pytest.mark.parametrize("failed_lookups", [(), ("AMIsReady: slow",)], ids=["answered", "not answered in part"])
async def test_what_does_not_resolve_is_not_ready_and_says_what(
    cluster: FakeCluster, failed_lookups: tuple[str, ...]
) -> None:
    cluster.resolver.failed_lookups = failed_lookups
    cluster.resolver.conditions = (
        ConditionPatch(type="AMIsReady", status="True"),
        ConditionPatch(type="SubnetsReady", status="False", reason="SubnetsNotFound", message="none match"),
    )
    result = await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert (result.ready, result.message) == ("False", "SubnetsReady: SubnetsNotFound none match")


async def test_the_finalizer_is_on_before_anything_is_made_at_aws(cluster: FakeCluster) -> None:
    cluster.resolver.faults["resolve"] = [Throttled("slow down")]
    with pytest.raises(ApplicationError):
        await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert cluster.node_classes.finalizers == {"default"} and cluster.node_classes.statuses == {}


async def test_a_class_that_goes_or_is_gone_is_not_resolved(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default", deleting=True)
    assert (await run_activity(cluster.classes.resolve_node_class, REQUEST)).ready == ""
    cluster.node_classes.found.clear()
    assert not (await run_activity(cluster.classes.resolve_node_class, REQUEST)).exists
    assert cluster.resolver.resolve_count == 0 and cluster.node_classes.finalizers == set()


@pytest.mark.parametrize("fault", [Throttled("slow down"), Forbidden("iam: not allowed")])
async def test_a_class_is_let_go_after_its_clean_up_whose_failure_is_told(cluster: FakeCluster, fault: Fault) -> None:
    cluster.node_classes.add("default", deleting=True)
    cluster.resolver.faults["clean_up"] = [fault]
    with pytest.raises(ApplicationError):
        await run_activity(cluster.classes.finalize_node_class, REQUEST)
    assert cluster.events.reasons_for("default") == ["CleanUpFailed"] and "default" in cluster.node_classes.found
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is True
    assert cluster.resolver.cleaned == ["default"] and cluster.node_classes.found == {}


async def test_a_class_that_a_claim_names_is_kept_whatever_the_claims_labels_say(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default", deleting=True)
    cluster.claims.add("a", labels={"karpenter.k8s.aws/ec2nodeclass": "other"})
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is False
    assert cluster.resolver.cleaned == []


async def test_a_class_that_is_not_being_deleted_is_not_removed(cluster: FakeCluster) -> None:
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is False
    assert "default" in cluster.node_classes.found


async def test_the_resolver_is_told_of_the_pools_that_use_the_class(cluster: FakeCluster) -> None:
    cluster.pools.add("mine")
    cluster.pools.add("foreign", template={"spec": {"nodeClassRef": {"name": "other"}}})
    await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert cluster.resolver.pools == ["mine"]


async def test_what_aws_does_not_answer_leaves_the_rest_written_and_is_told(cluster: FakeCluster) -> None:
    cluster.resolver.failed_lookups = ("SubnetsReady: RequestLimitExceeded",)
    result = await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert (result.ready, result.failed_lookups) == ("Unknown", "SubnetsReady: RequestLimitExceeded")
    assert cluster.node_classes.statuses["default"]["AMIsReady"] == "True"
    assert cluster.events.reasons_for("default") == [labels.AWS_UNREACHABLE]


async def test_a_condition_that_stays_false_for_another_reason_is_told(cluster: FakeCluster) -> None:
    def failing_condition(reason: str) -> ConditionPatch:
        return ConditionPatch(type="ValidationSucceeded", status="False", reason=reason, message=f"because of {reason}")

    cluster.node_classes.add("default", ValidationSucceeded="False TagValidationFailed")
    cluster.resolver.conditions = (failing_condition("TagValidationFailed"),)
    await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert cluster.events.published == []
    cluster.resolver.conditions = (failing_condition("InvalidUserData"),)
    await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert cluster.events.published == [
        ("default", "InvalidUserData", "ValidationSucceeded: because of InvalidUserData")
    ]


async def test_warnings_are_told(cluster: FakeCluster) -> None:
    cluster.resolver.warnings = (("UserDataNearLimit", "spec.userData: nearly full"),)
    await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert cluster.events.published == [("default", "UserDataNearLimit", "spec.userData: nearly full")]


async def test_a_class_that_waits_says_for_which_claims(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default", deleting=True)
    for name in "abcdefg":
        cluster.claims.add(name)
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is False
    (event,) = cluster.events.published
    assert event[1] == "WaitingOnNodeClaimTermination"
    assert event[2] == "waits until its 7 NodeClaims are gone: a, b, c, d, e, ..."


async def test_removing_what_is_gone_is_done(cluster: FakeCluster) -> None:
    cluster.node_classes.found.clear()
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is True
