"""The NodeClaim of a static pool: the template as it stands."""

from typing import Any

from tenure.apis import labels
from tenure.apis.hash import nodepool_hash
from tenure.apis.nodepool import NodePool
from tenure.scheduling.static_nodeclaim import build_static_nodeclaim

REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def pool(metadata: dict[str, Any] | None = None, **spec: Any) -> NodePool:
    template = {"metadata": metadata or {}, "spec": {"nodeClassRef": REFERENCE, "requirements": [], **spec}}
    return NodePool.from_object(
        {"metadata": {"name": "edge", "uid": "uid-edge"}, "spec": {"replicas": 3, "template": template}}
    )


def build_nodeclaim(of: NodePool) -> dict[str, Any]:
    return build_static_nodeclaim(of, name="edge-x", plan_id="plan").to_object()


def expressions(made: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: (one["operator"], one.get("values")) for one in made["spec"]["requirements"]}


def test_no_instance_type_and_no_capacity_type_is_added() -> None:
    zones = {"key": labels.ZONE, "operator": "In", "values": ["us-west-2a"]}
    made = expressions(build_nodeclaim(pool(requirements=[zones])))
    assert made == {
        labels.ZONE: ("In", ["us-west-2a"]),
        labels.NODEPOOL: ("In", ["edge"]),
        labels.NODECLASS: ("In", ["default"]),
    }


def test_what_the_pool_asks_for_is_asked_for() -> None:
    types = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["m5.large", "c5.large"], "minValues": 2}
    many = {"key": labels.INSTANCE_CPU, "operator": "Gt", "values": ["1"]}
    made = build_nodeclaim(pool(requirements=[types, many]))["spec"]["requirements"]
    assert {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c5.large", "m5.large"], "minValues": 2} in made
    assert {"key": labels.INSTANCE_CPU, "operator": "Gte", "values": ["2"]} in made or many in made


def test_taints_expiry_and_grace_are_the_pools() -> None:
    taint = {"key": "edge", "value": "yes", "effect": "NoSchedule"}
    startup = {"key": "agent", "effect": "NoExecute"}
    spec = build_nodeclaim(
        pool(taints=[taint], startupTaints=[startup], expireAfter="Never", terminationGracePeriod="1h")
    )["spec"]
    assert (spec["taints"], spec["startupTaints"]) == ([taint], [startup])
    assert (spec["expireAfter"], spec["terminationGracePeriod"]) == ("Never", "1h")
    assert spec["nodeClassRef"] == REFERENCE


def test_labels_are_the_templates_and_one_value_of_each_custom_requirement() -> None:
    team = {"key": "example.com/team", "operator": "In", "values": ["blue"]}
    made = build_nodeclaim(pool({"labels": {"tier": "edge"}, "annotations": {"why": "near"}}, requirements=[team]))[
        "metadata"
    ]
    assert made["labels"] == {
        "tier": "edge",
        "example.com/team": "blue",
        labels.NODEPOOL: "edge",
        labels.NODECLASS: "default",
    }
    assert made["annotations"]["why"] == "near"


def test_it_is_stamped_owned_and_of_no_launch_group() -> None:
    of = pool()
    made = build_nodeclaim(of)["metadata"]
    assert made["annotations"][labels.NODEPOOL_HASH] == nodepool_hash(of)
    assert made["annotations"][labels.PLAN] == "plan"
    assert made["annotations"][labels.LAUNCH_REASON] == "one of spec.replicas=3, whatever the pods need"
    assert labels.LAUNCH_GROUP not in made["annotations"], "those that are alike join for one launch"
    assert made["finalizers"] == [labels.TERMINATION_FINALIZER]
    assert [(one["kind"], one["uid"], one["blockOwnerDeletion"]) for one in made["ownerReferences"]] == [
        ("NodePool", "uid-edge", True)
    ]
