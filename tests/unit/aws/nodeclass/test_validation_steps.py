"""Validation of an EC2NodeClass: Karpenter's order and reasons, dry runs without leftovers, and cached results."""

import asyncio
import base64
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.amifamily.image_disks import DisksByImage
from tenure.aws.client.client import AwsClients
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.eks_cluster import Clusters
from tenure.aws.instancetype.provider import AwsOfferings
from tenure.aws.instancetype.resolver import Region
from tenure.aws.nodeclass.validation import DEPENDENCIES, Validated, Validation
from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound, Throttled, TryLater
from tenure.model.provider_results import ConditionPatch
from tests.support.aws.builders import CLUSTER, SETTINGS, build_nodeclass, region, resolved_status
from tests.unit.aws.fakes import Named

R = TypeVar("R")
REGION = region("c5.large", "m5.large", "m5.xlarge")
READY = dict.fromkeys(DEPENDENCIES, "True")
ALLOWED = BadInput("Request would have succeeded, but DryRun flag is set.", code="DryRunOperation")
DENIED = Forbidden("You are not authorized to perform this operation.", code="UnauthorizedOperation")
NO_PROFILE = BadInput("Invalid IAM Instance Profile name", code="InvalidParameterValue")
BUSY = [
    Throttled("Request limit exceeded.", code="RequestLimitExceeded"),
    TryLater("An internal error has occurred", code="InternalError"),
]
CALLS = ("create_launch_template", "create_fleet", "run_instances")
REASONS = {
    "create_launch_template": "CreateLaunchTemplateAuthCheckFailed",
    "create_fleet": "CreateFleetAuthCheckFailed",
    "run_instances": "RunInstancesAuthCheckFailed",
}


class FakeEc2:
    """Replaces AwsClients; allows all dry runs except configured faults."""

    def __init__(self) -> None:
        self.ec2 = self.ec2_without_retries = Named()
        self.faults: dict[str, list[Fault]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.templates: set[str] = set()
        self.lost_responses: set[str] = set()
        """Calls whose responses are lost."""
        self.holds: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        """By call: the event set at its start, and the event that it waits for."""

    async def call(self, method: str, **request: Any) -> dict[str, Any]:
        self.calls.append((method, request))
        waiting = self.faults.get(method)
        if waiting:
            # The last fault stays.
            raise waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if method in self.holds:
            begun, resume = self.holds[method]
            begun.set()
            await resume.wait()
        if method == "create_launch_template":
            self.templates.add(request["LaunchTemplateName"])
        elif method == "delete_launch_template":
            self.templates.discard(request["LaunchTemplateName"])
        else:
            raise ALLOWED
        if method in self.lost_responses:
            raise TryLater("no answer in time")
        return {}

    async def in_thread(self, work: Callable[[], R]) -> R:
        return work()

    @property
    def counts(self) -> Counter[str]:
        return Counter(name for name, _ in self.calls)


class FakeClusters:
    def __init__(self, facts: ClusterFacts | Fault) -> None:
        self.result = facts

    async def facts(self) -> ClusterFacts:
        if isinstance(self.result, Fault):
            raise self.result
        return self.result


class FakeOfferings:
    async def region(self) -> Region:
        return REGION

    async def image_disks(self, node_class: EC2NodeClass) -> DisksByImage:
        return {}


class ValidationHarness:
    def __init__(self, facts: ClusterFacts | Fault = CLUSTER, **settings: Any) -> None:
        self.ec2, self.cluster = FakeEc2(), FakeClusters(facts)
        full_settings = SETTINGS.model_copy(update=settings)
        self.validation = Validation(
            cast(AwsClients, self.ec2),
            full_settings,
            clusters=cast(Clusters, self.cluster),
            offerings=cast(AwsOfferings, FakeOfferings()),
        )

    async def validate(self, depends: dict[str, str] | None = None, **spec: Any) -> Validated:
        return await self.validation.validate(build_nodeclass(resolved_status(), **spec), READY | (depends or {}), ())

    async def condition(self, depends: dict[str, str] | None = None, **spec: Any) -> ConditionPatch:
        found = await self.validate(depends, **spec)
        assert found.condition is not None, found
        return found.condition

    async def assert_condition(self, *expected: str, depends: dict[str, str] | None = None, **spec: Any) -> None:
        """Expect this status and reason."""
        found = await self.condition(depends, **spec)
        assert (found.status, found.reason) == expected, found


INVALID_SPEC: dict[str, Any] = {
    "kubelet": {"clusterDNS": ["10.0.0.1"], "maxPods": "100 / (vcpus - 2)"},
    "tags": {"kubernetes.io/cluster/other": "owned"},
}


async def test_first_problem_in_karpenter_order_is_reported() -> None:
    """Each step fixes the reported problem and keeps the others."""
    gated: dict[str, Any] = {"feature_gates": {FeatureGate.NODECLASS_CEL: True}}
    spec: dict[str, Any] = INVALID_SPEC | {"kubelet": INVALID_SPEC["kubelet"] | {"frobnicate": 1, "maxPods": "cores"}}
    spec["userData"] = "[settings]\n"
    no_range = ValidationHarness(CLUSTER.model_copy(update={"cidr": ""}), **gated)
    await no_range.assert_condition("False", "ClusterCIDRResolutionFailed", **spec)
    harness, closed = ValidationHarness(**gated), ValidationHarness()
    await harness.assert_condition("False", "InvalidKubeletConfiguration", **spec)
    del spec["kubelet"]["frobnicate"]
    await closed.assert_condition("False", "KubeletExpressionsDisabled", **spec)
    await harness.assert_condition("False", "KubeletExpressionInvalid", **spec)
    spec["kubelet"] = INVALID_SPEC["kubelet"]
    old = {"amiFamily": "Bottlerocket", "kubelet": INVALID_SPEC["kubelet"] | {"serializeImagePulls": True}}
    await harness.assert_condition("False", "UnsupportedKubeletConfiguration", **(spec | old))
    await harness.assert_condition("False", "InvalidUserData", **spec)
    spec["userData"] = "#!/bin/sh\n"
    await harness.assert_condition("False", "DependenciesNotReady", depends={"SubnetsReady": "False"}, **spec)
    await harness.assert_condition("False", "KubeletExpressionEvaluationFailed", **spec)
    spec["kubelet"] = {"maxPods": "vcpus * 10"}
    await harness.assert_condition("False", "TagValidationFailed", **spec)
    spec["tags"] = {"mine": "yes"}
    assert harness.ec2.calls == []
    await harness.assert_condition("True", "", **spec)


@pytest.mark.parametrize("name", DEPENDENCIES)
async def test_false_dependency_takes_precedence_over_unknown(name: str) -> None:
    harness = ValidationHarness()
    await harness.assert_condition("False", "DependenciesNotReady", depends={name: "False"})
    await harness.assert_condition("Unknown", "DependenciesNotReady", depends={name: "Unknown"})
    both = dict.fromkeys(DEPENDENCIES, "Unknown") | {name: "False"}
    found = await harness.condition(both)
    assert (found.status, found.message) == ("False", f"waiting for {name}")
    assert harness.ec2.calls == []


@pytest.mark.parametrize("name", ["PlacementGroupReady", "CapacityReservationsReady"])
async def test_other_conditions_are_not_dependencies(name: str) -> None:
    await ValidationHarness().assert_condition("True", "", depends={name: "False"})


@pytest.mark.parametrize("fault", [Forbidden("not allowed"), NotFound("no cluster"), BadInput("bad name")])
async def test_failed_cidr_lookup_matters_for_al2023_only(fault: Fault) -> None:
    harness = ValidationHarness(fault)
    found = await harness.condition()
    assert (found.reason, found.message) == ("ClusterCIDRResolutionFailed", fault.message)
    with pytest.raises(type(fault)):
        await harness.validate(amiFamily="Bottlerocket")


async def test_throttled_cidr_lookup_is_raised() -> None:
    with pytest.raises(Throttled):
        await ValidationHarness(Throttled("slow down")).validate()


async def test_dry_run_makes_three_calls_and_deletes_its_template() -> None:
    harness = ValidationHarness()
    await harness.assert_condition("True", "")
    assert [name for name, _ in harness.ec2.calls] == [*CALLS, "delete_launch_template"]
    assert harness.ec2.templates == set()
    assert all(request.get("DryRun") for name, request in harness.ec2.calls if name in CALLS[1:])


async def test_dry_run_can_be_disabled() -> None:
    harness = ValidationHarness(disable_dry_run=True)
    await harness.assert_condition("True", "")
    assert harness.ec2.calls == []
    await harness.assert_condition("False", "TagValidationFailed", tags={"karpenter.sh/nodepool": "mine"})


@pytest.mark.parametrize("call", CALLS)
async def test_unauthorized_call_is_reported_cached_and_leaves_no_template(call: str) -> None:
    harness = ValidationHarness()
    harness.ec2.faults[call] = [DENIED]
    found = await harness.condition()
    assert (found.status, found.reason) == ("False", REASONS[call])
    assert "UnauthorizedOperation" in found.message
    calls = harness.ec2.counts
    await harness.assert_condition("False", REASONS[call])
    assert harness.ec2.counts == calls
    assert harness.ec2.templates == set()


@pytest.mark.parametrize("fault", BUSY)
@pytest.mark.parametrize("call", CALLS)
async def test_transient_fault_is_undecided_and_not_cached(call: str, fault: Fault) -> None:
    harness = ValidationHarness()
    harness.ec2.faults[call] = [fault]
    found = await harness.validate()
    assert found.condition is None and fault.message in found.undecided
    assert harness.ec2.templates == set()
    harness.ec2.faults.clear()
    await harness.assert_condition("True", "")


async def test_unknown_new_profile_is_retried_soon() -> None:
    harness = ValidationHarness()
    harness.ec2.faults["run_instances"] = [NO_PROFILE]
    found = await harness.validate()
    assert found.condition is None and found.retry_after is not None and found.retry_after.total_seconds() <= 10
    harness.ec2.faults.clear()
    await harness.assert_condition("True", "")


async def test_missing_custom_profile_is_reported_and_not_cached() -> None:
    harness = ValidationHarness()
    own: dict[str, Any] = {"role": "", "instanceProfile": "mine"}
    harness.ec2.faults["run_instances"] = [NO_PROFILE]
    for attempts in (1, 2):
        await harness.assert_condition("False", "InstanceProfileNotFound", **own)
        assert harness.ec2.counts["create_fleet"] == attempts
    harness.ec2.faults.clear()
    await harness.assert_condition("True", "", **own)


async def test_one_valid_subnet_is_sufficient() -> None:
    harness = ValidationHarness()
    harness.ec2.faults["run_instances"] = [DENIED, DENIED, ALLOWED]
    await harness.assert_condition("True", "")
    requests = [request for name, request in harness.ec2.calls if name == "run_instances"]
    assert [one["NetworkInterfaces"][0]["SubnetId"] for one in requests] == ["subnet-a", "subnet-b", "subnet-c"]


async def test_first_subnet_error_is_reported_if_all_fail() -> None:
    harness = ValidationHarness()
    image = BadInput("The image id '[ami-1]' does not exist", code="InvalidAMIID.NotFound")
    harness.ec2.faults["run_instances"] = [image, DENIED]
    await harness.assert_condition("False", "AMINotFound")


async def test_existing_trial_template_is_used_and_deleted() -> None:
    harness = ValidationHarness()
    harness.ec2.faults["create_launch_template"] = [
        Conflict("in use", code="InvalidLaunchTemplateName.AlreadyExistsException")
    ]
    await harness.assert_condition("True", "")
    assert harness.ec2.counts["delete_launch_template"] == 1


async def test_undeletable_template_does_not_invalidate_nodeclass() -> None:
    harness = ValidationHarness()
    harness.ec2.faults["delete_launch_template"] = [TryLater("oops")]
    await harness.assert_condition("True", "")
    assert len(harness.ec2.templates) == 1
    harness.ec2.faults.clear()
    await harness.assert_condition("False", "TagValidationFailed", tags={"karpenter.sh/nodepool": "mine"})
    assert len(harness.ec2.templates) == 1, "no dry run was made"
    await harness.assert_condition("True", "")
    assert harness.ec2.templates == set(), "deleted by a validation with a cached result"


async def test_template_of_lost_response_is_deleted() -> None:
    harness = ValidationHarness()
    harness.ec2.lost_responses = {"create_launch_template"}
    found = await harness.validate()
    assert found.condition is None and "no answer" in found.undecided
    assert harness.ec2.templates == set()


@pytest.mark.parametrize("call", CALLS)
async def test_cancelled_validation_leaves_no_template(call: str) -> None:
    """The call continues in its thread, so its template is deleted afterwards."""
    harness = ValidationHarness()
    reached, resume = harness.ec2.holds[call] = asyncio.Event(), asyncio.Event()
    validation_task = asyncio.ensure_future(harness.validate())
    await reached.wait()
    validation_task.cancel()
    asyncio.get_running_loop().call_soon(resume.set)
    with pytest.raises(asyncio.CancelledError):
        await validation_task
    assert harness.ec2.counts["create_launch_template"] == harness.ec2.counts["delete_launch_template"] == 1
    assert harness.ec2.templates == set()


@pytest.mark.parametrize(
    ("changed", "is_revalidated"),
    [
        ({}, False),
        ({"tags": {"mine": "yes"}}, True),
        ({"userData": "#!/bin/sh\n"}, True),
        ({"kubelet": {"maxPods": 10}}, True),
        ({"detailedMonitoring": True}, True),
    ],
)
async def test_success_is_cached_until_nodeclass_changes(changed: dict[str, Any], is_revalidated: bool) -> None:
    harness = ValidationHarness()
    await harness.assert_condition("True", "")
    harness.ec2.calls.clear()
    await harness.assert_condition("True", "", **changed)
    assert bool(harness.ec2.calls) == is_revalidated


@pytest.mark.parametrize(
    ("changed", "is_revalidated"),
    [
        ({"subnets": list(reversed(resolved_status()["subnets"]))}, False),
        ({"amis": list(reversed(resolved_status()["amis"]))}, False),
        ({"subnets": resolved_status()["subnets"][:2]}, True),
        ({"securityGroups": [{"id": "sg-2", "name": "other"}]}, True),
        ({"instanceProfile": "demo_other"}, True),
        ({"amis": resolved_status()["amis"][1:]}, True),
    ],
)
async def test_success_is_cached_until_resolved_resources_change(changed: dict[str, Any], is_revalidated: bool) -> None:
    harness = ValidationHarness()
    await harness.assert_condition("True", "")
    harness.ec2.calls.clear()
    found = await harness.validation.validate(build_nodeclass(resolved_status(**changed)), READY, ())
    assert found.condition is not None and found.condition.status == "True"
    assert bool(harness.ec2.calls) == is_revalidated


async def test_new_annotations_revalidate_except_controller_annotations() -> None:
    harness = ValidationHarness()
    one = build_nodeclass(resolved_status())

    async def revalidates(**annotations: str) -> bool:
        harness.ec2.calls.clear()
        raw = one.to_object()
        raw["metadata"]["annotations"] = {key.replace("_", "/"): text for key, text in annotations.items()}
        await harness.validation.validate(EC2NodeClass.from_object(raw), READY, ())
        return bool(harness.ec2.calls)

    assert await revalidates()
    assert not await revalidates(**{"karpenter.k8s.aws_ec2nodeclass-hash": "1"})
    assert await revalidates(mine_look="again")


async def test_cached_result_is_removed_with_nodeclass() -> None:
    harness = ValidationHarness()
    await harness.assert_condition("True", "")
    harness.validation.forget(build_nodeclass())
    harness.ec2.calls.clear()
    await harness.assert_condition("True", "")
    assert harness.ec2.calls


@pytest.mark.parametrize(
    ("lines", "status", "reason", "warned"),
    [(10, "True", "", False), (1470, "True", "", True), (1700, "False", "UserDataSizeLimitExceeded", False)],
)
async def test_size_of_rendered_user_data_is_validated(lines: int, status: str, reason: str, warned: bool) -> None:
    found = await ValidationHarness().validate(userData="#!/bin/sh\n" + "# nothing\n" * lines)
    assert found.condition is not None
    assert (found.condition.status, found.condition.reason) == (status, reason)
    assert [warning_reason for warning_reason, _ in found.warnings] == (["UserDataNearLimit"] if warned else [])
    assert all("spec.userData" in message for _, message in [*found.warnings, ("", found.condition.message)] if message)


async def test_condition_and_warnings_name_settings_without_effect() -> None:
    found = await ValidationHarness().validate(
        amiFamily="Bottlerocket",
        userData='[settings.kubernetes]\nno-such-setting = "a"\n',
        blockDeviceMappings=[{"deviceName": "/dev/sdf", "ebs": {"volumeSize": "20Gi"}}],
    )
    assert found.condition is not None and found.condition.status == "True"
    assert [reason for reason, _ in found.warnings] == ["UserDataSettingsDropped", "RootVolumeNotMapped"]
    assert found.condition.message == "; ".join(message for _, message in found.warnings)
    assert "no-such-setting" in found.condition.message and "'/dev/sdf'" in found.condition.message


async def test_images_without_compatible_type_are_reported() -> None:
    harness = ValidationHarness()
    requirements = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["riscv"]}]
    one = build_nodeclass(resolved_status(amis=[{"id": "ami-1", "requirements": requirements}]))
    found = await harness.validation.validate(one, READY, ())
    assert found.condition is not None and found.condition.reason == "AMINotFound"
    assert "spec.amiSelectorTerms" in found.condition.message


async def test_dry_run_uses_evaluated_kubelet_expressions() -> None:
    harness = ValidationHarness(feature_gates={FeatureGate.NODECLASS_CEL: True})
    await harness.assert_condition("True", "", kubelet={"maxPods": "vcpus * 7"})
    (request,) = [request for name, request in harness.ec2.calls if name == "create_launch_template"]
    assert "maxPods: 14" in base64.b64decode(request["LaunchTemplateData"]["UserData"]).decode()
