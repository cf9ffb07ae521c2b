"""Nodes of every image family join on real components, with nothing but their own user data."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tenure.apis import labels
from tenure.kube.client.resources import EC2_NODE_CLASSES
from tests.support.product.cluster_scope import taint_texts
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object, node_class
from tests.support.product.product import InstalledProduct

TOML = '[settings.kubernetes.node-labels]\nmine = "1"\n[settings.ntp]\ntime-servers = ["169.254.169.123"]\n'
JOIN = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: demo, apiServerEndpoint: "https://demo.example.com", certificateAuthority: Y2E=, cidr: 10.100.0.0/16}
  kubelet:
    config:
      registerWithTaints: [{key: karpenter.sh/unregistered, effect: NoExecute}]
    flags: ["--node-labels=karpenter.sh/nodepool=family-custom,mine=1"]
"""


async def test_al2023_node_joins_with_a_script_and_local_disks(product: InstalledProduct) -> None:
    spec = {"instanceStorePolicy": "RAID0", "userData": "#!/bin/bash\necho mine"}
    node = await _assert_joined(product, "family-al2023", "al2023@latest", "m6id.large", **spec)
    # 118 GB of NVMe instead of an EBS volume of 20 GiB.
    assert _gibibytes(node["status"]["capacity"]["ephemeral-storage"]) > 100


async def test_bottlerocket_node_joins_with_settings(product: InstalledProduct) -> None:
    node = await _assert_joined(product, "family-bottlerocket", "bottlerocket@latest", "m6g.large", userData=TOML)
    assert node["metadata"]["labels"]["mine"] == "1"
    assert node["metadata"]["labels"][labels.ARCH] == "arm64"


async def test_windows_node_joins(product: InstalledProduct) -> None:
    node = await _assert_joined(
        product, "family-windows", "windows2022@latest", "m6i.large", userData="Write-Host mine"
    )
    assert node["metadata"]["labels"][labels.OS] == "windows"
    assert node["metadata"]["labels"][labels.WINDOWS_BUILD] == "10.0.20348"
    assert node["status"]["capacity"]["pods"] == "110"


async def test_custom_node_joins_with_its_own_user_data(product: InstalledProduct) -> None:
    spec = {"amiFamily": "Custom", "userData": JOIN}
    node = await _assert_joined(product, "family-custom", "al2023@latest", "m6i.large", **spec)
    assert node["metadata"]["labels"]["mine"] == "1"


async def _assert_joined(product: InstalledProduct, name: str, alias: str, instance_type: str, **spec: Any) -> Object:
    """A pod of the family runs on a Node with one of the class's images. Returns the Node."""
    async with (
        _class(product, name, alias, spec) as nodeclass,
        product.scope(name, types=(instance_type,), of_class=name) as scope,
    ):
        (claim,) = await scope.run_pods(1)
        (node,) = await scope.nodes()
        assert claim["status"]["imageID"] in {image["id"] for image in nodeclass["status"]["amis"]}
        assert node["metadata"]["labels"][labels.INSTANCE_TYPE] == instance_type
        assert not any(labels.UNREGISTERED_TAINT_KEY in taint for taint in taint_texts(node))
        return node


async def test_offerings_are_exported_as_metrics(product: InstalledProduct) -> None:
    gauge = partial(product.metric_value, instance_type="m5.large")
    prefix = "karpenter_cloudprovider_instance_type"
    price = await wait_until(lambda: gauge(f"{prefix}_offering_price_estimate", capacity_type="on-demand"))
    assert 0.01 < price < 1
    offering = {"capacity_type": "spot", "zone": "us-west-2a"}
    assert await wait_until(lambda: gauge(f"{prefix}_offering_available", **offering)) == 1
    assert await wait_until(lambda: gauge(f"{prefix}_cpu_cores")) == 2
    assert 7e9 < await wait_until(lambda: gauge(f"{prefix}_memory_bytes")) < 8.6e9


@asynccontextmanager
async def _class(product: InstalledProduct, name: str, alias: str, spec: dict[str, Any]) -> AsyncIterator[Object]:
    manifest = node_class(name, alias)
    manifest["spec"] |= spec
    await product.kube.apply(manifest)
    try:
        yield await wait_until(partial(product.assert_nodeclass_ready, name))
    finally:
        await product.delete(EC2_NODE_CLASSES.path(name))
        await wait_until(partial(product.assert_deleted, EC2_NODE_CLASSES.path(name)))


def _gibibytes(amount: str) -> float:
    return float(amount.removesuffix("Ki")) / (1 << 20) if amount.endswith("Ki") else float(amount) / (1 << 30)
