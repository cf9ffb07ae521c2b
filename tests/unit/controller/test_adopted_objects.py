"""Objects as Tenure's first pass leaves them: stamped anew, with what the selectors mean now."""

from typing import Any

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash, nodepool_hash
from tenure.apis.nodepool import NodePool
from tenure.controller.adoption_preview import adopt_objects, partition_readable
from tenure.model.provider_results import ResolvedNodeClass
from tests.support.controller.builders import Json, claim, node_class, pool

KARPENTERS = {
    labels.NODEPOOL_HASH: "11",
    labels.NODEPOOL_HASH_VERSION: "v3",
    labels.NODECLASS_HASH: "22",
    labels.NODECLASS_HASH_VERSION: "v6",
}
FOUND = {"amis": [{"id": "ami-new", "requirements": []}]}


def cluster_objects(*claims: Json) -> dict[str, list[Json]]:
    return {"nodepools": [pool()], "ec2nodeclasses": [node_class()], "nodeclaims": list(claims), "pods": []}


def only_annotations(claims: Any) -> dict[str, str]:
    (one,) = claims
    return dict(one["metadata"]["annotations"])


def resolved_nodeclasses(ca_bundle: str | None = "ca") -> dict[str, ResolvedNodeClass]:
    return {"default": ResolvedNodeClass(status=dict(FOUND), conditions=(), ca_bundle=ca_bundle)}


def test_stamps_of_karpenter_become_those_of_what_stands_now() -> None:
    objects = cluster_objects(claim("c1", phase="Initialized", annotations=KARPENTERS))
    found = adopt_objects(objects, resolved_nodeclasses())
    assert only_annotations(found["nodeclaims"]) == {
        labels.NODEPOOL_HASH: nodepool_hash(NodePool.from_object(pool())),
        labels.NODEPOOL_HASH_VERSION: HASH_VERSION,
        labels.NODECLASS_HASH: nodeclass_hash(EC2NodeClass.from_object(node_class()), ca_bundle="ca"),
        labels.NODECLASS_HASH_VERSION: HASH_VERSION,
    }
    assert found["ec2nodeclasses"][0]["status"]["amis"] == FOUND["amis"]
    assert objects["nodeclaims"][0]["metadata"]["annotations"] == KARPENTERS, "what was read is left as it is"


def test_one_that_has_drifted_stays_so() -> None:
    one = claim("c1", phase="Initialized", annotations=KARPENTERS)
    one["status"]["conditions"].append({"type": "Drifted", "status": "True", "reason": "AMIDrift"})
    stamps = only_annotations(adopt_objects(cluster_objects(one), resolved_nodeclasses())["nodeclaims"])
    assert (stamps[labels.NODEPOOL_HASH], stamps[labels.NODEPOOL_HASH_VERSION]) == ("11", HASH_VERSION)


def test_without_the_certificate_the_class_and_its_nodes_keep_their_stamps() -> None:
    objects = cluster_objects(claim("c1", phase="Initialized", annotations=KARPENTERS))
    stamps = only_annotations(adopt_objects(objects, resolved_nodeclasses(ca_bundle=None))["nodeclaims"])
    assert (stamps[labels.NODECLASS_HASH], stamps[labels.NODECLASS_HASH_VERSION]) == ("22", "v6")
    assert stamps[labels.NODEPOOL_HASH_VERSION] == HASH_VERSION


def test_what_a_worker_would_leave_out_is_named() -> None:
    bad = pool("odd")
    bad["spec"]["template"]["spec"]["expireAfter"] = "soon"
    objects = {**cluster_objects(), "nodepools": [pool(), bad]}
    good, unreadable = partition_readable(objects)
    assert [one["metadata"]["name"] for one in good["nodepools"]] == ["general"]
    ((kind, name, message),) = unreadable
    assert (kind, name) == ("NodePool", "odd") and "soon" in message
