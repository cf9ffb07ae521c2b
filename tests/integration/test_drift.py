"""Drift on the real parts: what is changed under a node is seen on its NodeClaim and in its workflow, and goes again.

Nothing is disrupted for it, since no budget allows it. Each scenario has an EC2NodeClass and a NodePool of its own, and
one node.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import boto3

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import DISCOVERY, Object, node_class
from tests.support.product.product import OwnProduct, Product
from tests.support.product.scene import Scene, condition, conditions

HOLD = 15.0
"""Seconds for which nothing may drift."""
OTHER_TYPE = "m5.large"


async def release(product: OwnProduct) -> None:
    """All images of the family have a successor, and a worker starts that has not read of the old ones. It is not the
    family of the other tests' nodes, which would drift as well."""
    await product.rest()
    product.aws.release_images("bottlerocket", "1.99.0")
    await product.go_on()


async def slow_down(product: Product) -> None:
    """EC2 takes its time to tell of instances, and often refuses to."""
    product.aws.add_fault("latency", service="ec2", action="DescribeInstances", latency=2.0, probability=0.5)
    product.aws.add_fault("throttle", service="ec2", action="DescribeInstances", probability=0.5)


async def recover(product: Product) -> None:
    product.aws.clear_faults()


class Drifting:
    """A scene with one node, the class that it was made from, and what to change about it."""

    def __init__(self, scene: Scene, node_class_name: str) -> None:
        self.scene, self.product = scene, scene.product
        self.class_path = EC2_NODE_CLASSES.path(node_class_name)
        self.node_class = node_class_name
        self.claims: list[str] = []

    async def start(self, nodes: int = 1) -> None:
        self.claims = [claim["metadata"]["name"] for claim in await self.scene.run(nodes)]

    @property
    def claim(self) -> str:
        return self.claims[0]

    async def change_class(self, **spec: Any) -> None:
        await self.product.patch(self.class_path, {"spec": spec})

    async def change_template(self, **template: Any) -> None:
        await self.product.patch(self.scene.pool_path, {"spec": {"template": template}})

    async def look(self) -> Object:
        return await self.product.kube.request("GET", NODE_CLAIMS.path(self.claim))

    async def has_drifted(self, reason: str, *words: str) -> None:
        """NodeClaim, event and workflow say so, and the node is in service."""
        found = conditions(await self.look()).get(labels.DRIFTED, {})
        assert (found.get("status"), found.get("reason")) == ("True", reason), f"{self.scene.name}: {found}"
        assert all(word in found["message"] for word in words), found
        await self.scene.event(self.claim, reason)
        await self.scene.is_blocked_by(self.claim, f"drifted: {reason}", "waits for its replacement to be planned")

    async def has_not_drifted(self) -> None:
        for claim in await self.scene.claims():
            assert not condition(claim, labels.DRIFTED), f"{claim['metadata']['name']}: {conditions(claim)['Drifted']}"

    async def stays(self) -> None:
        """The node that was there is still there, and in service."""
        await self.scene.claims_stand(self.claims)
        await self.scene.nodes_were_bought(len(self.claims))

    async def drifts(self, reason: str, *words: str) -> None:
        await eventually(lambda: self.has_drifted(reason, *words))
        await self.stays()

    async def is_mended(self) -> None:
        await eventually(self.has_not_drifted)

    async def resolved(self) -> Object:
        """The status of the class, of its spec as it is now."""
        found = await self.product.kube.request("GET", self.class_path)
        generation = found["metadata"]["generation"]
        ready = conditions(found).get("Ready", {})
        assert (ready.get("status"), ready.get("observedGeneration")) == ("True", generation), ready
        status: Object = found["status"]
        return status


@asynccontextmanager
async def drifting(
    product: Product, name: str, spec: Mapping[str, Any] | None = None, **pool: Any
) -> AsyncIterator[Drifting]:
    """A class whose spec has `spec` laid over the usual one, its pool, and afterwards nothing of either."""
    async with product.scene(name, of_class=f"drift-{name}", budget="0", **pool) as scene:
        drift = Drifting(scene, f"drift-{name}")
        made = node_class(drift.node_class)
        made["spec"] |= spec or {}
        await product.kube.apply(made)
        try:
            await eventually(drift.resolved)
            yield drift
        finally:
            await product.delete(drift.class_path)
    await eventually(lambda: product.is_gone(drift.class_path))


def aws(product: Product, service: str) -> Any:
    """As the account's owner."""
    client: Any = boto3.session.Session("admin", "admin", region_name=product.sandbox.plan.region).client
    return client(service, endpoint_url=product.sandbox.aws_endpoint)


def published(product: Product, name: str, *, days: int, **image: Any) -> str:
    """An image of that age."""
    created = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return product.aws.publish_image(name, architecture="x86_64", created=created, **image)


async def test_a_newer_image_of_the_same_name(product: Product) -> None:
    old = published(product, "drift-image-1", days=9)
    wanted = [{"name": "drift-image-*"}]
    async with drifting(product, "image", {"amiFamily": "AL2023", "amiSelectorTerms": wanted}) as drift:
        await drift.start()
        assert (await drift.look())["status"]["imageID"] == old
        new = published(product, "drift-image-2", days=1)
        await drift.change_class(amiSelectorTerms=[*wanted, {"name": "drift-image-2*"}])
        await drift.drifts("AMIDrift", old, new)
        await drift.change_class(amiSelectorTerms=[{"id": old}])
        await drift.is_mended()


async def test_a_deprecated_image_that_gets_a_successor(product: Product) -> None:
    old = published(product, "drift-deprecated-1", days=9)
    product.aws.deprecate_image(old)
    wanted = [{"id": old}]
    async with drifting(product, "deprecated", {"amiFamily": "AL2023", "amiSelectorTerms": wanted}) as drift:
        assert (await drift.resolved())["amis"][0]["deprecated"] is True
        await drift.start()
        await drift.has_not_drifted()
        new = published(product, "drift-deprecated-2", days=20)
        await drift.change_class(amiSelectorTerms=[*wanted, {"id": new}])
        await drift.drifts("AMIDrift", old, new)


async def test_a_security_group_that_is_no_longer_selected(product: Product) -> None:
    ec2 = aws(product, "ec2")
    usual = next(one for one in ec2.describe_security_groups()["SecurityGroups"] if _is_discovered(one))
    vpc, first = usual["VpcId"], usual["GroupId"]
    second = ec2.create_security_group(GroupName="drift-second", Description="second", VpcId=vpc)["GroupId"]
    both = [{"id": first}, {"id": second}]
    async with drifting(product, "groups", {"securityGroupSelectorTerms": both}) as drift:
        await drift.start()
        await drift.change_class(securityGroupSelectorTerms=[{"id": first}])
        await drift.drifts("SecurityGroupDrift", second)
        await drift.change_class(securityGroupSelectorTerms=both)
        await drift.is_mended()
    ec2.delete_security_group(GroupId=second)


def _is_discovered(found: Mapping[str, Any]) -> bool:
    return any(tag["Key"] == "karpenter.sh/discovery" for tag in found.get("Tags", ()))


async def test_a_subnet_that_is_no_longer_selected(product: Product) -> None:
    async with drifting(product, "subnets") as drift:
        await drift.start()
        zone = (await drift.look())["metadata"]["labels"][labels.ZONE]
        subnets = (await drift.resolved())["subnets"]
        others = [{"id": one["id"]} for one in subnets if one["zone"] != zone]
        (home,) = [one["id"] for one in subnets if one["zone"] == zone]
        assert others
        await drift.change_class(subnetSelectorTerms=others)
        await drift.drifts("SubnetDrift", home)
        await drift.change_class(subnetSelectorTerms=[DISCOVERY])
        await drift.is_mended()


STATIC: Mapping[str, tuple[Any, Any]] = {
    "tags": ({"team": "web"}, None),
    "userData": ("echo hello", None),
    "detailedMonitoring": (True, None),
    "metadataOptions": ({"httpPutResponseHopLimit": 2}, {"httpPutResponseHopLimit": 1}),
    "blockDeviceMappings": ([{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "40Gi"}}], None),
    "kubelet": ({"maxPods": 42}, None),
    "associatePublicIPAddress": (True, None),
}
"""Fields of the class to a value, and to what takes it back."""


async def test_each_static_field_of_the_class(product: Product) -> None:
    async with drifting(product, "static") as drift:
        await drift.start()
        for field, (changed, back) in STATIC.items():
            await drift.change_class(**{field: changed})
            await drift.drifts("NodeClassDrift", drift.node_class)
            await drift.change_class(**{field: back})
            await drift.is_mended()
        await drift.stays()


async def test_another_role(product: Product) -> None:
    iam = aws(product, "iam")
    trust = iam.get_role(RoleName="KarpenterNodeRole-demo")["Role"]["AssumeRolePolicyDocument"]
    iam.create_role(RoleName="KarpenterNodeRole-drift", AssumeRolePolicyDocument=str(trust).replace("'", '"'))
    async with drifting(product, "role") as drift:
        await drift.start()
        await drift.change_class(role="KarpenterNodeRole-drift")
        await drift.drifts("NodeClassDrift", drift.node_class)
        await drift.change_class(role="KarpenterNodeRole-demo")
        await drift.is_mended()
    iam.delete_role(RoleName="KarpenterNodeRole-drift")


async def test_another_template_of_the_pool(product: Product) -> None:
    async with drifting(product, "template") as drift:
        await drift.start()
        changes: tuple[tuple[Object, Object], ...] = (
            ({"metadata": {"labels": {"team": "web"}}}, {"metadata": {"labels": {"team": None}}}),
            ({"metadata": {"annotations": {"note": "x"}}}, {"metadata": {"annotations": {"note": None}}}),
            ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, {"spec": {"taints": None}}),
            ({"spec": {"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}}, {"spec": {"startupTaints": None}}),
            ({"spec": {"expireAfter": "700h"}}, {"spec": {"expireAfter": "720h"}}),
        )
        for changed, back in changes:
            await drift.change_template(**changed)
            await drift.drifts("NodePoolDrifted", drift.scene.name)
            await drift.change_template(**back)
            await drift.is_mended()
        await drift.product.patch(drift.scene.pool_path, {"spec": {"weight": 7, "limits": {"cpu": "90"}}})
        await throughout(drift.has_not_drifted, seconds=3)


async def test_requirements_that_the_node_does_not_satisfy(product: Product) -> None:
    async with drifting(product, "requirements") as drift:
        await drift.start()
        wanted = (await product.kube.request("GET", drift.scene.pool_path))["spec"]["template"]["spec"]["requirements"]
        other = [{"key": labels.INSTANCE_TYPE, "operator": "In", "values": [OTHER_TYPE]}]
        await drift.change_template(spec={"requirements": other})
        await drift.drifts("RequirementsDrifted", OTHER_TYPE)
        await drift.change_template(spec={"requirements": wanted})
        await drift.is_mended()


async def test_stamps_of_another_version_are_rewritten_and_nothing_drifts(product: Product) -> None:
    pool_stamps = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
    class_stamps = (labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION)
    async with drifting(product, "stamps") as drift:
        await drift.start()
        claim_path = NODE_CLAIMS.path(drift.claim)
        before = await _stamps(product, claim_path, *pool_stamps, *class_stamps)
        for stamps, owner in ((pool_stamps, drift.scene.pool_path), (class_stamps, drift.class_path)):
            stale = {"metadata": {"annotations": dict(zip(stamps, ("1", "v0"), strict=True))}}
            await product.patch(claim_path, stale)
            await product.patch(owner, stale)
            await eventually(partial(_is_restamped, product, owner, *stamps))
            await eventually(partial(_is_restamped, product, claim_path, *stamps))
            await throughout(drift.has_not_drifted, seconds=5)
        assert await _stamps(product, claim_path, *pool_stamps, *class_stamps) == before


async def _stamps(product: Product, path: str, *keys: str) -> list[str]:
    annotations = (await product.kube.request("GET", path))["metadata"].get("annotations") or {}
    return [annotations.get(key, "") for key in keys]


async def _is_restamped(product: Product, path: str, *keys: str) -> None:
    found = await _stamps(product, path, *keys)
    assert found[0] != "1" and found[1] == HASH_VERSION, f"{path}: {found}"


async def test_without_its_class_a_node_stands(product: Product) -> None:
    """The class is being deleted, and held by its node: there is nothing to compare the node with."""
    async with drifting(product, "going", {"tags": {"a": "1"}}) as drift:
        await drift.start()
        await drift.change_class(tags={"a": "2"})
        await drift.drifts("NodeClassDrift")
        await product.delete(drift.class_path)
        await drift.is_mended()
        await eventually(lambda: drift.scene.event(drift.scene.name, "NodeClassTerminating", drift.node_class))


async def test_an_alias_of_the_latest_release(own_product: OwnProduct) -> None:
    await own_product.work()
    async with drifting(own_product, "alias", {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}) as drift:
        await drift.start()
        old = (await drift.look())["status"]["imageID"]
        await release(own_product)
        await drift.has_not_drifted()
        await drift.change_class(subnetSelectorTerms=[DISCOVERY, DISCOVERY])
        await drift.drifts("AMIDrift", old)


async def test_nothing_drifts_while_ec2_answers_slowly_or_not_at_all(own_product: OwnProduct) -> None:
    """Nodes come while it does so, and their class is looked at again and again."""
    await own_product.work()
    async with drifting(own_product, "slow") as drift:
        await drift.start()
        await slow_down(own_product)
        await drift.scene.scale(4)
        await _hold(drift)
        await recover(own_product)
        await eventually(lambda: drift.scene.pods_run(4))
        await _hold(drift)


async def _hold(drift: Drifting) -> None:
    """Whatever is asked of the class, the answer is the same."""
    terms: tuple[list[Object], ...] = ([DISCOVERY, DISCOVERY], [DISCOVERY])
    for term in terms:
        await drift.change_class(subnetSelectorTerms=term, securityGroupSelectorTerms=term)
        await throughout(drift.has_not_drifted, seconds=HOLD / len(terms))
