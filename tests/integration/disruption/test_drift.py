"""Drift on real components: a change appears on the NodeClaim and in its workflow, and disappears when reverted.

Budgets of 0 prevent disruption. Each test has its own EC2NodeClass and NodePool, with one node.
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
from tests.support.product.cluster_scope import ClusterScope, condition_status, conditions_by_type
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import DISCOVERY, Object, node_class
from tests.support.product.product import DedicatedProduct, InstalledProduct

NO_DRIFT_SECONDS = 15.0
"""Seconds for which nothing may drift."""
OTHER_TYPE = "m5.large"


async def release_images(product: DedicatedProduct) -> None:
    """Release a successor of every image of the family, and restart the worker so that it has no cached images. The
    nodes of other tests use another family, so they do not drift.
    """
    await product.stop_workers()
    product.aws.release_images("bottlerocket", "1.99.0")
    await product.resume_worker()


async def slow_down(product: InstalledProduct) -> None:
    """Half of EC2's DescribeInstances calls are slow, and half are throttled."""
    product.aws.add_fault("latency", service="ec2", action="DescribeInstances", latency=2.0, probability=0.5)
    product.aws.add_fault("throttle", service="ec2", action="DescribeInstances", probability=0.5)


async def recover(product: InstalledProduct) -> None:
    product.aws.clear_faults()


class DriftScope:
    """A cluster scope with one node and its EC2NodeClass, and changes to both."""

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
        """NodeClaim, event and workflow report the drift, and the node stays in service."""
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
        """The original nodes still exist, and no other was launched."""
        await self.scope.assert_nodeclaims_exist(self.claims)
        await self.scope.wait_until_nodes_launched(len(self.claims))

    async def wait_until_drifted(self, reason: str, *messages: str) -> None:
        await wait_until(lambda: self.assert_drifted(reason, *messages))
        await self.assert_retained()

    async def wait_until_not_drifted(self) -> None:
        await wait_until(self.assert_not_drifted)

    async def assert_resolved(self) -> Object:
        """The class is Ready for its current generation. Returns its status."""
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
    """An EC2NodeClass with `spec` merged into the default one, and its NodePool. Both are deleted at the end."""
    async with product.scope(name, of_class=f"drift-{name}", budget="0", **pool) as scope:
        drift = DriftScope(scope, f"drift-{name}")
        original = node_class(drift.node_class)
        original["spec"] |= spec or {}
        await product.kube.apply(original)
        try:
            await wait_until(drift.assert_resolved)
            yield drift
        finally:
            await product.delete(drift.class_path)
    await wait_until(lambda: product.assert_deleted(drift.class_path))


def admin_client(product: InstalledProduct, service: str) -> Any:
    """A client with the rights of the account's owner."""
    client: Any = boto3.session.Session("admin", "admin", region_name=product.sandbox.plan.region).client
    return client(service, endpoint_url=product.sandbox.aws_endpoint)


def publish_image(product: InstalledProduct, name: str, *, days: int, **image: Any) -> str:
    """Publish an image of this age."""
    created = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return product.aws.publish_image(name, architecture="x86_64", created=created, **image)


async def test_newer_image_of_the_same_name_is_ami_drift(product: InstalledProduct) -> None:
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


async def test_deselected_security_group_is_drift(product: InstalledProduct) -> None:
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


async def test_deselected_subnet_is_drift(product: InstalledProduct) -> None:
    async with drift_scope(product, "subnets") as drift:
        await drift.start()
        zone = (await drift.get_nodeclaim())["metadata"]["labels"][labels.ZONE]
        subnets = (await drift.assert_resolved())["subnets"]
        others = [{"id": one["id"]} for one in subnets if one["zone"] != zone]
        (current_subnet,) = [one["id"] for one in subnets if one["zone"] == zone]
        assert others
        await drift.change_class(subnetSelectorTerms=others)
        await drift.wait_until_drifted("SubnetDrift", current_subnet)
        await drift.change_class(subnetSelectorTerms=[DISCOVERY])
        await drift.wait_until_not_drifted()


STATIC_FIELDS: Mapping[str, tuple[Any, Any]] = {
    "tags": ({"team": "web"}, None),
    "userData": ("echo hello", None),
    "detailedMonitoring": (True, None),
    "metadataOptions": ({"httpPutResponseHopLimit": 2}, {"httpPutResponseHopLimit": 1}),
    "blockDeviceMappings": ([{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "40Gi"}}], None),
    "kubelet": ({"maxPods": 42}, None),
    "associatePublicIPAddress": (True, None),
}
"""Fields of the class: a changed value, and the value that reverts it."""


async def test_each_static_field_of_the_class_is_drift(product: InstalledProduct) -> None:
    async with drift_scope(product, "static") as drift:
        await drift.start()
        for field, (changed, back) in STATIC_FIELDS.items():
            await drift.change_class(**{field: changed})
            await drift.wait_until_drifted("NodeClassDrift", drift.node_class)
            await drift.change_class(**{field: back})
            await drift.wait_until_not_drifted()
        await drift.assert_retained()


async def test_changed_nodepool_template_is_drift(product: InstalledProduct) -> None:
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


async def test_unsatisfied_requirements_are_drift(product: InstalledProduct) -> None:
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


async def test_hashes_of_another_version_are_rewritten_without_drift(product: InstalledProduct) -> None:
    nodepool_hash_keys = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
    nodeclass_hash_keys = (labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION)
    async with drift_scope(product, "stamps") as drift:
        await drift.start()
        claim_path = NODE_CLAIMS.path(drift.claim)
        before = await _read_hashes(product, claim_path, *nodepool_hash_keys, *nodeclass_hash_keys)
        for hash_keys, owner in ((nodepool_hash_keys, drift.scope.pool_path), (nodeclass_hash_keys, drift.class_path)):
            stale = {"metadata": {"annotations": dict(zip(hash_keys, ("1", "v0"), strict=True))}}
            await product.patch(claim_path, stale)
            await product.patch(owner, stale)
            await wait_until(partial(_assert_hashes_rewritten, product, owner, *hash_keys))
            await wait_until(partial(_assert_hashes_rewritten, product, claim_path, *hash_keys))
            await assert_throughout(drift.assert_not_drifted, seconds=5)
        assert await _read_hashes(product, claim_path, *nodepool_hash_keys, *nodeclass_hash_keys) == before


async def _read_hashes(product: InstalledProduct, path: str, *keys: str) -> list[str]:
    annotations = (await product.kube.request("GET", path))["metadata"].get("annotations") or {}
    return [annotations.get(key, "") for key in keys]


async def _assert_hashes_rewritten(product: InstalledProduct, path: str, *keys: str) -> None:
    found = await _read_hashes(product, path, *keys)
    assert found[0] != "1" and found[1] == HASH_VERSION, f"{path}: {found}"


async def test_node_of_a_deleting_class_does_not_drift(product: InstalledProduct) -> None:
    """The node's finalizer keeps the deleted class; there is no class to compare the node with."""
    async with drift_scope(product, "going", {"tags": {"a": "1"}}) as drift:
        await drift.start()
        await drift.change_class(tags={"a": "2"})
        await drift.wait_until_drifted("NodeClassDrift")
        await product.delete(drift.class_path)
        await drift.wait_until_not_drifted()
        await wait_until(lambda: drift.scope.assert_event(drift.scope.name, "NodeClassTerminating", drift.node_class))


async def test_new_release_of_a_latest_alias_is_ami_drift(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker()
    async with drift_scope(own_product, "alias", {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}) as drift:
        await drift.start()
        old = (await drift.get_nodeclaim())["status"]["imageID"]
        await release_images(own_product)
        await drift.assert_not_drifted()
        await drift.change_class(subnetSelectorTerms=[DISCOVERY, DISCOVERY])
        await drift.wait_until_drifted("AMIDrift", old)


async def test_nothing_drifts_while_ec2_is_slow_or_throttled(own_product: DedicatedProduct) -> None:
    """New nodes launch meanwhile, and their class is resolved repeatedly."""
    await own_product.ensure_worker()
    async with drift_scope(own_product, "slow") as drift:
        await drift.start()
        await slow_down(own_product)
        await drift.scope.scale_deployment(4)
        await _assert_no_drift_on_new_generations(drift)
        await recover(own_product)
        await wait_until(lambda: drift.scope.assert_pods_running(4))
        await _assert_no_drift_on_new_generations(drift)


async def _assert_no_drift_on_new_generations(drift: DriftScope) -> None:
    """Each change of the class selects the same resources again."""
    terms: tuple[list[Object], ...] = ([DISCOVERY, DISCOVERY], [DISCOVERY])
    for term in terms:
        await drift.change_class(subnetSelectorTerms=term, securityGroupSelectorTerms=term)
        await assert_throughout(drift.assert_not_drifted, seconds=NO_DRIFT_SECONDS / len(terms))
