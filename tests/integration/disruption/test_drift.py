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
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import DISCOVERY, Object, node_class
from tests.support.product.product import DedicatedProduct, InstalledProduct
from tests.support.product.scene import ClusterScope, condition_status, conditions_by_type

HOLD = 15.0
"""Seconds for which nothing may drift."""
OTHER_TYPE = "m5.large"


async def release_images(product: DedicatedProduct) -> None:
    """All images of the family have a successor, and a worker starts that has not read of the old ones. It is not the
    family of the other tests' nodes, which would drift as well."""
    await product.stop_workers()
    product.aws.release_images("bottlerocket", "1.99.0")
    await product.resume_worker()


async def slow_down(product: InstalledProduct) -> None:
    """EC2 takes its time to tell of instances, and often refuses to."""
    product.aws.add_fault("latency", service="ec2", action="DescribeInstances", latency=2.0, probability=0.5)
    product.aws.add_fault("throttle", service="ec2", action="DescribeInstances", probability=0.5)


async def recover(product: InstalledProduct) -> None:
    product.aws.clear_faults()


class DriftScope:
    """A scene with one node, the class that it was made from, and what to change about it."""

    def __init__(self, scope: ClusterScope, node_class_name: str) -> None:
        self.scope, self.product = scope, scope.product
        self.class_path = EC2_NODE_CLASSES.path(node_class_name)
        self.node_class = node_class_name
        self.claims: list[str] = []

    async def start(self, nodes: int = 1) -> None:
        self.claims = [claim["metadata"]["name"] for claim in await self.scope.run_pods(nodes)]

    @property
    def claim(self) -> str:
        return self.claims[0]

    async def change_class(self, **spec: Any) -> None:
        await self.product.patch(self.class_path, {"spec": spec})

    async def change_template(self, **template: Any) -> None:
        await self.product.patch(self.scope.pool_path, {"spec": {"template": template}})

    async def get_nodeclaim(self) -> Object:
        return await self.product.kube.request("GET", NODE_CLAIMS.path(self.claim))

    async def assert_drifted(self, reason: str, *messages: str) -> None:
        """NodeClaim, event and workflow say so, and the node is in service."""
        found = conditions_by_type(await self.get_nodeclaim()).get(labels.DRIFTED, {})
        assert (found.get("status"), found.get("reason")) == ("True", reason), f"{self.scope.name}: {found}"
        assert all(message in found["message"] for message in messages), found
        await self.scope.assert_event(self.claim, reason)
        await self.scope.assert_blocked_by(self.claim, f"drifted: {reason}", "waits for its replacement to be planned")

    async def assert_not_drifted(self) -> None:
        for claim in await self.scope.nodeclaims():
            assert not condition_status(claim, labels.DRIFTED), (
                f"{claim['metadata']['name']}: {conditions_by_type(claim)['Drifted']}"
            )

    async def assert_retained(self) -> None:
        """The node that was there is still there, and in service."""
        await self.scope.assert_nodeclaims_exist(self.claims)
        await self.scope.wait_until_nodes_launched(len(self.claims))

    async def wait_until_drifted(self, reason: str, *messages: str) -> None:
        await wait_until(lambda: self.assert_drifted(reason, *messages))
        await self.assert_retained()

    async def wait_until_not_drifted(self) -> None:
        await wait_until(self.assert_not_drifted)

    async def assert_resolved(self) -> Object:
        """The status of the class, of its spec as it is now."""
        found = await self.product.kube.request("GET", self.class_path)
        generation = found["metadata"]["generation"]
        ready = conditions_by_type(found).get("Ready", {})
        assert (ready.get("status"), ready.get("observedGeneration")) == ("True", generation), ready
        status: Object = found["status"]
        return status


@asynccontextmanager
async def drift_scope(
    product: InstalledProduct, name: str, spec: Mapping[str, Any] | None = None, **pool: Any
) -> AsyncIterator[DriftScope]:
    """A class whose spec has `spec` laid over the usual one, its pool, and afterwards nothing of either."""
    async with product.scope(name, of_class=f"drift-{name}", budget="0", **pool) as scope:
        drift = DriftScope(scope, f"drift-{name}")
        made = node_class(drift.node_class)
        made["spec"] |= spec or {}
        await product.kube.apply(made)
        try:
            await wait_until(drift.assert_resolved)
            yield drift
        finally:
            await product.delete(drift.class_path)
    await wait_until(lambda: product.assert_deleted(drift.class_path))


def admin_client(product: InstalledProduct, service: str) -> Any:
    """As the account's owner."""
    client: Any = boto3.session.Session("admin", "admin", region_name=product.sandbox.plan.region).client
    return client(service, endpoint_url=product.sandbox.aws_endpoint)


def publish_image(product: InstalledProduct, name: str, *, days: int, **image: Any) -> str:
    """An image of that age."""
    created = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return product.aws.publish_image(name, architecture="x86_64", created=created, **image)


async def test_a_newer_image_of_the_same_name(product: InstalledProduct) -> None:
    old = publish_image(product, "drift-image-1", days=9)
    selector_terms = [{"name": "drift-image-*"}]
    async with drift_scope(product, "image", {"amiFamily": "AL2023", "amiSelectorTerms": selector_terms}) as drift:
        await drift.start()
        assert (await drift.get_nodeclaim())["status"]["imageID"] == old
        new = publish_image(product, "drift-image-2", days=1)
        await drift.change_class(amiSelectorTerms=[*selector_terms, {"name": "drift-image-2*"}])
        await drift.wait_until_drifted("AMIDrift", old, new)
        await drift.change_class(amiSelectorTerms=[{"id": old}])
        await drift.wait_until_not_drifted()


async def test_a_deprecated_image_that_gets_a_successor(product: InstalledProduct) -> None:
    old = publish_image(product, "drift-deprecated-1", days=9)
    product.aws.deprecate_image(old)
    selector_terms = [{"id": old}]
    async with drift_scope(product, "deprecated", {"amiFamily": "AL2023", "amiSelectorTerms": selector_terms}) as drift:
        assert (await drift.assert_resolved())["amis"][0]["deprecated"] is True
        await drift.start()
        await drift.assert_not_drifted()
        new = publish_image(product, "drift-deprecated-2", days=20)
        await drift.change_class(amiSelectorTerms=[*selector_terms, {"id": new}])
        await drift.wait_until_drifted("AMIDrift", old, new)


async def test_a_security_group_that_is_no_longer_selected(product: InstalledProduct) -> None:
    ec2 = admin_client(product, "ec2")
    default_group = next(one for one in ec2.describe_security_groups()["SecurityGroups"] if _is_discovered(one))
    vpc, first = default_group["VpcId"], default_group["GroupId"]
    second = ec2.create_security_group(GroupName="drift-second", Description="second", VpcId=vpc)["GroupId"]
    both = [{"id": first}, {"id": second}]
    async with drift_scope(product, "groups", {"securityGroupSelectorTerms": both}) as drift:
        await drift.start()
        await drift.change_class(securityGroupSelectorTerms=[{"id": first}])
        await drift.wait_until_drifted("SecurityGroupDrift", second)
        await drift.change_class(securityGroupSelectorTerms=both)
        await drift.wait_until_not_drifted()
    ec2.delete_security_group(GroupId=second)


def _is_discovered(found: Mapping[str, Any]) -> bool:
    return any(tag["Key"] == "karpenter.sh/discovery" for tag in found.get("Tags", ()))


async def test_a_subnet_that_is_no_longer_selected(product: InstalledProduct) -> None:
    async with drift_scope(product, "subnets") as drift:
        await drift.start()
        zone = (await drift.get_nodeclaim())["metadata"]["labels"][labels.ZONE]
        subnets = (await drift.assert_resolved())["subnets"]
        others = [{"id": one["id"]} for one in subnets if one["zone"] != zone]
        (home,) = [one["id"] for one in subnets if one["zone"] == zone]
        assert others
        await drift.change_class(subnetSelectorTerms=others)
        await drift.wait_until_drifted("SubnetDrift", home)
        await drift.change_class(subnetSelectorTerms=[DISCOVERY])
        await drift.wait_until_not_drifted()


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


async def test_each_static_field_of_the_class(product: InstalledProduct) -> None:
    async with drift_scope(product, "static") as drift:
        await drift.start()
        for field, (changed, back) in STATIC.items():
            await drift.change_class(**{field: changed})
            await drift.wait_until_drifted("NodeClassDrift", drift.node_class)
            await drift.change_class(**{field: back})
            await drift.wait_until_not_drifted()
        await drift.assert_retained()


async def test_another_role(product: InstalledProduct) -> None:
    iam = admin_client(product, "iam")
    trust = iam.get_role(RoleName="KarpenterNodeRole-demo")["Role"]["AssumeRolePolicyDocument"]
    iam.create_role(RoleName="KarpenterNodeRole-drift", AssumeRolePolicyDocument=str(trust).replace("'", '"'))
    async with drift_scope(product, "role") as drift:
        await drift.start()
        await drift.change_class(role="KarpenterNodeRole-drift")
        await drift.wait_until_drifted("NodeClassDrift", drift.node_class)
        await drift.change_class(role="KarpenterNodeRole-demo")
        await drift.wait_until_not_drifted()
    iam.delete_role(RoleName="KarpenterNodeRole-drift")


async def test_another_template_of_the_pool(product: InstalledProduct) -> None:
    async with drift_scope(product, "template") as drift:
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
            await drift.wait_until_drifted("NodePoolDrifted", drift.scope.name)
            await drift.change_template(**back)
            await drift.wait_until_not_drifted()
        await drift.product.patch(drift.scope.pool_path, {"spec": {"weight": 7, "limits": {"cpu": "90"}}})
        await assert_throughout(drift.assert_not_drifted, seconds=3)


async def test_requirements_that_the_node_does_not_satisfy(product: InstalledProduct) -> None:
    async with drift_scope(product, "requirements") as drift:
        await drift.start()
        requirements = (await product.kube.request("GET", drift.scope.pool_path))["spec"]["template"]["spec"][
            "requirements"
        ]
        other = [{"key": labels.INSTANCE_TYPE, "operator": "In", "values": [OTHER_TYPE]}]
        await drift.change_template(spec={"requirements": other})
        await drift.wait_until_drifted("RequirementsDrifted", OTHER_TYPE)
        await drift.change_template(spec={"requirements": requirements})
        await drift.wait_until_not_drifted()


async def test_stamps_of_another_version_are_rewritten_and_nothing_drifts(product: InstalledProduct) -> None:
    pool_stamps = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
    class_stamps = (labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION)
    async with drift_scope(product, "stamps") as drift:
        await drift.start()
        claim_path = NODE_CLAIMS.path(drift.claim)
        before = await _stamps(product, claim_path, *pool_stamps, *class_stamps)
        for stamps, owner in ((pool_stamps, drift.scope.pool_path), (class_stamps, drift.class_path)):
            stale = {"metadata": {"annotations": dict(zip(stamps, ("1", "v0"), strict=True))}}
            await product.patch(claim_path, stale)
            await product.patch(owner, stale)
            await wait_until(partial(_assert_hashes_rewritten, product, owner, *stamps))
            await wait_until(partial(_assert_hashes_rewritten, product, claim_path, *stamps))
            await assert_throughout(drift.assert_not_drifted, seconds=5)
        assert await _stamps(product, claim_path, *pool_stamps, *class_stamps) == before


async def _stamps(product: InstalledProduct, path: str, *keys: str) -> list[str]:
    annotations = (await product.kube.request("GET", path))["metadata"].get("annotations") or {}
    return [annotations.get(key, "") for key in keys]


async def _assert_hashes_rewritten(product: InstalledProduct, path: str, *keys: str) -> None:
    found = await _stamps(product, path, *keys)
    assert found[0] != "1" and found[1] == HASH_VERSION, f"{path}: {found}"


async def test_without_its_class_a_node_stands(product: InstalledProduct) -> None:
    """The class is being deleted, and held by its node: there is nothing to compare the node with."""
    async with drift_scope(product, "going", {"tags": {"a": "1"}}) as drift:
        await drift.start()
        await drift.change_class(tags={"a": "2"})
        await drift.wait_until_drifted("NodeClassDrift")
        await product.delete(drift.class_path)
        await drift.wait_until_not_drifted()
        await wait_until(lambda: drift.scope.assert_event(drift.scope.name, "NodeClassTerminating", drift.node_class))


async def test_an_alias_of_the_latest_release(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with drift_scope(own_product, "alias", {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}) as drift:
        await drift.start()
        old = (await drift.get_nodeclaim())["status"]["imageID"]
        await release_images(own_product)
        await drift.assert_not_drifted()
        await drift.change_class(subnetSelectorTerms=[DISCOVERY, DISCOVERY])
        await drift.wait_until_drifted("AMIDrift", old)


async def test_nothing_drifts_while_ec2_answers_slowly_or_not_at_all(own_product: DedicatedProduct) -> None:
    """Nodes come while it does so, and their class is looked at again and again."""
    await own_product.ensure_worker()
    async with drift_scope(own_product, "slow") as drift:
        await drift.start()
        await slow_down(own_product)
        await drift.scope.scale_deployment(4)
        await _hold(drift)
        await recover(own_product)
        await wait_until(lambda: drift.scope.assert_pods_running(4))
        await _hold(drift)


async def _hold(drift: DriftScope) -> None:
    """Whatever is asked of the class, the answer is the same."""
    terms: tuple[list[Object], ...] = ([DISCOVERY, DISCOVERY], [DISCOVERY])
    for term in terms:
        await drift.change_class(subnetSelectorTerms=term, securityGroupSelectorTerms=term)
        await assert_throughout(drift.assert_not_drifted, seconds=HOLD / len(terms))
