"""Adoption of a Karpenter cluster: dry run, handover, handback, and a second adoption, without drift or deleted
nodes.
"""

import asyncio
from pathlib import Path

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION
from tenure.kube.client.resources import EC2_NODE_CLASSES, NAMESPACES, NODE_CLAIMS, NODE_POOLS
from tenure.model.base import instance_id_of
from tests.chaos.adopter import AdoptionRunner
from tests.support.product import karpenter
from tests.support.product.cluster_scope import ClusterScope, condition_status, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.karpenter import (
    KARPENTER_DEPLOYMENT_PATH,
    TENURE_DEPLOYMENT_PATH,
    KarpenterConversion,
    karpenter_and_tenure_deployed,
)
from tests.support.product.objects import node_class
from tests.support.product.product import DedicatedProduct

CLASS = "of-karpenter"
READER = "adopter"
"""May read everything in Kubernetes and AWS, and write nothing."""


async def test_cluster_is_adopted_from_karpenter_and_handed_back(product: DedicatedProduct) -> None:
    await product.ensure_worker()
    await product.kube.apply(node_class(CLASS))
    try:
        async with product.scope("adopted", of_class=CLASS, after="Never") as scope:
            await scope.run_pods(2)
            await product.stop_workers()
            conversion = KarpenterConversion(scope, CLASS)
            claims = await conversion.convert_nodes()
            async with karpenter_and_tenure_deployed(product):
                await _run_adoption(KarpenterAdoption(scope, conversion, claims))
            await asyncio.to_thread(conversion.delete_launch_template)
            await product.ensure_worker()
    finally:
        await product.delete(EC2_NODE_CLASSES.path(CLASS))
    await wait_until(lambda: product.assert_deleted(EC2_NODE_CLASSES.path(CLASS)))


async def _run_adoption(adopter: "KarpenterAdoption") -> None:
    product = adopter.product
    await wait_until(adopter.assert_karpenter_leads)
    before = await adopter.snapshot()
    await adopter.assert_dry_run_writes_nothing()
    await adopter.kill_during_handover()
    result = await adopter.run_cli("--yes", "--settle", "8s")
    assert result["nodeClaims"] == 2 and "none drifted, none was replaced" in result["message"], result
    await assert_throughout(lambda: adopter.assert_unchanged(before), seconds=5)
    await adopter.assert_adopted()
    await adopter.assert_template_exists()
    await adopter.scope.scale_deployment(3)
    await wait_until(lambda: adopter.scope.assert_pods_running(3))
    await wait_until(lambda: adopter.scope.assert_nodes_initialized(3))
    result = await adopter.run_cli("--back", "--yes")
    assert result["nodeClaims"] == 3 and result["left"] == [], result
    await adopter.assert_usable_by_karpenter()
    assert not await product.watch_hosts() and await karpenter.desired_replicas(product, TENURE_DEPLOYMENT_PATH) == 0
    assert await karpenter.desired_replicas(product, KARPENTER_DEPLOYMENT_PATH) == 2
    result = await adopter.run_cli("--yes", "--settle", "5s")
    assert result["nodeClaims"] == 3, result
    await assert_throughout(lambda: adopter.assert_unchanged(before), seconds=3)


class KarpenterAdoption(AdoptionRunner):
    """The original Karpenter objects, and checks that need them."""

    def __init__(self, scope: ClusterScope, conversion: KarpenterConversion, claims: list[str]) -> None:
        assert isinstance(scope.product, DedicatedProduct)
        super().__init__(scope.product, scope, conversion.class_path, claims)
        self.conversion = conversion

    async def assert_dry_run_writes_nothing(self) -> None:
        """With read-only rights, the dry run tries no write and predicts no change to the two nodes."""
        versions, written = await self._resource_versions(), len(self.product.own_sandbox.written)
        self.product.aws.bind_key(READER, [_READS])
        kubeconfig = await self._create_reader_kubeconfig()
        keys = {"AWS_ACCESS_KEY_ID": READER, "AWS_SECRET_ACCESS_KEY": READER}
        preview = await self.run_cli("--dry-run", KUBECONFIG=str(kubeconfig), **keys)
        self.product.aws.release_key(READER)
        assert preview["ready"], [one for one in preview["findings"] if one["level"] == "problem"]
        own_nodeclaims = [one for one in preview["nodeClaims"] if one["nodeClaim"] in self.claims]
        statuses = {(one["phase"], one["drift"] is None, one["judged"], one["foundByTags"]) for one in own_nodeclaims}
        assert len(own_nodeclaims) == 2 and statuses == {("Ready", True, True, True)}, own_nodeclaims
        assert preview["instanceProfiles"][CLASS] == {"name": karpenter.PROFILE, "there": True, "whose": "Karpenter's"}
        assert preview["leases"][0]["holder"] == karpenter.HOLDER and preview["karpenter"]["replicas"] == 2
        assert preview["wouldLaunch"]["nodes"] == [] and "commands" not in preview["wouldDisrupt"], preview
        assert {one["variable"]: one["outcome"] for one in preview["settings"]}["BATCH_IDLE_DURATION"] == "same"
        assert await self._resource_versions() == versions
        assert self.product.own_sandbox.written[written:] == [], "something was written to the API server"
        denied = [one["action"] for one in self.product.aws.list_denials() if one["access_key"] == READER]
        assert denied == [], f"denied AWS calls: {denied}"

    async def kill_during_handover(self) -> None:
        """Kill the command once Karpenter is scaled to zero; the next run continues from there."""
        child = self.start_cli("--yes")
        await wait_until(self._assert_karpenter_stopped)
        child.kill()
        await asyncio.to_thread(child.communicate)

    async def assert_adopted(self) -> None:
        """NodeClaims have current hashes, are in phase Ready, and are not paused."""
        for claim in await self.scope.nodeclaims():
            annotations = claim["metadata"]["annotations"]
            assert (
                annotations[labels.NODEPOOL_HASH_VERSION] == annotations[labels.NODECLASS_HASH_VERSION] == HASH_VERSION
            )
        await wait_until(self._assert_all_ready)
        await wait_until(self._assert_not_paused)

    async def _assert_all_ready(self) -> None:
        phases = {
            nodeclaim.name: nodeclaim.phase for nodeclaim in await self.scope.nodeclaim_workflows() if nodeclaim.open
        }
        assert phases == dict.fromkeys(self.claims, "Ready"), phases

    async def assert_usable_by_karpenter(self) -> None:
        """NodeClaims have finalizers, both hashes, conditions, no taint, and the tags that Karpenter lists by."""
        claims = await self.scope.nodeclaims()
        for claim in claims:
            metadata = claim["metadata"]
            assert metadata["finalizers"] == [labels.TERMINATION_FINALIZER]
            assert metadata["labels"][labels.NODECLASS] == CLASS and metadata["labels"][labels.CAPACITY_TYPE]
            # Karpenter rewrites hashes of another version, and does not drift nodes for them.
            for key in karpenter.HASH_ANNOTATIONS:
                assert metadata["annotations"][key] not in ("", "v3", "v6"), metadata["annotations"]
            for one in (*labels.NODECLAIM_CONDITIONS, labels.READY):
                assert condition_status(claim, one) == "True", f"{metadata['name']}: {one}"
            (owner,) = metadata["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("NodePool", self.scope.name)
            instance = instance_id_of(claim["status"]["providerID"])
            tags = await asyncio.to_thread(self.conversion.instance_tags, instance)
            assert (tags[labels.TAG_NODEPOOL], tags[labels.TAG_NODECLASS]) == (self.scope.name, CLASS)
            assert tags[labels.TAG_EKS_CLUSTER_NAME] == self.product.own_sandbox.plan.cluster_name
        for node in await self.scope.nodes():
            assert labels.TERMINATION_FINALIZER in node["metadata"]["finalizers"]
            assert labels.DISRUPTED_TAINT_KEY not in str(node["spec"].get("taints"))
            owners = [one["name"] for one in node["metadata"]["ownerReferences"]]
            assert owners and set(owners) <= set(object_names(claims))
        found = await self.product.kube.request("GET", self.class_path)
        assert labels.NODECLASS_TERMINATION_FINALIZER in found["metadata"]["finalizers"]
        await self._assert_not_paused()

    async def assert_template_exists(self) -> None:
        assert karpenter.TEMPLATE in await self.product.launch_template_names()

    async def assert_karpenter_leads(self) -> None:
        assert await self.product.find(karpenter.LEASE) is not None

    async def _assert_karpenter_stopped(self) -> None:
        assert await karpenter.desired_replicas(self.product, KARPENTER_DEPLOYMENT_PATH) == 0

    async def _assert_not_paused(self) -> None:
        found = await self.product.kube.request("GET", NAMESPACES.path("tenure"))
        assert labels.PAUSE not in (found["metadata"].get("annotations") or {})

    async def _resource_versions(self) -> dict[str, str]:
        """Resource versions of objects that a node controller writes; Nodes are also written by their kubelets."""
        kinds = (NODE_CLAIMS, NODE_POOLS, EC2_NODE_CLASSES)
        found = [one for kind in kinds for one in await self.product.items(kind.path())]
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in found}

    async def _create_reader_kubeconfig(self) -> Path:
        """A kubeconfig with the rights to get and list, through the proxy that records writes."""
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
        group = "rbac.authorization.k8s.io"
        await self.scope.apply_manifest(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": "default"}}
        )
        role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": READER}}
        await self.scope.apply_manifest(role | {"rules": [everything]})
        await self.scope.apply_manifest(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": READER},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": READER},
                "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": "default"}],
            }
        )
        sandbox = self.product.own_sandbox
        return await asyncio.to_thread(sandbox.service_account_kubeconfig, "default", READER, through_proxy=True)


_READS = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["ec2:Describe*", "ssm:Get*", "pricing:Get*", "eks:Describe*", "iam:Get*", "iam:List*"],
            "Resource": "*",
        }
    ],
}
