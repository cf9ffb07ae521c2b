"""DRA drivers without complete ResourceSlices, and resources of DeviceClasses, from live reads."""

from typing import Any, cast

import pytest

from tenure.kube.adapters.nodes import KubeNodes
from tenure.kube.client.client import KubeClient
from tenure.model.errors import Fault, Forbidden, NotFound

Json = dict[str, Any]
GPU, NIC = "gpu.example.com", "nic.example.com"


class FakeClient:
    """Returns the slices of the Node that the field selector names, or all DeviceClasses."""

    def __init__(self, *items: Json, fault: Fault | None = None) -> None:
        self._items, self._fault = items, fault

    async def request(self, method: str, path: str, *, params: dict[str, str] | None = None) -> Json:
        if self._fault is not None:
            raise self._fault
        wanted = (params or {}).get("fieldSelector", "").removeprefix("spec.nodeName=")
        return {"items": [one for one in self._items if not wanted or one["spec"]["nodeName"] == wanted]}


def resource_slice(driver: str, number: int = 0, *, count: int = 1, generation: int = 1, node: str = "n1") -> Json:
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    return {
        "metadata": {"name": f"{driver}-{number}"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": []},
    }


@pytest.mark.parametrize(
    ("slices", "missing"),
    [
        ((), (GPU, NIC)),
        ((resource_slice(GPU),), (NIC,)),
        ((resource_slice(GPU), resource_slice(NIC)), ()),
        ((resource_slice(GPU, count=2), resource_slice(NIC)), (GPU,)),
        ((resource_slice(GPU, count=2), resource_slice(GPU, 1, count=2), resource_slice(NIC)), ()),
        ((resource_slice(GPU), resource_slice(GPU, 1, count=2, generation=2), resource_slice(NIC)), (GPU,)),
        ((resource_slice(GPU, node="n2"), resource_slice(NIC)), (GPU,)),
    ],
)
async def test_driver_is_missing_until_a_pool_of_the_node_is_complete(
    slices: tuple[Json, ...], missing: tuple[str, ...]
) -> None:
    nodes = KubeNodes(cast(KubeClient, FakeClient(*slices)), plans_devices=True)
    assert await nodes.list_missing_drivers("n1", (GPU, NIC)) == missing


async def test_no_driver_is_missing_while_claims_are_ignored() -> None:
    nodes = KubeNodes(cast(KubeClient, None))
    assert await nodes.list_missing_drivers("n1", (GPU,)) == ()


async def test_resources_of_device_classes_are_found() -> None:
    named: Json = {"spec": {"extendedResourceName": "example.com/gpu"}}
    nodes = KubeNodes(cast(KubeClient, FakeClient(named, {"spec": {}})))
    by_prefix = "deviceclass.resource.kubernetes.io/a"
    requested = ("example.com/plugin", "example.com/gpu", by_prefix)
    assert await nodes.list_dra_resources(requested) == (by_prefix, "example.com/gpu")


@pytest.mark.parametrize("fault", [NotFound("no kind"), Forbidden("no permission")])
async def test_device_classes_are_optional(fault: Fault) -> None:
    nodes = KubeNodes(cast(KubeClient, FakeClient(fault=fault)))
    assert await nodes.list_dra_resources(("example.com/gpu",)) == ()
