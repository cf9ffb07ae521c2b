"""A batch of hostile objects in a running sandbox: applied, checked next to ordinary pods, deleted, and bisected."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tenure.sandbox.errors import ApiError
from tests.support.hostile.objects import MESSAGE, HostileObject
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.interruption_events import assert_queue_empty
from tests.support.product.product import MERGE, InstalledProduct

DELETION_SECONDS = 150.0
_PARALLEL = 8


class Check(NamedTuple):
    """Seconds until an ordinary pod ran, and until its node was drained and replaced."""

    start_seconds: float
    drain_seconds: float


class Batch:
    """`accepted` are the existing objects; `rejected` has the API server's status code per object."""

    def __init__(self, product: InstalledProduct) -> None:
        self.product = product
        self.accepted: list[HostileObject] = []
        self.rejected: dict[HostileObject, int] = {}
        self._slots = asyncio.Semaphore(_PARALLEL)

    async def apply(self, objects: Sequence[HostileObject]) -> None:
        await asyncio.gather(*map(self._apply, objects))

    async def _apply(self, one: HostileObject) -> None:
        async with self._slots:
            try:
                await self._create(one)
            except ApiError as error:
                self.rejected[one] = error.status
            else:
                self.accepted.append(one)

    async def _create(self, one: HostileObject) -> None:
        """Status is a subresource, which apply ignores."""
        if one.kind == MESSAGE:
            await asyncio.to_thread(self.product.aws.send_message, one.manifest)
            return
        await self.product.kube.apply({key: part for key, part in one.manifest.items() if key != "status"})
        if "status" in one.manifest:
            path = f"{await self.product.kube.path_of(one.manifest)}/status"
            await self.product.kube.request("PATCH", path, {"status": one.manifest["status"]}, MERGE)

    async def delete(self) -> None:
        """Wait until no object of the batch is left; an error names the remaining ones."""
        paths = {one: await self.product.kube.path_of(one.manifest) for one in self._created()}
        await asyncio.gather(*(self._delete(path) for path in paths.values()))
        await wait_until(lambda: self._assert_deleted(paths), seconds=DELETION_SECONDS)
        await wait_until(lambda: assert_queue_empty(self.product))
        self.accepted.clear()

    def _created(self) -> list[HostileObject]:
        """An object exists even if its status was rejected."""
        rejected = [one for one in self.rejected if "status" in one.manifest]
        return [one for one in (*self.accepted, *rejected) if one.kind != MESSAGE]

    async def _delete(self, path: str) -> None:
        async with self._slots:
            await self.product.delete(f"{path}?gracePeriodSeconds=0" if "/pods/" in path else path)

    async def _assert_deleted(self, paths: dict[HostileObject, str]) -> None:
        found = await asyncio.gather(*map(self.product.find, paths.values()))
        existing = [str(one) for one, metadata in zip(paths, found, strict=True) if metadata is not None]
        assert not existing, f"cannot be deleted: {existing}"


async def check_ordinary_pod(product: InstalledProduct, name: str) -> Check:
    """An ordinary pod gets its node, and the node drains, each within the timeout of `wait_until`."""
    async with product.scope(name, after="Never") as scope:
        created_at = time.monotonic()
        await scope.create_deployment(1)
        await wait_until(lambda: scope.assert_pods_running(1))
        running_at = time.monotonic()
        (claim,) = object_names(await scope.nodeclaims())
        await product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{claim}")
        await wait_until(lambda: _assert_replaced(scope, claim))
        return Check(running_at - created_at, time.monotonic() - running_at)


async def _assert_replaced(scope: ClusterScope, claim: str) -> None:
    await scope.assert_nodeclaims_deleted([claim])
    await scope.assert_pods_running(1)


async def find_culprits(product: InstalledProduct, objects: Sequence[HostileObject], name: str) -> list[HostileObject]:
    """Halves of the batch until single objects fail; empty when each half passes alone."""
    if len(objects) <= 1:
        return list(objects)
    middle = len(objects) // 2
    culprits: list[HostileObject] = []
    for half in (objects[:middle], objects[middle:]):
        batch, suspects = Batch(product), half
        await batch.apply(half)
        with suppress(AssertionError):
            await check_ordinary_pod(product, name)
            suspects = []
        await batch.delete()
        culprits += await find_culprits(product, suspects, name)
    return culprits
