"""Validation of an EC2NodeClass: Karpenter's order and reasons, a trial that leaves nothing, and what is remembered."""

import asyncio
import base64
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.client.client import AwsClients
from tenure.aws.eks_cluster import ClusterFacts, Clusters
from tenure.aws.instancetype.provider import AwsOfferings
from tenure.aws.instancetype.resolver import Region
from tenure.aws.nodeclass.validation import DEPENDENCIES, Validated, Validation
from tenure.aws.settings import NODECLASS_CEL
from tenure.model.errors import BadInput, Conflict, Fault, Forbidden, NotFound, Throttled, TryLater
from tenure.model.provider_results import ConditionPatch
from tests.support.aws.builders import CLUSTER, SETTINGS, node_class, region, resolved_status
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


class Ec2:
    """Stands for AwsClients: allows all dry runs but those that a test says otherwise of."""

    def __init__(self) -> None:
        self.ec2 = self.launching = Named()
        self.faults: dict[str, list[Fault]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.templates: set[str] = set()
        self.lost: set[str] = set()
        """Calls whose answers do not arrive."""
        self.holds: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        """By call: set as it begins, and what it waits for."""

    async def call(self, method: str, **request: Any) -> dict[str, Any]:
        self.asked.append((method, request))
        waiting = self.faults.get(method)
        if waiting:
            # The last one stays.
            raise waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if method in self.holds:
            begun, answers = self.holds[method]
            begun.set()
            await answers.wait()
        if method == "create_launch_template":
            self.templates.add(request["LaunchTemplateName"])
        elif method == "delete_launch_template":
            self.templates.discard(request["LaunchTemplateName"])
        else:
            raise ALLOWED
        if method in self.lost:
            raise TryLater("no answer in time")
        return {}

    async def in_thread(self, work: Callable[[], R]) -> R:
        return work()

    @property
    def counts(self) -> Counter[str]:
        return Counter(name for name, _ in self.asked)


class Facts:
    def __init__(self, facts: ClusterFacts | Fault) -> None:
        self.said = facts

    async def facts(self) -> ClusterFacts:
        if isinstance(self.said, Fault):
            raise self.said
        return self.said


class Types:
    async def region(self) -> Region:
        return REGION


class Scene:
    def __init__(self, facts: ClusterFacts | Fault = CLUSTER, **settings: Any) -> None:
        self.ec2, self.cluster = Ec2(), Facts(facts)
        whole = SETTINGS.model_copy(update=settings)
        self.validation = Validation(
            cast(AwsClients, self.ec2),
            whole,
            clusters=cast(Clusters, self.cluster),
            offerings=cast(AwsOfferings, Types()),
        )

    async def of(self, depends: dict[str, str] | None = None, **spec: Any) -> Validated:
        return await self.validation.of(node_class(resolved_status(), **spec), READY | (depends or {}), ())

    async def condition(self, depends: dict[str, str] | None = None, **spec: Any) -> ConditionPatch:
        found = await self.of(depends, **spec)
        assert found.condition is not None, found
        return found.condition

    async def says(self, *told: str, depends: dict[str, str] | None = None, **spec: Any) -> None:
        """Status and reason."""
        found = await self.condition(depends, **spec)
        assert (found.status, found.reason) == told, found


WRONG: dict[str, Any] = {
    "kubelet": {"clusterDNS": ["10.0.0.1"], "maxPods": "100 / (vcpus - 2)"},
    "tags": {"kubernetes.io/cluster/other": "owned"},
}


async def test_of_several_mistakes_the_one_that_karpenter_looks_for_first_is_told() -> None:
    """Each step mends what was told, and keeps the rest."""
    gated: dict[str, Any] = {"feature_gates": {NODECLASS_CEL: True}}
    spec: dict[str, Any] = WRONG | {"kubelet": WRONG["kubelet"] | {"frobnicate": 1, "maxPods": "cores"}}
    spec["userData"] = "[settings]\n"
    no_range = Scene(CLUSTER.model_copy(update={"cidr": ""}), **gated)
    await no_range.says("False", "ClusterCIDRResolutionFailed", **spec)
    scene, closed = Scene(**gated), Scene()
    await scene.says("False", "InvalidKubeletConfiguration", **spec)
    del spec["kubelet"]["frobnicate"]
    await closed.says("False", "KubeletExpressionsDisabled", **spec)
    await scene.says("False", "KubeletExpressionInvalid", **spec)
    spec["kubelet"] = WRONG["kubelet"]
    old = {"amiFamily": "Bottlerocket", "kubelet": WRONG["kubelet"] | {"serializeImagePulls": True}}
    await scene.says("False", "UnsupportedKubeletConfiguration", **(spec | old))
    await scene.says("False", "InvalidUserData", **spec)
    spec["userData"] = "#!/bin/sh\n"
    await scene.says("False", "DependenciesNotReady", depends={"SubnetsReady": "False"}, **spec)
    await scene.says("False", "KubeletExpressionEvaluationFailed", **spec)
    spec["kubelet"] = {"maxPods": "vcpus * 10"}
    await scene.says("False", "TagValidationFailed", **spec)
    spec["tags"] = {"mine": "yes"}
    assert scene.ec2.asked == []
    await scene.says("True", "", **spec)


@pytest.mark.parametrize("name", DEPENDENCIES)
async def test_each_dependency_counts_and_false_weighs_more_than_unknown(name: str) -> None:
    scene = Scene()
    await scene.says("False", "DependenciesNotReady", depends={name: "False"})
    await scene.says("Unknown", "DependenciesNotReady", depends={name: "Unknown"})
    both = dict.fromkeys(DEPENDENCIES, "Unknown") | {name: "False"}
    found = await scene.condition(both)
    assert (found.status, found.message) == ("False", f"waiting for {name}")
    assert scene.ec2.asked == []


@pytest.mark.parametrize("name", ["PlacementGroupReady", "CapacityReservationsReady"])
async def test_other_conditions_are_no_dependencies(name: str) -> None:
    await Scene().says("True", "", depends={name: "False"})


@pytest.mark.parametrize("fault", [Forbidden("not allowed"), NotFound("no cluster"), BadInput("bad name")])
async def test_a_range_that_eks_does_not_tell_is_told_of_al2023_alone(fault: Fault) -> None:
    scene = Scene(fault)
    found = await scene.condition()
    assert (found.reason, found.message) == ("ClusterCIDRResolutionFailed", fault.message)
    with pytest.raises(type(fault)):
        await scene.of(amiFamily="Bottlerocket")


async def test_a_range_that_eks_is_too_busy_to_tell_is_no_failure() -> None:
    with pytest.raises(Throttled):
        await Scene(Throttled("slow down")).of()


async def test_a_trial_asks_three_calls_once_and_leaves_no_template() -> None:
    scene = Scene()
    await scene.says("True", "")
    assert [name for name, _ in scene.ec2.asked] == [*CALLS, "delete_launch_template"]
    assert scene.ec2.templates == set()
    assert all(request.get("DryRun") for name, request in scene.ec2.asked if name in CALLS[1:])


async def test_a_trial_is_not_made_where_the_setting_says_so() -> None:
    scene = Scene(disable_dry_run=True)
    await scene.says("True", "")
    assert scene.ec2.asked == []
    await scene.says("False", "TagValidationFailed", tags={"karpenter.sh/nodepool": "mine"})


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_not_allowed_has_the_calls_own_reason_is_remembered_and_leaves_no_template(call: str) -> None:
    scene = Scene()
    scene.ec2.faults[call] = [DENIED]
    found = await scene.condition()
    assert (found.status, found.reason) == ("False", REASONS[call])
    assert "UnauthorizedOperation" in found.message
    asked = scene.ec2.counts
    await scene.says("False", REASONS[call])
    assert scene.ec2.counts == asked
    assert scene.ec2.templates == set()


@pytest.mark.parametrize("fault", BUSY)
@pytest.mark.parametrize("call", CALLS)
async def test_what_ec2_is_too_busy_to_say_is_neither_failed_nor_remembered(call: str, fault: Fault) -> None:
    scene = Scene()
    scene.ec2.faults[call] = [fault]
    found = await scene.of()
    assert found.condition is None and fault.message in found.unanswered
    assert scene.ec2.templates == set()
    scene.ec2.faults.clear()
    await scene.says("True", "")


async def test_a_new_profile_that_ec2_does_not_know_yet_is_looked_for_very_soon() -> None:
    scene = Scene()
    scene.ec2.faults["run_instances"] = [NO_PROFILE]
    found = await scene.of()
    assert found.condition is None and found.again_in is not None and found.again_in.total_seconds() <= 10
    scene.ec2.faults.clear()
    await scene.says("True", "")


async def test_a_profile_given_by_hand_that_is_not_there_is_told_and_asked_for_again_at_each_look() -> None:
    scene = Scene()
    own: dict[str, Any] = {"role": "", "instanceProfile": "mine"}
    scene.ec2.faults["run_instances"] = [NO_PROFILE]
    for looks in (1, 2):
        await scene.says("False", "InstanceProfileNotFound", **own)
        assert scene.ec2.counts["create_fleet"] == looks
    scene.ec2.faults.clear()
    await scene.says("True", "", **own)


async def test_one_subnet_that_works_is_enough() -> None:
    scene = Scene()
    scene.ec2.faults["run_instances"] = [DENIED, DENIED, ALLOWED]
    await scene.says("True", "")
    asked = [request for name, request in scene.ec2.asked if name == "run_instances"]
    assert [one["NetworkInterfaces"][0]["SubnetId"] for one in asked] == ["subnet-a", "subnet-b", "subnet-c"]


async def test_where_no_subnet_works_the_first_says_why() -> None:
    scene = Scene()
    image = BadInput("The image id '[ami-1]' does not exist", code="InvalidAMIID.NotFound")
    scene.ec2.faults["run_instances"] = [image, DENIED]
    await scene.says("False", "AMINotFound")


async def test_a_trial_template_that_a_dead_worker_left_is_used_and_deleted() -> None:
    scene = Scene()
    scene.ec2.faults["create_launch_template"] = [
        Conflict("in use", code="InvalidLaunchTemplateName.AlreadyExistsException")
    ]
    await scene.says("True", "")
    assert scene.ec2.counts["delete_launch_template"] == 1


async def test_a_template_that_cannot_be_deleted_is_no_verdict_on_the_class() -> None:
    scene = Scene()
    scene.ec2.faults["delete_launch_template"] = [TryLater("oops")]
    await scene.says("True", "")
    assert len(scene.ec2.templates) == 1
    scene.ec2.faults.clear()
    await scene.says("False", "TagValidationFailed", tags={"karpenter.sh/nodepool": "mine"})
    assert len(scene.ec2.templates) == 1, "no trial was made"
    await scene.says("True", "")
    assert scene.ec2.templates == set(), "deleted by a look at a class whose verdict is known"


async def test_a_template_that_ec2_made_without_saying_so_is_deleted() -> None:
    scene = Scene()
    scene.ec2.lost = {"create_launch_template"}
    found = await scene.of()
    assert found.condition is None and "no answer" in found.unanswered
    assert scene.ec2.templates == set()


@pytest.mark.parametrize("call", CALLS)
async def test_a_look_that_is_cancelled_at_a_call_leaves_no_template(call: str) -> None:
    """The call goes on in its thread: what it makes is deleted after it."""
    scene = Scene()
    reached, answers = scene.ec2.holds[call] = asyncio.Event(), asyncio.Event()
    look = asyncio.ensure_future(scene.of())
    await reached.wait()
    look.cancel()
    asyncio.get_running_loop().call_soon(answers.set)
    with pytest.raises(asyncio.CancelledError):
        await look
    assert scene.ec2.counts["create_launch_template"] == scene.ec2.counts["delete_launch_template"] == 1
    assert scene.ec2.templates == set()


@pytest.mark.parametrize(
    ("changed", "asked_again"),
    [
        ({}, False),
        ({"tags": {"mine": "yes"}}, True),
        ({"userData": "#!/bin/sh\n"}, True),
        ({"kubelet": {"maxPods": 10}}, True),
        ({"detailedMonitoring": True}, True),
    ],
)
async def test_a_good_verdict_holds_until_the_class_changes(changed: dict[str, Any], asked_again: bool) -> None:
    scene = Scene()
    await scene.says("True", "")
    scene.ec2.asked.clear()
    await scene.says("True", "", **changed)
    assert bool(scene.ec2.asked) == asked_again


@pytest.mark.parametrize(
    ("changed", "asked_again"),
    [
        ({"subnets": list(reversed(resolved_status()["subnets"]))}, False),
        ({"amis": list(reversed(resolved_status()["amis"]))}, False),
        ({"subnets": resolved_status()["subnets"][:2]}, True),
        ({"securityGroups": [{"id": "sg-2", "name": "other"}]}, True),
        ({"instanceProfile": "demo_other"}, True),
        ({"amis": resolved_status()["amis"][1:]}, True),
    ],
)
async def test_a_good_verdict_holds_until_what_it_resolved_to_changes(
    changed: dict[str, Any], asked_again: bool
) -> None:
    scene = Scene()
    await scene.says("True", "")
    scene.ec2.asked.clear()
    found = await scene.validation.of(node_class(resolved_status(**changed)), READY, ())
    assert found.condition is not None and found.condition.status == "True"
    assert bool(scene.ec2.asked) == asked_again


async def test_annotations_ask_anew_but_the_controllers_own_do_not() -> None:
    scene = Scene()
    one = node_class(resolved_status())

    async def asks(**annotations: str) -> bool:
        scene.ec2.asked.clear()
        raw = one.to_object()
        raw["metadata"]["annotations"] = {key.replace("_", "/"): text for key, text in annotations.items()}
        await scene.validation.of(EC2NodeClass.from_object(raw), READY, ())
        return bool(scene.ec2.asked)

    assert await asks()
    assert not await asks(**{"karpenter.k8s.aws_ec2nodeclass-hash": "1"})
    assert await asks(mine_look="again")


async def test_the_verdict_is_forgotten_with_the_class() -> None:
    scene = Scene()
    await scene.says("True", "")
    scene.validation.forget(node_class())
    scene.ec2.asked.clear()
    await scene.says("True", "")
    assert scene.ec2.asked


@pytest.mark.parametrize(
    ("lines", "status", "reason", "warned"),
    [(10, "True", "", False), (1470, "True", "", True), (1700, "False", "UserDataSizeLimitExceeded", False)],
)
async def test_the_size_of_the_whole_user_data_counts(lines: int, status: str, reason: str, warned: bool) -> None:
    found = await Scene().of(userData="#!/bin/sh\n" + "# nothing\n" * lines)
    assert found.condition is not None
    assert (found.condition.status, found.condition.reason) == (status, reason)
    assert [told for told, _ in found.warnings] == (["UserDataNearLimit"] if warned else [])
    assert all("spec.userData" in said for _, said in [*found.warnings, ("", found.condition.message)] if said)


async def test_images_that_no_type_runs_are_told() -> None:
    scene = Scene()
    wants = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["riscv"]}]
    one = node_class(resolved_status(amis=[{"id": "ami-1", "requirements": wants}]))
    found = await scene.validation.of(one, READY, ())
    assert found.condition is not None and found.condition.reason == "AMINotFound"
    assert "spec.amiSelectorTerms" in found.condition.message


async def test_the_trial_bears_the_amounts_that_expressions_make() -> None:
    scene = Scene(feature_gates={NODECLASS_CEL: True})
    await scene.says("True", "", kubelet={"maxPods": "vcpus * 7"})
    (request,) = [request for name, request in scene.ec2.asked if name == "create_launch_template"]
    assert "maxPods: 14" in base64.b64decode(request["LaunchTemplateData"]["UserData"]).decode()
