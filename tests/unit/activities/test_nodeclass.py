"""EC2NodeClass: finalizer before status, and cleanup after the last NodeClaim is gone."""

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis import labels
from tenure.model.errors import Fault, Forbidden, Throttled
from tenure.model.nodeclaim.requests import NodeClassRequest, NodeClassResult
from tenure.model.provider_results import ConditionPatch
from tests.unit.activities.builders import FakeCluster, run_activity

REQUEST = NodeClassRequest(name="default")


async def test_resolved_nodeclass_is_ready(cluster: FakeCluster) -> None:
    result = await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert result == NodeClassResult(generation=1, ready="True")
    assert cluster.node_classes.finalizers == {"default"}
    assert cluster.node_classes.statuses["default"]["AMIsReady"] == "True"


@pytest.mark.parametrize("failed_lookups", [(), ("AMIsReady: slow",)], ids=["all lookups succeed", "one lookup fails"])
async def test_unresolved_nodeclass_is_not_ready_with_reason(
    cluster: FakeCluster, failed_lookups: tuple[str, ...]
) -> None:
    cluster.resolver.failed_lookups = failed_lookups
    cluster.resolver.conditions = (
        ConditionPatch(type="AMIsReady", status="True"),
        ConditionPatch(type="SubnetsReady", status="False", reason="SubnetsNotFound", message="none match"),
    )
    result = await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert (result.ready, result.message) == ("False", "SubnetsReady: SubnetsNotFound none match")


async def test_finalizer_is_added_before_aws_resources(cluster: FakeCluster) -> None:
    cluster.resolver.faults["resolve"] = [Throttled("slow down")]
    with pytest.raises(ApplicationError):
        await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert cluster.node_classes.finalizers == {"default"} and cluster.node_classes.statuses == {}


async def test_deleting_or_missing_nodeclass_is_not_resolved(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default", deleting=True)
    assert (await run_activity(cluster.classes.resolve_node_class, REQUEST)).ready == ""
    cluster.node_classes.found.clear()
    assert not (await run_activity(cluster.classes.resolve_node_class, REQUEST)).exists
    assert cluster.resolver.resolve_count == 0 and cluster.node_classes.finalizers == set()


@pytest.mark.parametrize("fault", [Throttled("slow down"), Forbidden("iam: not allowed")])
async def test_failed_cleanup_is_published_and_retried(cluster: FakeCluster, fault: Fault) -> None:
    cluster.node_classes.add("default", deleting=True)
    cluster.resolver.faults["clean_up"] = [fault]
    with pytest.raises(ApplicationError):
        await run_activity(cluster.classes.finalize_node_class, REQUEST)
    assert cluster.events.reasons_for("default") == ["CleanUpFailed"] and "default" in cluster.node_classes.found
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is True
    assert cluster.resolver.cleaned == ["default"] and cluster.node_classes.found == {}


async def test_nodeclass_with_nodeclaim_is_kept(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default", deleting=True)
    cluster.claims.add("a", labels={"karpenter.k8s.aws/ec2nodeclass": "other"})
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is False
    assert cluster.resolver.cleaned == []


async def test_active_nodeclass_is_not_finalized(cluster: FakeCluster) -> None:
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is False
    assert "default" in cluster.node_classes.found


async def test_resolver_gets_nodepools_of_nodeclass(cluster: FakeCluster) -> None:
    cluster.pools.add("mine")
    cluster.pools.add("foreign", template={"spec": {"nodeClassRef": {"name": "other"}}})
    await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert cluster.resolver.pools == ["mine"]


async def test_failed_lookup_is_published_and_other_status_written(cluster: FakeCluster) -> None:
    cluster.resolver.failed_lookups = ("SubnetsReady: RequestLimitExceeded",)
    result = await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert (result.ready, result.failed_lookups) == ("Unknown", "SubnetsReady: RequestLimitExceeded")
    assert cluster.node_classes.statuses["default"]["AMIsReady"] == "True"
    assert cluster.events.reasons_for("default") == [labels.AWS_UNREACHABLE]


async def test_changed_reason_of_false_condition_is_published(cluster: FakeCluster) -> None:
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


async def test_warnings_are_published(cluster: FakeCluster) -> None:
    cluster.resolver.warnings = (("UserDataNearLimit", "spec.userData: nearly full"),)
    await run_activity(cluster.classes.resolve_node_class, REQUEST)
    assert cluster.events.published == [("default", "UserDataNearLimit", "spec.userData: nearly full")]


async def test_waiting_nodeclass_names_its_nodeclaims(cluster: FakeCluster) -> None:
    cluster.node_classes.add("default", deleting=True)
    for name in "abcdefg":
        cluster.claims.add(name)
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is False
    (event,) = cluster.events.published
    assert event[1] == "WaitingOnNodeClaimTermination"
    assert event[2] == "Waiting on NodeClaim termination for a, b, c, d, e and 2 other(s)"


async def test_finalizing_missing_nodeclass_succeeds(cluster: FakeCluster) -> None:
    cluster.node_classes.found.clear()
    assert await run_activity(cluster.classes.finalize_node_class, REQUEST) is True
