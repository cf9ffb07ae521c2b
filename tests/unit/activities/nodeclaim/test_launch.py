"""Launch: one call per group, instances assigned in order, and no instance without an owner."""

from contextlib import suppress
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.base import instance_id_of
from tenure.model.errors import BadInput, Fault, Forbidden, TryLater
from tenure.model.instance_types import OfferingShard
from tenure.model.launch import (
    DELETED,
    FleetError,
    FleetResult,
    GroupOutcome,
    LaunchedInstance,
    LaunchGroup,
    LaunchGroupMember,
    LaunchPreparation,
    LaunchRejection,
    PreparedLaunchRequest,
)
from tenure.model.nodeclaim.requests import (
    GroupLaunchRequest,
    GroupRejection,
    NodeClaimLaunchRequest,
    NodeClaimRef,
    PreparationResult,
)
from tenure.model.plan import LaunchDraft
from tests.support.fakes.cloud import REQUEST
from tests.unit.activities.builders import FakeCluster, run_activity


def launch_group(cluster: FakeCluster, *names: str) -> LaunchGroup:
    for name in names:
        cluster.claims.add(name)
    return LaunchGroup(group_id="group-1", pool="default", members=group_members(*names), request=REQUEST)


async def launch_request(cluster: FakeCluster, request: LaunchGroup, *, attempt: int = 1) -> GroupOutcome:
    return await run_activity(cluster.launching.launch_group, request, attempt=attempt)


async def launch(cluster: FakeCluster, *names: str) -> GroupOutcome:
    return await launch_request(cluster, launch_group(cluster, *names))


async def prepare(cluster: FakeCluster) -> LaunchPreparation | None:
    request = NodeClaimLaunchRequest(claim=NodeClaimRef(name="a", uid="uid-a"))
    return (await run_activity(cluster.launching.prepare_launch, request)).preparation


async def prepare_group(cluster: FakeCluster, *names: str, retry: bool = False, **fields: Any) -> PreparationResult:
    shard = fields.pop("offering_shard", None)
    members = group_members(*names)
    draft = LaunchDraft(group_id="g", pool="default", node_class="default", members=members, offering_shard=shard)
    request = GroupLaunchRequest(draft=draft.model_copy(update={"attempt": 1 + retry}), retry=retry, **fields)
    return await run_activity(cluster.launching.prepare_launch_group, request)


async def fail_group(cluster: FakeCluster, *names: str, **fields: str) -> None:
    members = tuple(NodeClaimRef(name=name, uid=f"uid-{name}") for name in names)
    request = GroupRejection.model_validate({"group_id": "g", "members": members, **fields})
    await run_activity(cluster.launching.fail_launch_group, request)


def notified_instances(cluster: FakeCluster) -> dict[str, str]:
    """Instance ID by UID, from the results that the members' workflows received."""
    results = {uid: group_result.result for uid, group_result in cluster.workflows.results.items()}
    return {uid: instance_id_of(one.provider_id) for uid, one in results.items() if isinstance(one, LaunchedInstance)}


async def test_instances_are_assigned_by_uid_in_response_order(cluster: FakeCluster) -> None:
    outcome = await launch(cluster, "c", "a", "b")
    assert notified_instances(cluster) == {"uid-a": "i-0000", "uid-b": "i-0001", "uid-c": "i-0002"}
    assert outcome == GroupOutcome(group_id="group-1")


async def test_repeated_launch_assigns_same_instances(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b")
    await launch_request(cluster, request)
    first = notified_instances(cluster)
    await launch_request(cluster, request)
    assert notified_instances(cluster) == first and len(cluster.instances.running) == 2


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
async def test_interrupted_assignment_is_completed_with_unique_instances(cluster: FakeCluster, cut: int) -> None:
    """The fleet response was lost; the retry finds running instances by tag, in the order of their IDs."""
    request = launch_group(cluster, "a", "b", "c")
    cluster.fleet.instances.running = {}
    token = request.client_token()
    await cluster.fleet.create(request)
    fleet_result = cluster.fleet.results[token]
    cluster.claims.faults["patch"] = [*[None] * cut, TryLater("503")]
    with suppress(ApplicationError):
        await launch_request(cluster, request)
    before = assigned_instances(cluster)
    cluster.fleet.results[token] = FleetResult(instances=tuple(reversed(fleet_result.instances)))
    await launch_request(cluster, request, attempt=2)
    after = assigned_instances(cluster)
    assert before.items() <= after.items()
    assert sorted(after.values()) == ["i-0000", "i-0001", "i-0002"] == sorted(cluster.instances.running)
    assert notified_instances(cluster).items() <= after.items()


def assigned_instances(cluster: FakeCluster) -> dict[str, str]:
    """Instance ID by UID, from the NodeClaims."""
    provider_ids = {
        one["metadata"]["uid"]: one.get("status", {}).get("providerID", "") for one in cluster.claims.found.values()
    }
    return {uid: instance_id_of(provider) for uid, provider in provider_ids.items() if provider}


async def test_first_assignment_reads_one_nodeclaim_and_repeated_one_reads_all(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, get, read = launch_group(cluster, "a", "b", "c"), cluster.claims.get, list[str]()

    async def counted(name: str) -> NodeClaim | None:
        read.append(name)
        return await get(name)

    monkeypatch.setattr(cluster.claims, "get", counted)
    await launch_request(cluster, request)
    assert len(read) == 1
    await launch_request(cluster, request, attempt=2)
    assert {*read} == {"a", "b", "c"}


async def test_launch_writes_nodeclaim_status(cluster: FakeCluster) -> None:
    await launch(cluster, "a")
    claim = cluster.claims.found["a"]
    assert claim["status"]["providerID"] == "aws:///us-west-2a/i-0000"
    assert claim["status"]["capacity"] == {"cpu": "2"}
    assert claim["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "m5.large"
    assert cluster.claims.condition_text("a", "Launched").startswith("True")
    assert cluster.claims.condition_text("a", "Registered") == "Unknown NodeNotFound"


async def test_single_launch_returns_result_without_signal(cluster: FakeCluster) -> None:
    outcome = await run_activity(cluster.launching.launch_one, launch_group(cluster, "a"))
    result = outcome.results["uid-a"]
    assert (
        isinstance(result, LaunchedInstance)
        and result.provider_id.endswith("i-0000")
        and cluster.workflows.results == {}
    )


async def test_partial_fleet_serves_first_members_and_marks_offering_unavailable(cluster: FakeCluster) -> None:
    cluster.fleet.capacity = 1
    outcome = await launch(cluster, "a", "b")
    assert notified_instances(cluster) == {"uid-a": "i-0000"}
    assert outcome.rejected == group_members("b") and outcome.rejection is not None and outcome.rejection.final
    assert outcome.rejection.reason == "InsufficientCapacity"
    assert cluster.claims.condition_text("b", "Launched") == "Unknown InsufficientCapacity"
    assert cluster.events.reasons_for("b") == ["InsufficientCapacityError"]
    mark = outcome.unavailable[0]
    assert (mark.instance_type, mark.zone, mark.capacity_type) == ("m5.large", "us-west-2a", "on-demand")


async def test_extra_instances_are_terminated(cluster: FakeCluster) -> None:
    cluster.fleet.extra_instances = 2
    await launch(cluster, "a")
    assert list(cluster.instances.running) == ["i-0000"]
    assert cluster.instances.terminated == ["i-0001", "i-0002"]


async def test_instance_of_removed_nodeclaim_is_terminated(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b", "c")
    del cluster.claims.found["b"]
    await launch_request(cluster, request)
    assert cluster.instances.terminated == ["i-0001"] and list(cluster.instances.running) == ["i-0000", "i-0002"]
    assert set(cluster.workflows.results) == {"uid-a", "uid-c"}


async def test_recreated_nodeclaim_gets_no_instance_of_old_one(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b")
    cluster.claims.add("b", uid="uid-other")
    await launch_request(cluster, request)
    assert cluster.instances.terminated == ["i-0001"] and set(cluster.workflows.results) == {"uid-a"}


async def test_group_without_nodeclaims_leaves_no_instance(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b")
    cluster.claims.found.clear()
    await launch_request(cluster, request)
    assert cluster.instances.running == {} and len(cluster.instances.terminated) == 2


async def test_transient_fleet_error_is_not_final(cluster: FakeCluster) -> None:
    cluster.fleet.next_error = FleetError(code="InternalError", message="try again")
    outcome = await launch(cluster, "a")
    assert outcome.rejection == LaunchRejection(reason="LaunchFailed", message="InternalError: try again", final=False)
    assert outcome.rejected == group_members("a") and cluster.workflows.results == {}
    assert outcome.unavailable == ()


async def test_lost_fleet_response_is_retryable(cluster: FakeCluster) -> None:
    cluster.fleet.lost_responses = [TryLater("connection cut")]
    request = launch_group(cluster, "a")
    with pytest.raises(ApplicationError) as fault:
        await launch_request(cluster, request)
    assert not fault.value.non_retryable
    await launch_request(cluster, request)
    assert len(cluster.instances.running) == 1


async def test_preparation_adds_finalizer_before_launch(cluster: FakeCluster) -> None:
    cluster.claims.add("a")
    prepared = await prepare(cluster)
    assert isinstance(prepared, PreparedLaunchRequest)
    assert cluster.claims.found["a"]["metadata"]["finalizers"] == ["karpenter.sh/termination"]
    assert cluster.fleet.calls == []


@pytest.mark.parametrize(("ready", "final"), [("False", True), ("Unknown", False), ("", False)])
async def test_unready_nodeclass_is_final_only_with_false_status(cluster: FakeCluster, ready: str, final: bool) -> None:
    cluster.node_classes.add("default", ready=ready)
    cluster.claims.add("a")
    rejection = await prepare(cluster)
    assert isinstance(rejection, LaunchRejection)
    assert rejection.reason == "NodeClassNotReady" and rejection.final is final


@pytest.mark.parametrize(("observed", "waits"), [(1, True), (2, False)])
async def test_status_of_earlier_generation_is_not_used(cluster: FakeCluster, observed: int, waits: bool) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": observed}
    meta = {"name": "default", "uid": "uid-default", "generation": 2}
    cluster.node_classes.found["default"] = EC2NodeClass.model_validate(
        {"metadata": meta, "spec": {}, "status": {"conditions": [ready]}}
    )
    cluster.claims.add("a")
    prepared = await prepare(cluster)
    assert isinstance(prepared, LaunchRejection) is waits
    if isinstance(prepared, LaunchRejection):
        assert not prepared.final and "generation 1, not yet of 2" in prepared.message


@pytest.mark.parametrize("deleting", [True, False])
async def test_deleting_or_missing_nodeclass_rejects_launch(cluster: FakeCluster, deleting: bool) -> None:
    cluster.node_classes.found.clear()
    if deleting:
        cluster.node_classes.add("default", deleting=True)
    cluster.claims.add("a")
    prepared = await prepare(cluster)
    assert isinstance(prepared, LaunchRejection) and "missing or being deleted" in prepared.message


async def test_missing_nodeclaim_rejects_preparation(cluster: FakeCluster) -> None:
    prepared = await prepare(cluster)
    assert isinstance(prepared, LaunchRejection) and prepared.reason == "NodeClaimGone"


async def test_group_is_prepared_from_first_existing_member(cluster: FakeCluster) -> None:
    cluster.claims.add("b")
    assert isinstance((await prepare_group(cluster, "a", "b")).preparation, PreparedLaunchRequest)
    cluster.claims.found.clear()
    assert isinstance((await prepare_group(cluster, "a", "b")).preparation, LaunchRejection)


async def test_retry_is_prepared_for_waiting_members_only(cluster: FakeCluster) -> None:
    for name in "abcd":
        cluster.claims.add(name)
    cluster.claims.set_status("b", provider_id="aws:///us-west-2a/i-1")
    cluster.claims.add("c", uid="uid-other")
    prepared = await prepare_group(cluster, *"abcd", retry=True)
    assert isinstance(prepared.preparation, PreparedLaunchRequest) and prepared.members == group_members("a", "d")


async def test_unavailable_offerings_are_left_out_of_request(cluster: FakeCluster) -> None:
    cluster.fleet.types = ("m5.large", "c5.large")
    cluster.fleet.capacity_by_type = {"m5.large": 0}
    first = await launch(cluster, "a")
    prepared = (await prepare_group(cluster, "a", unavailable=first.unavailable, retry=True)).preparation
    assert isinstance(prepared, PreparedLaunchRequest)
    assert [one.instance_type for one in prepared.request.overrides] == ["c5.large"]


@pytest.mark.parametrize(
    ("offering_shard", "is_retry", "capacity_type", "expected_type"),
    [
        (None, False, "spot", "m5.large"),
        ("us-west-2a/0/2", False, "spot", "m5.large"),
        ("us-west-2a/1/2", False, "spot", "c5.large"),
        ("us-west-2a/1/2", True, "spot", "m5.large"),
        ("us-west-2b/0/1", False, "spot", "m5.large"),
        ("us-west-2a/1/2", False, "on-demand", "m5.large"),
    ],
    ids=["no burst", "types of shard", "types of other shard", "retry", "no type in zone", "no spot offerings"],
)
async def test_burst_group_requests_its_shard_first_and_all_types_on_retry(
    cluster: FakeCluster, offering_shard: str | None, is_retry: bool, capacity_type: str, expected_type: str
) -> None:
    cluster.fleet.types, cluster.fleet.capacity_type = ("m5.large", "c5.large"), capacity_type
    types = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "c5.large"]}
    cluster.claims.add("a", requirements=[types])
    subnets = [{"id": f"subnet-{zone}", "zone": f"us-west-2{zone}"} for zone in "ab"]
    known = cluster.node_classes.found["default"]
    status = known.status.model_validate({**known.status.model_dump(by_alias=True), "subnets": subnets})
    cluster.node_classes.found["default"] = known.model_copy(update={"status": status})
    shard = OfferingShard.read(offering_shard) if offering_shard else None
    prepared = (await prepare_group(cluster, "a", retry=is_retry, offering_shard=shard)).preparation
    assert isinstance(prepared, PreparedLaunchRequest)
    assert [one.instance_type for one in prepared.request.overrides] == [expected_type]


async def test_fixable_fleet_error_is_on_nodeclaim_with_remedy(cluster: FakeCluster) -> None:
    cluster.fleet.next_error = FleetError(
        code="UnauthorizedOperation", message="not allowed", reason="Unauthorized", remedy="allow ec2:CreateFleet"
    )
    outcome = await launch(cluster, "a")
    assert cluster.claims.condition_text("a", "Launched") == "Unknown Unauthorized"
    assert cluster.events.reasons_for("a") == ["Unauthorized"]
    assert outcome.rejection is not None and not outcome.rejection.final
    assert outcome.rejection.message == "UnauthorizedOperation: not allowed; allow ec2:CreateFleet"


@pytest.mark.parametrize("failures", [0, 1, 20])
@pytest.mark.parametrize(
    ("error", "is_reported"),
    [
        (FleetError(code="UnauthorizedOperation", message="no", reason="Unauthorized"), True),
        (FleetError(code="InvalidParameterValue", message="no"), True),
        (FleetError(code="InsufficientInstanceCapacity", message="no", insufficient=True), False),
    ],
    ids=["denied", "invalid", "no capacity"],
)
async def test_rejections_are_reported_to_members_once_they_repeat(
    cluster: FakeCluster, error: FleetError, is_reported: bool, failures: int
) -> None:
    cluster.fleet.next_error = error
    await launch_request(cluster, launch_group(cluster, "a", "b").model_copy(update={"failures": failures}))
    reason = error.reason or "LaunchFailed"
    text = f"{reason}: {error.code}: no"
    expected = {"uid-a": text, "uid-b": text} if is_reported and failures else {}
    assert cluster.workflows.launch_errors == expected


@pytest.mark.parametrize(
    ("fault", "attempt", "failures", "is_reported"),
    [
        (TryLater("no"), 1, 0, False),
        (TryLater("no"), 3, 0, True),
        (TryLater("no"), 1, 1, True),
        (BadInput("no"), 1, 0, False),
        (BadInput("no"), 1, 1, True),
        (Forbidden("no"), 1, 0, True),
    ],
)
async def test_faults_of_preparations_are_reported_to_members(
    cluster: FakeCluster, fault: Fault, attempt: int, failures: int, is_reported: bool
) -> None:
    cluster.claims.add("a")
    cluster.fleet.faults["prepare"] = [fault]
    draft = LaunchDraft(
        group_id="g", pool="default", node_class="default", members=group_members("a"), failures=failures
    )
    with pytest.raises(ApplicationError):
        await run_activity(cluster.launching.prepare_launch_group, GroupLaunchRequest(draft=draft), attempt=attempt)
    assert cluster.workflows.launch_errors == ({"uid-a": "LaunchFailed: no"} if is_reported else {})


@pytest.mark.parametrize("failures", [0, 1])
async def test_nodeclass_without_status_is_reported_to_members_once_it_repeats(
    cluster: FakeCluster, failures: int
) -> None:
    cluster.claims.add("a")
    cluster.node_classes.add("default", ready="Unknown")
    draft = LaunchDraft(
        group_id="g", pool="default", node_class="default", members=group_members("a"), failures=failures
    )
    await run_activity(cluster.launching.prepare_launch_group, GroupLaunchRequest(draft=draft))
    assert ("NodeClassNotReady" in cluster.workflows.launch_errors.get("uid-a", "")) is bool(failures)


async def test_denied_preparation_of_one_nodeclaim_is_reported_at_once(cluster: FakeCluster) -> None:
    cluster.claims.add("a")
    cluster.fleet.faults["prepare"] = [Forbidden("ec2:CreateLaunchTemplate", code="UnauthorizedOperation")]
    with pytest.raises(ApplicationError):
        await prepare(cluster)
    assert cluster.workflows.launch_errors == {"uid-a": "LaunchFailed: UnauthorizedOperation: ec2:CreateLaunchTemplate"}


async def test_mixed_fleet_errors_mark_offerings_and_are_not_final(cluster: FakeCluster) -> None:
    short = FleetError(
        code="InsufficientInstanceCapacity",
        message="",
        instance_type="m5.large",
        zone="us-west-2a",
        capacity_type="spot",
        insufficient=True,
    )
    denied = FleetError(code="UnauthorizedOperation", message="no", reason="Unauthorized")
    request = launch_group(cluster, "a")
    cluster.fleet.results[request.client_token()] = FleetResult(errors=(denied, short))
    outcome = await launch_request(cluster, request)
    assert outcome.rejection is not None and outcome.rejection.reason == "Unauthorized" and not outcome.rejection.final
    assert [offering.instance_type for offering in outcome.unavailable] == ["m5.large"]


async def test_failing_launch_without_members_ends_and_terminates_instances(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a", "b")
    cluster.fleet.lost_responses = [TryLater("503") for _ in range(3)]
    for attempt, there in ((2, False), (3, True)):
        if there:
            cluster.claims.add("a")
        with pytest.raises(ApplicationError):
            await run_activity(cluster.launching.launch_group, request, attempt=attempt)
    assert cluster.workflows.launch_errors == dict.fromkeys(("uid-a", "uid-b"), "LaunchFailed: 503")
    cluster.claims.found.clear()
    outcome = await launch_request(cluster, request, attempt=6)
    assert outcome.rejected == () and cluster.instances.running == {} and len(cluster.instances.terminated) == 2


async def test_instances_without_nodeclass_are_terminated(cluster: FakeCluster) -> None:
    request = launch_group(cluster, "a")
    cluster.node_classes.found.clear()
    with pytest.raises(ApplicationError):
        await launch_request(cluster, request)
    outcome = await launch_request(cluster, request, attempt=5)
    assert outcome.rejected == group_members("a") and cluster.instances.running == {}


async def test_rejected_group_notifies_existing_members(cluster: FakeCluster) -> None:
    cluster.claims.add("a")
    cluster.claims.add("b", uid="uid-other")
    await fail_group(cluster, "a", "b", "c", reason="NodeClassNotReady", message="no subnets")
    assert set(cluster.workflows.results) == {"uid-a"}
    assert cluster.workflows.results["uid-a"].result == LaunchRejection(
        reason="NodeClassNotReady", message="no subnets"
    )


async def test_recorded_instance_is_reported_instead_of_rejection(cluster: FakeCluster) -> None:
    cluster.claims.add("a")
    cluster.claims.set_status("a", provider_id="aws:///us-west-2a/i-1")
    await fail_group(cluster, "a", reason=DELETED)
    result = cluster.workflows.results["uid-a"].result
    assert isinstance(result, LaunchedInstance) and result.provider_id == "aws:///us-west-2a/i-1"


async def test_member_without_nodeclaim_is_notified_of_deletion(cluster: FakeCluster) -> None:
    await fail_group(cluster, "a", reason=DELETED)
    assert cluster.workflows.results["uid-a"].result == LaunchRejection(reason=DELETED)


def group_members(*names: str) -> tuple[LaunchGroupMember, ...]:
    return tuple(LaunchGroupMember(name=name, uid=f"uid-{name}") for name in names)


async def test_launch_result_has_price_of_offering(cluster: FakeCluster) -> None:
    await launch(cluster, "a")
    result = cluster.workflows.results["uid-a"].result
    assert isinstance(result, LaunchedInstance) and result.price == REQUEST.overrides[0].priority > 0


async def test_launch_result_of_other_offering_has_no_price(cluster: FakeCluster) -> None:
    elsewhere = REQUEST.overrides[0].model_copy(update={"zone": "us-west-2c"})
    request = launch_group(cluster, "a").model_copy(
        update={"request": REQUEST.model_copy(update={"overrides": (elsewhere,)})}
    )
    await launch_request(cluster, request)
    result = cluster.workflows.results["uid-a"].result
    assert isinstance(result, LaunchedInstance) and result.price == 0
