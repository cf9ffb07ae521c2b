"""Preview of the adoption of a Karpenter cluster: hashes, phases, drift, launches and disruption, without writes."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash, nodepool_hash
from tenure.apis.nodepool import NodePool
from tenure.controller.adoption_preview import (
    AdoptedNodeClaim,
    AdoptionPreview,
    AdoptionPreviewer,
    adopt_objects,
    partition_readable,
)
from tenure.controller.settings import ControllerSettings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.garbage_collection import KubeInventory
from tenure.kube.client import resources
from tenure.kube.client.client import KubeClient
from tenure.model.errors import NotFound, TryLater
from tenure.model.nodeclaim.state import Phase
from tenure.model.provider_results import InstanceFacts, ResolvedNodeClass
from tests.support.controller.builders import Json, at, claim, node, node_class, pod, pool, stamp
from tests.support.fakes.cloud import FakeInstances
from tests.unit.controller.planning.provisioner_harness import FakeOfferings
from tests.unit.scheduling.builders import instance_type

KARPENTER_HASHES = {
    labels.NODEPOOL_HASH: "11",
    labels.NODEPOOL_HASH_VERSION: "v3",
    labels.NODECLASS_HASH: "22",
    labels.NODECLASS_HASH_VERSION: "v6",
}
RESOLVED_STATUS = {"amis": [{"id": "ami-new", "requirements": []}]}


def cluster_objects(*claims: Json) -> dict[str, list[Json]]:
    return {"nodepools": [pool()], "ec2nodeclasses": [node_class()], "nodeclaims": list(claims), "pods": []}


def only_annotations(claims: Any) -> dict[str, str]:
    (one,) = claims
    return dict(one["metadata"]["annotations"])


def resolved_nodeclasses(ca_bundle: str | None = "ca") -> dict[str, ResolvedNodeClass]:
    return {"default": ResolvedNodeClass(status=dict(RESOLVED_STATUS), conditions=(), ca_bundle=ca_bundle)}


def test_hashes_of_karpenter_become_hashes_of_current_specs() -> None:
    objects = cluster_objects(claim("c1", phase="Initialized", annotations=KARPENTER_HASHES))
    found = adopt_objects(objects, resolved_nodeclasses())
    assert only_annotations(found["nodeclaims"]) == {
        labels.NODEPOOL_HASH: nodepool_hash(NodePool.from_object(pool())),
        labels.NODEPOOL_HASH_VERSION: HASH_VERSION,
        labels.NODECLASS_HASH: nodeclass_hash(EC2NodeClass.from_object(node_class()), ca_bundle="ca"),
        labels.NODECLASS_HASH_VERSION: HASH_VERSION,
    }
    assert found["ec2nodeclasses"][0]["status"]["amis"] == RESOLVED_STATUS["amis"]
    assert objects["nodeclaims"][0]["metadata"]["annotations"] == KARPENTER_HASHES, "the input is not modified"


def test_drifted_nodeclaim_keeps_its_nodepool_hash() -> None:
    one = claim("c1", phase="Initialized", annotations=KARPENTER_HASHES)
    one["status"]["conditions"].append({"type": "Drifted", "status": "True", "reason": "AMIDrift"})
    stamps = only_annotations(adopt_objects(cluster_objects(one), resolved_nodeclasses())["nodeclaims"])
    assert (stamps[labels.NODEPOOL_HASH], stamps[labels.NODEPOOL_HASH_VERSION]) == ("11", HASH_VERSION)


def test_nodeclass_hash_is_kept_without_the_ca_bundle() -> None:
    objects = cluster_objects(claim("c1", phase="Initialized", annotations=KARPENTER_HASHES))
    stamps = only_annotations(adopt_objects(objects, resolved_nodeclasses(ca_bundle=None))["nodeclaims"])
    assert (stamps[labels.NODECLASS_HASH], stamps[labels.NODECLASS_HASH_VERSION]) == ("22", "v6")
    assert stamps[labels.NODEPOOL_HASH_VERSION] == HASH_VERSION


LONG = "1" * 100
"""A quantity that the CRDs accept, and that no worker reads."""


def test_unreadable_objects_are_listed() -> None:
    bad, odd, limited = claim("bad"), pool("odd"), pool("limited", limits={"cpu": LONG})
    bad["spec"]["resources"] = {"requests": {"cpu": LONG}}
    odd["spec"]["template"]["spec"]["expireAfter"] = "soon"
    good, unreadable = partition_readable({**cluster_objects(claim("c1"), bad), "nodepools": [pool(), odd, limited]})
    assert [one["metadata"]["name"] for one in (*good["nodepools"], *good["nodeclaims"])] == ["general", "c1"]
    assert [one[:2] for one in unreadable] == [("NodePool", "odd"), ("NodePool", "limited"), ("NodeClaim", "bad")]
    assert "soon" in unreadable[0][2] and "cpu: " in unreadable[1][2] and "cpu: " in unreadable[2][2]


STATUS: dict[str, Any] = {
    "amis": [{"id": "ami-new", "requirements": []}],
    "subnets": [{"id": "subnet-a", "zone": "us-west-2a", "zoneID": "usw2-az1"}],
    "securityGroups": [{"id": "sg-1"}],
}
NODE_LABELS = {
    labels.NODEPOOL: "general",
    labels.INSTANCE_TYPE: "m5.large",
    labels.ZONE: "us-west-2a",
    labels.CAPACITY_TYPE: "on-demand",
}
TAGS = {labels.TAG_NODEPOOL: "general", labels.TAG_NODECLASS: "default", labels.TAG_EKS_CLUSTER_NAME: "demo"}


class Reader:
    """A read-only API server on which LifecyclePolicies are not installed."""

    def __init__(self, objects: Mapping[str, list[Json]]) -> None:
        self._objects = objects

    async def request(self, method: str, path: str, **_: Any) -> Json:
        assert method == "GET", f"{method} {path}"
        plural = path.rpartition("/")[2]
        if plural == resources.LIFECYCLE_POLICIES.plural:
            raise NotFound(path)
        return {"items": self._objects.get(plural, []), "metadata": {}}


class Resolver:
    def __init__(self) -> None:
        self.result = ResolvedNodeClass(status=dict(STATUS), conditions=(), ca_bundle="ca")

    async def preview(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        return self.result


class Cluster:
    """A cluster with one node created by Karpenter, which tests modify."""

    def __init__(self) -> None:
        self.claim = claim("c1", phase="Initialized", annotations=dict(KARPENTER_HASHES), labels=dict(NODE_LABELS))
        self.claim["status"] |= {"imageID": "ami-new", "nodeName": "n1"}
        self.node = node("n1", of="c1")
        self.pods = [pod("web", on="n1")]
        self.instances, self.resolver, self.types = FakeInstances(), Resolver(), FakeOfferings()
        self.types.kinds = (
            instance_type("m5.large", cpu=2, zones=("us-west-2a", "us-west-2b")).model_copy(
                update={"image_id": "ami-new"}
            ),
        )
        self.add_instance("i-c1")

    def add_instance(self, instance_id: str, **facts: Any) -> None:
        defaults: dict[str, Any] = {"subnet_id": "subnet-a", "security_group_ids": ("sg-1",), "tags": TAGS}
        known = {"instance_id": instance_id, "state": "running", "launched_at": at(-600), **defaults, **facts}
        self.instances.running[instance_id] = InstanceFacts.model_validate(known)

    async def preview(self) -> AdoptionPreview:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(-900)}
        karpenter_class = node_class()
        karpenter_class["status"] = {"conditions": [ready]}
        karpenter_class["metadata"]["annotations"] = {
            labels.NODECLASS_HASH: "22",
            labels.NODECLASS_HASH_VERSION: "v6",
        }
        objects = {
            "nodepools": [pool(disruption={"consolidateAfter": "30s"})],
            "ec2nodeclasses": [karpenter_class],
            "nodeclaims": [self.claim],
            "nodes": [self.node],
            "pods": self.pods,
        }
        client = cast(KubeClient, Reader(objects))
        adapters = SimpleNamespace(client=client, claims=None, lifecycle_policies=None, inventory=KubeInventory(client))
        previewer = AdoptionPreviewer(
            settings=ControllerSettings(cluster="demo"),
            kube=cast(KubeAdapters, adapters),
            offerings=self.types,
            instances=self.instances,
            resolver=self.resolver,
            now=lambda: at(0),
        )
        return await previewer.preview()

    async def preview_nodeclaim(self) -> AdoptedNodeClaim:
        (found,) = (await self.preview()).claims
        return found


async def test_node_of_karpenter_is_adopted_unchanged() -> None:
    preview = await Cluster().preview()
    (adopted,) = preview.claims
    assert (adopted.phase, adopted.drift, adopted.is_evaluated, adopted.tagged) == (Phase.READY, None, True, True)
    assert adopted.node is not None and adopted.node.name == "n1"
    assert preview.plan is not None and preview.plan.claims == () and preview.disruption_status.commands == ()
    assert preview.unowned == () and preview.unreadable == ()


async def test_drift_is_evaluated_with_the_currently_resolved_nodeclass() -> None:
    cluster = Cluster()
    cluster.claim["status"]["imageID"] = "ami-old"
    adopted = await cluster.preview_nodeclaim()
    assert adopted.drift is not None and adopted.drift.reason == labels.AMI_DRIFT
    cluster = Cluster()
    cluster.add_instance("i-c1", subnet_id="subnet-z")
    adopted = await cluster.preview_nodeclaim()
    assert adopted.drift is not None and adopted.drift.reason == labels.SUBNET_DRIFT
    assert "subnet-z" in adopted.drift.message


async def test_nodeclaim_drifted_in_karpenter_stays_drifted() -> None:
    cluster = Cluster()
    cluster.claim["status"]["conditions"].append({"type": "Drifted", "status": "True", "reason": "AMIDrift"})
    adopted = await cluster.preview_nodeclaim()
    assert adopted.claim.drifted == "AMIDrift" and adopted.drift is not None


async def test_drift_is_not_evaluated_without_instance_types() -> None:
    cluster = Cluster()
    cluster.types.broken = True
    preview = await cluster.preview()
    assert (
        not preview.claims[0].is_evaluated and preview.plan is None and "default" in preview.disruption_status.blocked
    )


async def test_preview_contains_launches_and_disruption_commands() -> None:
    cluster = Cluster()
    cluster.pods = [pod(f"p{one}", nodeSelector={labels.ZONE: "us-west-2b"}) for one in range(2)]
    preview = await cluster.preview()
    assert preview.plan is not None and len(preview.plan.claims) == 1 and len(preview.plan.claims[0].pods) == 2
    assert [(one.reason, one.nodes) for one in preview.disruption_status.commands] == [("Empty", ("n1",))]


async def test_instance_of_an_unreadable_nodeclaim_is_not_unowned() -> None:
    cluster = Cluster()
    cluster.claim["spec"]["resources"] = {"requests": {"cpu": LONG}}
    preview = await cluster.preview()
    assert [name for _, name, _ in preview.unreadable] == ["c1"] and preview.unowned == ()


async def test_instance_is_unknown_after_a_fault_of_ec2() -> None:
    class Shifted(FakeInstances):
        async def list_managed(self) -> list[InstanceFacts]:
            return []

        async def get(self, instance_id: str) -> InstanceFacts | None:
            raise TryLater(f"EC2 does not list {instance_id}")

    cluster = Cluster()
    cluster.instances = Shifted()
    adopted = await cluster.preview_nodeclaim()
    assert (adopted.instance, adopted.fault) == (None, "EC2 does not list i-c1")


async def test_untagged_instance_is_found_by_id_and_unowned_instance_is_listed() -> None:
    class ByTag(FakeInstances):
        async def list_managed(self) -> list[InstanceFacts]:
            return [one for one in self.running.values() if one.tags]

    cluster = Cluster()
    cluster.instances = ByTag()
    cluster.add_instance("i-c1", tags={})
    cluster.add_instance("i-stray")
    preview = await cluster.preview()
    (adopted,) = preview.claims
    assert adopted.instance is not None and adopted.instance.instance_id == "i-c1" and not adopted.tagged
    assert [one.instance_id for one in preview.unowned] == ["i-stray"]
