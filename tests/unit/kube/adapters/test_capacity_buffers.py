"""Status of CapacityBuffers."""

from typing import cast

from tenure.kube.adapters.karpenter_objects import KubeCapacityBuffers
from tenure.kube.client.client import KubeClient
from tests.support.containers import count_entries
from tests.support.controller.builders import NOW


class EmptyClient:
    async def get(self, path: str) -> None:
        return None


async def test_namespaces_of_deleted_buffers_leave_no_entry() -> None:
    buffers = KubeCapacityBuffers(cast(KubeClient, EmptyClient()))
    before = count_entries(buffers)
    for number in range(3):
        assert not await buffers.patch_status(f"preview-{number}", "spare", "uid", status={}, conditions=(), now=NOW)
    assert count_entries(buffers) == before
