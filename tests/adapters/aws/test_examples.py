"""The examples against the AWS stand-in: each class becomes ready, and each pool has launchable offerings."""

from typing import Any

import pytest
import yaml

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.aws.adapters import AwsAdapters
from tenure.aws.amifamily.families import family_of
from tenure.aws.amifamily.user_data import render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of
from tenure.aws.instance.filter import requirements_of
from tenure.sandbox.nodes.userdata import read_user_data
from tests.support.aws.builders import CLUSTER
from tests.support.aws.steps import resolve_nodeclass
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"


def documents(kind: str) -> dict[str, dict[str, Any]]:
    found = (one for file in sorted(EXAMPLES.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text()))
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


CLASSES = {name: EC2NodeClass.from_object(raw) for name, raw in documents("EC2NodeClass").items()}
POOLS = {name: NodePool.from_object(raw) for name, raw in documents("NodePool").items()}


def example(name: str) -> EC2NodeClass:
    raw = CLASSES[name].to_object()
    return EC2NodeClass.from_object({**raw, "metadata": {"name": name, "uid": name, "generation": 1}})


def nodeclaim_of(pool: NodePool) -> NodeClaim:
    """The NodeClaim that a plan would create for one small pod."""
    template = pool.to_object()["spec"]["template"]
    template_labels = template.get("metadata", {}).get("labels", {})
    spec = {**template["spec"], "resources": {"requests": {"cpu": "500m", "memory": "512Mi", "pods": "1"}}}
    meta = {"name": f"{pool.name}-x", "uid": "u", "labels": {labels.NODEPOOL: pool.name, **template_labels}}
    return NodeClaim.from_object({"metadata": meta, "spec": spec})


@pytest.mark.parametrize("name", sorted(CLASSES))
async def test_example_nodeclass_becomes_ready(cloud: AwsAdapters, name: str) -> None:
    one = await resolve_nodeclass(cloud, example(name))
    assert one.status.amis
    assert one.status.subnets


@pytest.mark.parametrize("name", sorted(POOLS))
async def test_example_nodepool_has_launchable_offerings(cloud: AwsAdapters, name: str) -> None:
    pool = POOLS[name]
    one = await resolve_nodeclass(cloud, example(pool.spec.template.spec.node_class_ref.name))
    types = await cloud.offerings.types_for(one)
    required = requirements_of(nodeclaim_of(pool))
    fitting = [each for each in types.types if required.is_compatible(types.requirements(each))]
    assert any(offering.available for each in fitting for offering in each.offerings)


@pytest.mark.parametrize("name", sorted(POOLS))
def test_user_data_of_example_nodepool_has_its_taints(name: str) -> None:
    pool = POOLS[name]
    one = example(pool.spec.template.spec.node_class_ref.name)
    nodeclaim = nodeclaim_of(pool)
    family = family_of(one)
    text = render(family, bootstrap_of(one, nodeclaim, family, CLUSTER, capacity_type="on-demand", max_pods=29))
    joined = read_user_data(text)
    assert joined is not None
    assert joined.cluster == "demo"
    assert joined.labels[labels.NODEPOOL] == pool.name
    taints = {(taint.key, taint.effect) for taint in joined.taints}
    assert taints == {(t.key, t.effect) for t in nodeclaim.spec.taints} | {("karpenter.sh/unregistered", "NoExecute")}
