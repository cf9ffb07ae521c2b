"""CEL expressions of an EC2NodeClass's kubelet settings: each launch template has the values of its instance types."""

import base64
from datetime import UTC, datetime

from tenure.apis import labels
from tenure.aws.instancetype.resolver import Region
from tenure.model.launch import PreparedLaunchRequest
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import build_nodeclaim, build_nodeclass
from tests.support.aws.steps import launch_template_data, resolve_nodeclass

GATES = {"NodeClassCEL": True}
KUBELET = {
    "maxPods": "vcpus * 10",
    "kubeReserved": {"cpu": "vcpus * 30", "memory": "255 + 11 * max_pods"},
    "systemReserved": {"memory": "100Mi"},
}


async def test_each_instance_type_is_launched_with_its_own_values(
    endpoint: str, control: AwsControl, region: Region
) -> None:
    cloud = adapters(endpoint, region, feature_gates=GATES)
    one = await resolve_nodeclass(cloud, build_nodeclass(kubelet=KUBELET))
    nodeclaim = build_nodeclaim((labels.INSTANCE_TYPE, "In", "m5.large", "m5.xlarge", "c5.xlarge"))
    prepared = await cloud.fleet.prepare(nodeclaim, one, now=datetime.now(UTC))
    assert isinstance(prepared, PreparedLaunchRequest)
    templates = {each.instance_type: each.launch_template for each in prepared.request.overrides}
    assert templates["m5.xlarge"] == templates["c5.xlarge"] != templates["m5.large"]
    two, four = (user_data(endpoint, templates[name]) for name in ("m5.large", "m5.xlarge"))
    assert "maxPods: 20" in two and "maxPods: 40" in four
    assert "cpu: 60m" in two and "cpu: 120m" in four
    assert "memory: 480Mi" in two and "memory: 704Mi" in four
    assert "vcpus" not in two and "memory: 100Mi" in two
    cloud.close()


async def test_expression_that_fails_for_an_instance_type_is_reported(
    endpoint: str, control: AwsControl, region: Region
) -> None:
    cloud = adapters(endpoint, region, feature_gates=GATES)
    found = await cloud.resolver.resolve(build_nodeclass(kubelet={"maxPods": "100 / (vcpus - 8)"}))
    condition = {each.type: each for each in found.conditions}["ValidationSucceeded"]
    assert (condition.status, condition.reason) == ("False", "KubeletExpressionEvaluationFailed")
    assert "spec.kubelet.maxPods" in condition.message and "divide by zero" in condition.message
    cloud.close()


def user_data(endpoint: str, template: str) -> str:
    return base64.b64decode(launch_template_data(endpoint, template)["UserData"]).decode()
