"""Every resource of a launch has the tags that the shipped IAM policy requires."""

import pytest

from tenure.apis import labels
from tenure.aws.adapters import AwsAdapters
from tests.support.aws.builders import build_nodeclaim, build_nodeclass
from tests.support.aws.steps import admin_client, make_launch_group, prepare_launch, resolve_nodeclass

OWN = {
    "kubernetes.io/cluster/demo": "owned",
    "karpenter.sh/nodepool": "general",
    "eks:eks-cluster-name": "demo",
    "karpenter.k8s.aws/ec2nodeclass": "default",
}
KINDS = {"fleet", "instance", "volume", "network-interface", "spot-instances-request", "launch-template"}


@pytest.mark.parametrize(
    ("capacity_type", "kinds"), [("spot", KINDS), ("on-demand", KINDS - {"spot-instances-request"})]
)
async def test_all_resources_of_a_launch_are_tagged(
    cloud: AwsAdapters, endpoint: str, capacity_type: str, kinds: set[str]
) -> None:
    everyone = admin_client(endpoint)
    before = {one["ResourceId"] for one in everyone.describe_tags()["Tags"]}
    one = await resolve_nodeclass(cloud, build_nodeclass(tags={"team": "a"}))
    request = await prepare_launch(
        cloud, one, build_nodeclaim((labels.CAPACITY_TYPE, "In", capacity_type), (labels.ARCH, "In", "amd64"))
    )
    group = make_launch_group(request, members=2)
    assert len((await cloud.fleet.create(group)).instances) == 2
    found: dict[str, dict[str, dict[str, str]]] = {}
    for tag in everyone.describe_tags()["Tags"]:
        if tag["ResourceId"] not in before:
            found.setdefault(tag["ResourceType"], {}).setdefault(tag["ResourceId"], {})[tag["Key"]] = tag["Value"]
    for spot in everyone.describe_spot_instance_requests()["SpotInstanceRequests"]:
        tags = {tag["Key"]: tag["Value"] for tag in spot.get("Tags", [])}
        found.setdefault("spot-instances-request", {})[spot["SpotInstanceRequestId"]] = tags
    assert set(found) == kinds
    for kind, resources in found.items():
        for tags in resources.values():
            assert OWN.items() | {("team", "a")} <= tags.items(), kind
    (instance, _) = found["instance"].values()
    assert instance["tenure.sh/launch-group"] == "plan-1" and instance["tenure.sh/launch-token"] == group.client_token()
