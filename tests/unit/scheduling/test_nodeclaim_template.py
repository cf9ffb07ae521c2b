"""The NodeClaim of a static NodePool has the fields of the template."""

from typing import Any

from tenure.apis import labels
from tenure.apis.hash import nodepool_hash
from tenure.apis.nodepool import NodePool
from tenure.kube.facts.objects import nodepool_fact
from tenure.scheduling.nodeclaim_template import build_nodeclaim as build_object
from tenure.scheduling.nodeclaim_template import build_static_nodeclaim, plan_static_nodeclaim

REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def pool(metadata: dict[str, Any] | None = None, **spec: Any) -> NodePool:
    template = {"metadata": metadata or {}, "spec": {"nodeClassRef": REFERENCE, "requirements": [], **spec}}
    return NodePool.from_object(
        {"metadata": {"name": "edge", "uid": "uid-edge"}, "spec": {"replicas": 3, "template": template}}
    )


def build_nodeclaim(of: NodePool) -> dict[str, Any]:
    return build_static_nodeclaim(of, name="edge-x", plan_id="plan").to_object()


def expressions(built: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: (one["operator"], one.get("values")) for one in built["spec"]["requirements"]}


def test_requirements_have_no_added_type_and_capacity_type() -> None:
    zones = {"key": labels.ZONE, "operator": "In", "values": ["us-west-2a"]}
    built = expressions(build_nodeclaim(pool(requirements=[zones])))
    assert built == {
        labels.ZONE: ("In", ["us-west-2a"]),
        labels.NODEPOOL: ("In", ["edge"]),
        labels.NODECLASS: ("In", ["default"]),
    }


def test_requirements_are_those_of_the_nodepool() -> None:
    types = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["m5.large", "c5.large"], "minValues": 2}
    many = {"key": labels.INSTANCE_CPU, "operator": "Gt", "values": ["1"]}
    built = build_nodeclaim(pool(requirements=[types, many]))["spec"]["requirements"]
    assert {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c5.large", "m5.large"], "minValues": 2} in built
    assert {"key": labels.INSTANCE_CPU, "operator": "Gte", "values": ["2"]} in built or many in built


def test_taints_expiration_and_grace_period_are_those_of_the_nodepool() -> None:
    taint = {"key": "edge", "value": "yes", "effect": "NoSchedule"}
    startup = {"key": "agent", "effect": "NoExecute"}
    spec = build_nodeclaim(
        pool(taints=[taint], startupTaints=[startup], expireAfter="Never", terminationGracePeriod="1h")
    )["spec"]
    assert (spec["taints"], spec["startupTaints"]) == ([taint], [startup])
    assert (spec["expireAfter"], spec["terminationGracePeriod"]) == ("Never", "1h")
    assert spec["nodeClassRef"] == REFERENCE


def test_labels_are_those_of_the_template_and_custom_requirements() -> None:
    team = {"key": "example.com/team", "operator": "In", "values": ["blue"]}
    built = build_nodeclaim(pool({"labels": {"tier": "edge"}, "annotations": {"why": "near"}}, requirements=[team]))[
        "metadata"
    ]
    assert built["labels"] == {
        "tier": "edge",
        "example.com/team": "blue",
        labels.NODEPOOL: "edge",
        labels.NODECLASS: "default",
    }
    assert built["annotations"]["why"] == "near"


def test_static_nodeclaim_has_hash_and_owner_but_no_launch_group() -> None:
    of = pool()
    built = build_nodeclaim(of)["metadata"]
    assert built["annotations"][labels.NODEPOOL_HASH] == nodepool_hash(of)
    assert built["annotations"][labels.PLAN] == "plan"
    assert built["annotations"][labels.LAUNCH_REASON] == "one of spec.replicas=3, regardless of pods"
    assert labels.LAUNCH_GROUP not in built["annotations"], "equal NodeClaims are grouped at launch"
    assert built["finalizers"] == [labels.TERMINATION_FINALIZER]
    assert [(one["kind"], one["uid"], one["blockOwnerDeletion"]) for one in built["ownerReferences"]] == [
        ("NodePool", "uid-edge", True)
    ]


def test_replacement_of_a_drifted_node_equals_a_new_one() -> None:
    template = {
        "requirements": [{"key": "example.com/team", "operator": "In", "values": ["blue"], "minValues": 1}],
        "taints": [{"key": "edge", "value": "yes", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "agent", "effect": "NoExecute"}],
        "expireAfter": "Never",
        "terminationGracePeriod": "1h",
    }
    of = pool({"labels": {"tier": "edge"}, "annotations": {"why": "near"}}, **template)
    stored = of.to_object()
    stored["metadata"]["annotations"] = {labels.NODEPOOL_HASH: nodepool_hash(of)}
    replacement = plan_static_nodeclaim(nodepool_fact(stored), "one of spec.replicas=3, regardless of pods")
    assert build_object(replacement, name="edge-x", plan_id="plan").to_object() == build_nodeclaim(of)
