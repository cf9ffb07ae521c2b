"""An invalid EC2NodeClass is reported by field, leaves no partial resources, affects no other pool, and recovers."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import EC2_NODE_CLASSES
from tenure.sandbox.errors import ApiError
from tests.support.product.cluster_scope import ClusterScope, condition_reason, condition_status, conditions_by_type
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import node_class
from tests.support.product.product import InstalledProduct


@dataclass(frozen=True)
class Mistake:
    """`invalid_spec` is merged into a valid spec; `fix` is a merge patch that corrects it."""

    invalid_spec: dict[str, Any]
    fix: dict[str, Any]
    kind: str
    reason: str
    messages: tuple[str, ...]
    status: str = "False"
    also: dict[str, str] = field(default_factory=dict)
    """Reasons of other conditions, by type."""


WAITING = {"ValidationSucceeded": "DependenciesNotReady"}
VALID_SPEC = node_class()["spec"]
MISSING_ROLE = "no-such-role"
"""The worker may not pass this role, whether it exists or not."""
MISTAKES = {
    "alias-unknown": Mistake(
        {"amiSelectorTerms": [{"alias": "al2023@v19990101"}]},
        {"amiSelectorTerms": VALID_SPEC["amiSelectorTerms"]},
        "AMIsReady",
        "AMINotFound",
        ("spec.amiSelectorTerms",),
        also=WAITING,
    ),
    "subnet": Mistake(
        {"subnetSelectorTerms": [{"id": "subnet-0123456789abcdef0"}]},
        {"subnetSelectorTerms": VALID_SPEC["subnetSelectorTerms"]},
        "SubnetsReady",
        "SubnetsNotFound",
        ("spec.subnetSelectorTerms",),
        also=WAITING,
    ),
    "group": Mistake(
        {"securityGroupSelectorTerms": [{"name": "no-such-group"}]},
        {"securityGroupSelectorTerms": VALID_SPEC["securityGroupSelectorTerms"]},
        "SecurityGroupsReady",
        "SecurityGroupsNotFound",
        ("spec.securityGroupSelectorTerms",),
        also=WAITING,
    ),
    "role": Mistake(
        {"role": MISSING_ROLE},
        {"role": VALID_SPEC["role"]},
        "InstanceProfileReady",
        "AwaitingReconciliation",
        (MISSING_ROLE, "spec.role"),
        status="Unknown",
        also=WAITING,
    ),
    "profile": Mistake(
        {"role": None, "instanceProfile": "no-such-profile"},
        {"role": VALID_SPEC["role"], "instanceProfile": None},
        "ValidationSucceeded",
        "InstanceProfileNotFound",
        ("spec.instanceProfile", "no-such-profile"),
    ),
    "placement": Mistake(
        {"placementGroupSelector": {"name": "no-such-place"}},
        {"placementGroupSelector": None},
        "PlacementGroupReady",
        "PlacementGroupNotFound",
        ("spec.placementGroupSelector", "no-such-place"),
    ),
    "user-data-form": Mistake(
        {"userData": "[settings.kubernetes]\nkube-api-qps = 30\n"},
        {"userData": "#!/bin/bash\necho hello\n"},
        "ValidationSucceeded",
        "InvalidUserData",
        ("spec.userData", "Bottlerocket", "AL2023"),
    ),
    "kubelet-field": Mistake(
        {"kubelet": {"maxPod": 20}},
        {"kubelet": {"maxPods": 20, "maxPod": None}},
        "ValidationSucceeded",
        "InvalidKubeletConfiguration",
        ("spec.kubelet", "maxPod ", "did you mean maxPods?"),
    ),
}

WITH_PENDING_POD = ("subnet", "profile", "user-data-form", "kubelet-field")
"""Classes that a NodePool with a pending pod uses."""


async def test_invalid_class_is_reported_by_field_and_recovers_when_fixed(product: InstalledProduct) -> None:
    async with AsyncExitStack() as stack:
        scopes = {name: await stack.enter_async_context(_scope(product, name)) for name in WITH_PENDING_POD}
        default_scope = scopes[WITH_PENDING_POD[0]]
        for name, mistake in MISTAKES.items():
            await _create_nodeclass(scopes.get(name, default_scope), name, mistake.invalid_spec)
        for scope in scopes.values():
            await scope.create_deployment(1)
        for name, mistake in MISTAKES.items():
            await wait_until(partial(_assert_mistake_reported, product, name, mistake))
        async with product.scope("bad-other") as other:
            await other.run_pods(1)
        for scope in scopes.values():
            assert scope.launched_instances() == [] and await scope.nodeclaims() == [], scope.name
        await wait_until(partial(_assert_no_validation_templates, product))
        for name, mistake in MISTAKES.items():
            await product.patch(EC2_NODE_CLASSES.path(name), {"spec": mistake.fix})
        for name in MISTAKES:
            await wait_until(partial(product.assert_nodeclass_ready, name))
        for scope in scopes.values():
            await wait_until(partial(scope.assert_pods_running, 1))
            await scope.assert_one_node_launched()
        await asyncio.gather(*(_assert_class_deleted(product, scope, name) for name, scope in scopes.items()))


@pytest.mark.parametrize("key", ["karpenter.sh/nodepool", "kubernetes.io/cluster/other", "eks:eks-cluster-name"])
async def test_reserved_tag_is_rejected_by_the_api_server(product: InstalledProduct, key: str) -> None:
    invalid_nodeclass = node_class("forbidden-tag")
    invalid_nodeclass["spec"]["tags"] = {key: "mine"}
    with pytest.raises(ApiError, match=r"spec\.tags"):
        await product.kube.apply(invalid_nodeclass)


async def test_denied_validation_call_is_named_and_recovers_when_allowed(product: InstalledProduct) -> None:
    """Each of the three calls of the validation is denied in turn."""
    name = "bad-rights"
    async with _scope(product, name) as scope:
        for action, call in (
            ("CreateLaunchTemplate", "create_launch_template"),
            ("CreateFleet", "create_fleet"),
            ("RunInstances", "run_instances"),
        ):
            denied = scope.inject_aws_fault("error", action, code="UnauthorizedOperation", http=403)
            await _create_nodeclass(scope, name, {"tags": {"try": action}})
            why = f"{action}AuthCheckFailed"
            await wait_until(
                partial(_assert_condition, product, name, "ValidationSucceeded", "False", why, call, "deploy/iam")
            )
            scope.remove_aws_fault(denied)
        await wait_until(partial(_assert_no_validation_templates, product))
        await _create_nodeclass(scope, name, {"tags": {"try": "again"}})
        await wait_until(partial(product.assert_nodeclass_ready, name))
        assert scope.launched_instances() == []


async def test_throttled_validation_does_not_fail(product: InstalledProduct) -> None:
    name = "bad-slow"
    async with _scope(product, name) as scope:
        slow = scope.inject_aws_fault("throttle", "RunInstances")
        await _create_nodeclass(scope, name, {})
        await wait_until(
            partial(_assert_condition, product, name, "AWSAnswers", "False", "Undecided", "RequestLimitExceeded")
        )
        await assert_throughout(partial(_assert_validation_unknown, product, name), seconds=3)
        assert scope.launched_instances() == []
        scope.remove_aws_fault(slow)
        found = await wait_until(partial(product.assert_nodeclass_ready, name))
        assert condition_status(found, "AWSAnswers") == ""
        slow = scope.inject_aws_fault("5xx", "CreateFleet")
        await product.patch(EC2_NODE_CLASSES.path(name), {"spec": {"tags": {"try": "again"}}})
        await wait_until(partial(_assert_condition, product, name, "AWSAnswers", "False", "Undecided", "create_fleet"))
        await wait_until(partial(_assert_condition, product, name, "Ready", "Unknown", "", "ValidationSucceeded=True"))
        scope.remove_aws_fault(slow)
        await wait_until(partial(product.assert_nodeclass_ready, name))


async def test_unused_class_is_deleted_at_once_and_used_one_with_its_last_node(product: InstalledProduct) -> None:
    name = "bad-gone"
    path, other = EC2_NODE_CLASSES.path(name), EC2_NODE_CLASSES.path("bad-never")
    async with _scope(product, name) as scope:
        await _create_nodeclass(scope, "bad-never", {"role": MISSING_ROLE})
        await wait_until(partial(_assert_finalizer, product, other))
        await product.delete(other)
        await wait_until(partial(product.assert_deleted, other))

        await _create_nodeclass(scope, name, {})
        (claim,) = await scope.run_pods(1)
        uid = (await product.kube.request("GET", path))["metadata"]["uid"]
        assert len(await asyncio.to_thread(_list_profiles, product, uid)) == 1
        await product.delete(path)
        await wait_until(partial(scope.assert_event, name, "WaitingOnNodeClaimTermination", claim["metadata"]["name"]))
        await scope.scale_deployment(0)
        await wait_until(partial(product.assert_deleted, path))
        assert await asyncio.to_thread(_list_profiles, product, uid) == []


def _scope(product: InstalledProduct, name: str) -> ClusterScope:
    """A scope whose NodePool references a class of this name, which does not exist yet."""
    return product.scope(name, of_class=name)


async def _create_nodeclass(scope: ClusterScope, name: str, invalid_spec: dict[str, Any]) -> None:
    manifest = node_class(name)
    manifest["spec"] = {key: value for key, value in (manifest["spec"] | invalid_spec).items() if value is not None}
    await scope.apply_manifest(manifest)


async def _assert_mistake_reported(product: InstalledProduct, name: str, mistake: Mistake) -> None:
    """The mistake's condition, dependent conditions, and `Ready` with exactly Karpenter's message."""
    await _assert_condition(product, name, mistake.kind, mistake.status, mistake.reason, *mistake.messages)
    for kind, why in mistake.also.items():
        await _assert_condition(product, name, kind, mistake.status, why)
    found = await product.kube.request("GET", EC2_NODE_CLASSES.path(name))
    failed_types = [*mistake.also, mistake.kind]
    assert condition_status(found, "Ready") == mistake.status
    assert conditions_by_type(found)["Ready"]["message"] == ", ".join(
        f"{kind}={mistake.status}" for kind in failed_types
    )


async def _assert_condition(
    product: InstalledProduct, name: str, kind: str, status: str, why: str, *messages: str
) -> None:
    found = await product.kube.request("GET", EC2_NODE_CLASSES.path(name))
    text = condition_reason(found, kind)
    assert condition_status(found, kind) == status, f"{name}: {kind} is {condition_status(found, kind)!r}, {text}"
    assert text.startswith(why) and all(message in text for message in messages), f"{name}: {kind}: {text}"


async def _assert_no_validation_templates(product: InstalledProduct) -> None:
    """Other tests' classes may be in validation at this moment, so retry."""
    remaining = [one for one in await product.launch_template_names() if "/validation/" in one]
    assert remaining == []


async def _assert_validation_unknown(product: InstalledProduct, name: str) -> None:
    found = await product.kube.request("GET", EC2_NODE_CLASSES.path(name))
    assert condition_status(found, "ValidationSucceeded") == "Unknown", condition_reason(found, "ValidationSucceeded")


async def _assert_class_deleted(product: InstalledProduct, scope: ClusterScope, name: str) -> None:
    await scope.scale_deployment(0)
    await product.delete(EC2_NODE_CLASSES.path(name))
    await wait_until(partial(product.assert_deleted, EC2_NODE_CLASSES.path(name)))


async def _assert_finalizer(product: InstalledProduct, path: str) -> None:
    found = await product.kube.request("GET", path)
    assert labels.NODECLASS_TERMINATION_FINALIZER in (found["metadata"].get("finalizers") or ())


def _list_profiles(product: InstalledProduct, uid: str) -> list[str]:
    """Names of the instance profiles of a class."""
    found = product.admin_client("iam").list_instance_profiles()["InstanceProfiles"]
    return [one["InstanceProfileName"] for one in found if uid in one["Path"]]
