"""A mistake in an EC2NodeClass is told by its field, leaves nothing half-made, harms no other pool, and heals."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import EC2_NODE_CLASSES
from tenure.sandbox.errors import ApiError
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import node_class
from tests.support.product.product import Product
from tests.support.product.scene import Scene, condition, conditions, reason


@dataclass(frozen=True)
class Mistake:
    """`wrong` is laid over a good spec; `mended` over that, as a merge patch."""

    wrong: dict[str, Any]
    mended: dict[str, Any]
    kind: str
    reason: str
    words: tuple[str, ...]
    status: str = "False"
    also: dict[str, str] = field(default_factory=dict)
    """Other conditions, by their reasons."""


WAITING = {"ValidationSucceeded": "DependenciesNotReady"}
GOOD = node_class()["spec"]
WRONG_ROLE = "no-such-role"
"""The worker may not pass it on, whether there is one or not."""
MISTAKES = {
    "alias-malformed": Mistake(
        {"amiSelectorTerms": [{"alias": "al2023@a@b"}]},
        {"amiSelectorTerms": GOOD["amiSelectorTerms"]},
        "AMIsReady",
        "UnsupportedAlias",
        ("al2023@a@b", "family@version"),
        also=WAITING,
    ),
    "alias-unknown": Mistake(
        {"amiSelectorTerms": [{"alias": "al2023@v19990101"}]},
        {"amiSelectorTerms": GOOD["amiSelectorTerms"]},
        "AMIsReady",
        "AMINotFound",
        ("spec.amiSelectorTerms",),
        also=WAITING,
    ),
    "subnet": Mistake(
        {"subnetSelectorTerms": [{"id": "subnet-0123456789abcdef0"}]},
        {"subnetSelectorTerms": GOOD["subnetSelectorTerms"]},
        "SubnetsReady",
        "SubnetsNotFound",
        ("spec.subnetSelectorTerms",),
        also=WAITING,
    ),
    "group": Mistake(
        {"securityGroupSelectorTerms": [{"name": "no-such-group"}]},
        {"securityGroupSelectorTerms": GOOD["securityGroupSelectorTerms"]},
        "SecurityGroupsReady",
        "SecurityGroupsNotFound",
        ("spec.securityGroupSelectorTerms",),
        also=WAITING,
    ),
    "role": Mistake(
        {"role": WRONG_ROLE},
        {"role": GOOD["role"]},
        "InstanceProfileReady",
        "AwaitingReconciliation",
        (WRONG_ROLE, "spec.role"),
        status="Unknown",
        also=WAITING,
    ),
    "profile": Mistake(
        {"role": None, "instanceProfile": "no-such-profile"},
        {"role": GOOD["role"], "instanceProfile": None},
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
    "user-data-broken": Mistake(
        {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "userData": "[settings]\nmotd = \n"},
        {"userData": '[settings]\nmotd = "hello"\n'},
        "ValidationSucceeded",
        "InvalidUserData",
        ("spec.userData", "TOML", "line 2"),
    ),
    "user-data-size": Mistake(
        {"userData": "#!/bin/bash\n" + "# nothing\n" * 2000},
        {"userData": "#!/bin/bash\n"},
        "ValidationSucceeded",
        "UserDataSizeLimitExceeded",
        ("spec.userData", "16384"),
    ),
    "kubelet-field": Mistake(
        {"kubelet": {"maxPod": 20}},
        {"kubelet": {"maxPods": 20, "maxPod": None}},
        "ValidationSucceeded",
        "InvalidKubeletConfiguration",
        ("spec.kubelet", "maxPod ", "write maxPods"),
    ),
    "kubelet-expression": Mistake(
        {"kubelet": {"maxPods": "vcpus * 10"}},
        {"kubelet": {"maxPods": 20}},
        "ValidationSucceeded",
        "KubeletExpressionsDisabled",
        ("spec.kubelet.maxPods", "NodeClassCEL"),
    ),
}

USED = ("subnet", "profile", "user-data-form", "kubelet-field")
"""Those that a pool uses, with a pod that waits for it."""


async def test_a_mistake_in_a_class_names_its_field_stops_no_other_pool_and_heals_when_mended(
    product: Product,
) -> None:
    async with AsyncExitStack() as stack:
        scenes = {name: await stack.enter_async_context(_corner(product, name)) for name in USED}
        keeper = scenes[USED[0]]
        for name, mistake in MISTAKES.items():
            await _make(scenes.get(name, keeper), name, mistake.wrong)
        for scene in scenes.values():
            await scene.deploy(1)
        for name, mistake in MISTAKES.items():
            await eventually(partial(_is_told, product, name, mistake))
        async with product.scene("bad-other") as other:
            await other.run(1)
        for scene in scenes.values():
            assert scene.launched() == [] and await scene.claims() == [], scene.name
        await eventually(partial(_no_trial_is_left, product))
        for name, mistake in MISTAKES.items():
            await product.patch(EC2_NODE_CLASSES.path(name), {"spec": mistake.mended})
        for name in MISTAKES:
            await eventually(partial(product.node_class_is_ready, name))
        for scene in scenes.values():
            await eventually(partial(scene.pods_run, 1))
            await scene.one_node_was_bought()
        await asyncio.gather(*(_ends(product, scene, name) for name, scene in scenes.items()))


@pytest.mark.parametrize("key", ["karpenter.sh/nodepool", "kubernetes.io/cluster/other", "eks:eks-cluster-name"])
async def test_a_tag_that_is_the_controllers_own_is_refused_at_once(product: Product, key: str) -> None:
    wrong = node_class("forbidden-tag")
    wrong["spec"]["tags"] = {key: "mine"}
    with pytest.raises(ApiError, match=r"spec\.tags"):
        await product.kube.apply(wrong)


async def test_what_the_controller_may_not_do_is_told_by_its_name_and_heals_when_it_may(product: Product) -> None:
    """Three calls that a trial makes; each is denied in turn."""
    name = "bad-rights"
    async with _corner(product, name) as scene:
        for action, call in (
            ("CreateLaunchTemplate", "create_launch_template"),
            ("CreateFleet", "create_fleet"),
            ("RunInstances", "run_instances"),
        ):
            denied = scene.aws_fault("error", action, code="UnauthorizedOperation", http=403)
            await _make(scene, name, {"tags": {"try": action}})
            why = f"{action}AuthCheckFailed"
            await eventually(partial(_says, product, name, "ValidationSucceeded", "False", why, call, "deploy/iam"))
            scene.forgive(denied)
        await eventually(partial(_no_trial_is_left, product))
        await _make(scene, name, {"tags": {"try": "again"}})
        await eventually(partial(product.node_class_is_ready, name))
        assert scene.launched() == []


async def test_a_throttled_trial_is_no_failed_one(product: Product) -> None:
    name = "bad-slow"
    async with _corner(product, name) as scene:
        slow = scene.aws_fault("throttle", "RunInstances")
        await _make(scene, name, {})
        await eventually(partial(_says, product, name, "AWSAnswers", "False", "Undecided", "RequestLimitExceeded"))
        await throughout(partial(_never_failed, product, name), seconds=3)
        assert scene.launched() == []
        scene.forgive(slow)
        found = await eventually(partial(product.node_class_is_ready, name))
        assert condition(found, "AWSAnswers") == ""
        slow = scene.aws_fault("5xx", "CreateFleet")
        await product.patch(EC2_NODE_CLASSES.path(name), {"spec": {"tags": {"try": "again"}}})
        await eventually(partial(_says, product, name, "AWSAnswers", "False", "Undecided", "create_fleet"))
        await eventually(partial(_says, product, name, "Ready", "Unknown", "", "ValidationSucceeded=True"))
        scene.forgive(slow)
        await eventually(partial(product.node_class_is_ready, name))


async def test_a_class_that_never_was_ready_goes_at_once_and_one_in_use_with_its_last_node(product: Product) -> None:
    name = "bad-gone"
    path, other = EC2_NODE_CLASSES.path(name), EC2_NODE_CLASSES.path("bad-never")
    async with _corner(product, name) as scene:
        await _make(scene, "bad-never", {"role": WRONG_ROLE})
        await eventually(partial(_has_finalizer, product, other))
        await product.delete(other)
        await eventually(partial(product.is_gone, other))

        await _make(scene, name, {})
        (claim,) = await scene.run(1)
        uid = (await product.kube.request("GET", path))["metadata"]["uid"]
        assert len(await asyncio.to_thread(_profiles, product, uid)) == 1
        await product.delete(path)
        await eventually(partial(scene.event, name, "WaitingOnNodeClaimTermination", claim["metadata"]["name"]))
        await scene.scale(0)
        await eventually(partial(product.is_gone, path))
        assert await asyncio.to_thread(_profiles, product, uid) == []


def _corner(product: Product, name: str) -> Scene:
    """Its pool is of a class of this name, which is not there yet."""
    return product.scene(name, of_class=name)


async def _make(scene: Scene, name: str, wrong: dict[str, Any]) -> None:
    made = node_class(name)
    made["spec"] = {key: value for key, value in (made["spec"] | wrong).items() if value is not None}
    await scene.make(made)


async def _is_told(product: Product, name: str, mistake: Mistake) -> None:
    """By its condition, those that follow from it, and `Ready`, whose message is Karpenter's to the letter."""
    await _says(product, name, mistake.kind, mistake.status, mistake.reason, *mistake.words)
    for kind, why in mistake.also.items():
        await _says(product, name, kind, mistake.status, why)
    found = await product.kube.request("GET", EC2_NODE_CLASSES.path(name))
    bad = [*mistake.also, mistake.kind]
    assert condition(found, "Ready") == mistake.status
    assert conditions(found)["Ready"]["message"] == ", ".join(f"{kind}={mistake.status}" for kind in bad)


async def _says(product: Product, name: str, kind: str, status: str, why: str, *words: str) -> None:
    found = await product.kube.request("GET", EC2_NODE_CLASSES.path(name))
    told = reason(found, kind)
    assert condition(found, kind) == status, f"{name}: {kind} is {condition(found, kind)!r}, {told}"
    assert told.startswith(why) and all(word in told for word in words), f"{name}: {kind}: {told}"


async def _no_trial_is_left(product: Product) -> None:
    """Trials of other tests' classes may be under way at this moment."""
    left = [one for one in await product.launch_templates() if "/validation/" in one]
    assert left == []


async def _never_failed(product: Product, name: str) -> None:
    found = await product.kube.request("GET", EC2_NODE_CLASSES.path(name))
    assert condition(found, "ValidationSucceeded") == "Unknown", reason(found, "ValidationSucceeded")


async def _ends(product: Product, scene: Scene, name: str) -> None:
    await scene.scale(0)
    await product.delete(EC2_NODE_CLASSES.path(name))
    await eventually(partial(product.is_gone, EC2_NODE_CLASSES.path(name)))


async def _has_finalizer(product: Product, path: str) -> None:
    found = await product.kube.request("GET", path)
    assert labels.NODECLASS_TERMINATION_FINALIZER in (found["metadata"].get("finalizers") or ())


def _profiles(product: Product, uid: str) -> list[str]:
    """Instance profiles that were made for a class."""
    found = product.admin("iam").list_instance_profiles()["InstanceProfiles"]
    return [one["InstanceProfileName"] for one in found if uid in one["Path"]]
