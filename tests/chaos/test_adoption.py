"""Karpenter's cluster is looked at, taken over, handed back, and taken over again: no node drifts, and none goes."""

import asyncio
from pathlib import Path

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION
from tenure.kube.client.resources import EC2_NODE_CLASSES, NAMESPACES, NODE_CLAIMS, NODE_POOLS
from tests.chaos.adopter import Adopter
from tests.support.product import karpenter
from tests.support.product.eventually import eventually, throughout
from tests.support.product.karpenter import KARPENTER, TENURE, Makeover, deployed
from tests.support.product.objects import node_class
from tests.support.product.product import OwnProduct
from tests.support.product.scene import Scene, condition, names

CLASS = "of-karpenter"
READER = "adopter"
"""May read everything, in Kubernetes and in AWS, and write nothing."""


async def test_taken_over_from_karpenter_and_handed_back(product: OwnProduct) -> None:
    await product.work()
    await product.kube.apply(node_class(CLASS))
    try:
        async with product.scene("adopted", of_class=CLASS, after="Never") as scene:
            await scene.run(2)
            await product.rest()
            made = Makeover(scene, CLASS)
            claims = await made.make()
            async with deployed(product):
                await _adoption(Played(scene, made, claims))
            await asyncio.to_thread(made.clean)
            await product.work()
    finally:
        await product.delete(EC2_NODE_CLASSES.path(CLASS))
    await eventually(lambda: product.is_gone(EC2_NODE_CLASSES.path(CLASS)))


async def _adoption(adopter: "Played") -> None:
    product = adopter.product
    await eventually(adopter.karpenter_leads)
    before = await adopter.look()
    await adopter.shadow()
    await adopter.is_killed_half_way()
    said = await adopter.run("--yes", "--settle", "8s")
    assert said["nodeClaims"] == 2 and "none drifted, none was replaced" in said["message"], said
    await throughout(lambda: adopter.goes_on(before), seconds=5)
    await adopter.is_tenures()
    await adopter.template_stays()
    await adopter.scene.scale(3)
    await eventually(lambda: adopter.scene.pods_run(3))
    await eventually(lambda: adopter.scene.nodes_are_initialized(3))
    said = await adopter.run("--back", "--yes")
    assert said["nodeClaims"] == 3 and said["left"] == [], said
    await adopter.is_fit_for_karpenter()
    assert not await product.hosts() and await karpenter.replicas(product, TENURE) == 0
    assert await karpenter.replicas(product, KARPENTER) == 2
    said = await adopter.run("--yes", "--settle", "5s")
    assert said["nodeClaims"] == 3, said
    await throughout(lambda: adopter.goes_on(before), seconds=3)


class Played(Adopter):
    """With Karpenter's objects as they were made, and what only they can be asked."""

    def __init__(self, scene: Scene, made: Makeover, claims: list[str]) -> None:
        assert isinstance(scene.product, OwnProduct)
        super().__init__(scene.product, scene, made.class_path, claims)
        self.made = made

    async def shadow(self) -> None:
        """Under rights to read alone, and nothing is even tried: two nodes would go on as they are."""
        versions, written = await self._versions(), len(self.product.own_sandbox.written)
        self.product.aws.bind_key(READER, [_READS])
        kubeconfig = await self._reader()
        keys = {"AWS_ACCESS_KEY_ID": READER, "AWS_SECRET_ACCESS_KEY": READER}
        seen = await self.run("--dry-run", KUBECONFIG=str(kubeconfig), **keys)
        self.product.aws.release_key(READER)
        assert seen["ready"], [one for one in seen["findings"] if one["level"] == "problem"]
        ours = [one for one in seen["nodeClaims"] if one["nodeClaim"] in self.claims]
        told = {(one["phase"], one["drift"] is None, one["judged"], one["foundByTags"]) for one in ours}
        assert len(ours) == 2 and told == {("Ready", True, True, True)}, ours
        assert seen["instanceProfiles"][CLASS] == {"name": karpenter.PROFILE, "there": True, "whose": "Karpenter's"}
        assert seen["leases"][0]["holder"] == karpenter.HOLDER and seen["karpenter"]["replicas"] == 2
        assert seen["wouldLaunch"]["nodes"] == [] and "commands" not in seen["wouldDisrupt"], seen
        assert {one["variable"]: one["verdict"] for one in seen["settings"]}["BATCH_IDLE_DURATION"] == "same"
        assert await self._versions() == versions
        assert self.product.own_sandbox.written[written:] == [], "something was written to the API server"
        tried = [one["action"] for one in self.product.aws.denials() if one["access_key"] == READER]
        assert tried == [], f"AWS was asked for {tried}"

    async def is_killed_half_way(self) -> None:
        """As soon as Karpenter is scaled to zero; the next run goes on there."""
        child = self.start("--yes")
        await eventually(self._karpenter_is_stopped)
        child.kill()
        await asyncio.to_thread(child.communicate)

    async def is_tenures(self) -> None:
        """Stamped, in the phase Ready, and not paused any more."""
        for claim in await self.scene.claims():
            notes = claim["metadata"]["annotations"]
            assert notes[labels.NODEPOOL_HASH_VERSION] == notes[labels.NODECLASS_HASH_VERSION] == HASH_VERSION
        await eventually(self._are_all_ready)
        await eventually(self._is_not_paused)

    async def _are_all_ready(self) -> None:
        phases = {life.name: life.phase for life in await self.scene.lives() if life.open}
        assert phases == dict.fromkeys(self.claims, "Ready"), phases

    async def is_fit_for_karpenter(self) -> None:
        """Finalizers, both stamps and conditions on every NodeClaim, no taint, tags that its lists go by."""
        claims = await self.scene.claims()
        for claim in claims:
            metadata = claim["metadata"]
            assert metadata["finalizers"] == [labels.TERMINATION_FINALIZER]
            assert metadata["labels"][labels.NODECLASS] == CLASS and metadata["labels"][labels.CAPACITY_TYPE]
            # Karpenter rewrites stamps of a version that is not its own, and drifts no node for them.
            for key in karpenter.STAMPS:
                assert metadata["annotations"][key] not in ("", "v3", "v6"), metadata["annotations"]
            for one in (*labels.NODECLAIM_CONDITIONS, labels.READY):
                assert condition(claim, one) == "True", f"{metadata['name']}: {one}"
            (owner,) = metadata["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("NodePool", self.scene.name)
            instance = claim["status"]["providerID"].rpartition("/")[2]
            tags = await asyncio.to_thread(self.made.tags, instance)
            assert (tags[labels.TAG_NODEPOOL], tags[labels.TAG_NODECLASS]) == (self.scene.name, CLASS)
            assert tags[labels.TAG_EKS_CLUSTER_NAME] == self.product.own_sandbox.plan.cluster_name
        for node in await self.scene.nodes():
            assert labels.TERMINATION_FINALIZER in node["metadata"]["finalizers"]
            assert labels.DISRUPTED_TAINT_KEY not in str(node["spec"].get("taints"))
            owners = [one["name"] for one in node["metadata"]["ownerReferences"]]
            assert owners and set(owners) <= set(names(claims))
        found = await self.product.kube.request("GET", self.class_path)
        assert labels.NODECLASS_TERMINATION_FINALIZER in found["metadata"]["finalizers"]
        await self._is_not_paused()

    async def template_stays(self) -> None:
        assert karpenter.TEMPLATE in await self.product.launch_templates()

    async def karpenter_leads(self) -> None:
        assert await self.product.find(karpenter.LEASE) is not None

    async def _karpenter_is_stopped(self) -> None:
        assert await karpenter.replicas(self.product, KARPENTER) == 0

    async def _is_not_paused(self) -> None:
        found = await self.product.kube.request("GET", NAMESPACES.path("tenure"))
        assert labels.PAUSE not in (found["metadata"].get("annotations") or {})

    async def _versions(self) -> dict[str, str]:
        """Of what a controller of nodes writes to; Nodes themselves are written by their kubelets."""
        kinds = (NODE_CLAIMS, NODE_POOLS, EC2_NODE_CLASSES)
        found = [one for kind in kinds for one in await self.product.items(kind.path())]
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in found}

    async def _reader(self) -> Path:
        """A kubeconfig of somebody who may list and get, through the proxy that counts writes."""
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
        group = "rbac.authorization.k8s.io"
        await self.scene.make(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": "default"}}
        )
        role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": READER}}
        await self.scene.make(role | {"rules": [everything]})
        await self.scene.make(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": READER},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": READER},
                "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": "default"}],
            }
        )
        world = self.product.own_sandbox
        return await asyncio.to_thread(world.service_account_kubeconfig, "default", READER, through_proxy=True)


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
