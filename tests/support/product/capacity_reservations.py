"""A scope with capacity reservations and an EC2NodeClass that selects them, and assertions about both."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tenure.apis import labels
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODES
from tests.support.product.cluster_scope import ClusterScope, conditions_by_type
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.garbage_collection import collect_garbage
from tests.support.product.objects import TWO_CPUS, Object, node_class
from tests.support.product.product import InstalledProduct

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
UNCHANGED_SECONDS = 15.0
"""Seconds for which drift and labels must not change."""
OF = "tests.tenure.sh/of"
EITHER = ("reserved", "on-demand")


class ReservationScope:
    """A NodePool with its own class, and one reservation per zone with `count` instances."""

    def __init__(
        self, product: InstalledProduct, scope: ClusterScope, of_class: str, reservations: Sequence[str]
    ) -> None:
        self.product, self.scope, self.reservations = product, scope, reservations
        self.class_path = EC2_NODE_CLASSES.path(of_class)
        self._term = {"tags": {OF: of_class}}

    async def start(self, pods: int = 1) -> str:
        """Scale to this number of pods, each on its own node. Returns the newest NodeClaim's name."""
        if await self.scope.nodeclaims():
            await self.scope.scale_deployment(pods)
            await wait_until(lambda: self.scope.assert_pods_running(pods))
            await wait_until(lambda: self.scope.assert_nodes_initialized(pods))
        else:
            await self.scope.run_pods(pods)
        return await self.scope.assert_newest_nodeclaim(pods)

    async def assert_reserved(self, claim: str, kind: str = "default") -> None:
        """The labels of NodeClaim and Node name one of the reservations."""
        found = await self._labels(claim)
        expected = (labels.RESERVED, kind, "false")
        keys = (labels.CAPACITY_TYPE, labels.CAPACITY_RESERVATION_TYPE, labels.CAPACITY_RESERVATION_INTERRUPTIBLE)
        for object_labels in found:
            assert tuple(object_labels.get(key) for key in keys) == expected, object_labels
            assert object_labels.get(labels.CAPACITY_RESERVATION_ID) in self.reservations, object_labels

    async def assert_on_demand(self, claim: str) -> None:
        """Neither NodeClaim nor Node has a reservation label."""
        for object_labels in await self._labels(claim):
            three = {key: object_labels[key] for key in labels.RESERVATION_LABELS if key in object_labels}
            assert (object_labels.get(labels.CAPACITY_TYPE), three) == (labels.ON_DEMAND, {}), object_labels

    async def assert_not_drifted(self, claim: str) -> None:
        found = await self._claim(claim)
        drifted = conditions_by_type(found).get(labels.DRIFTED)
        assert drifted is None and not found["metadata"].get("deletionTimestamp"), drifted

    async def assert_stays_labeled(self, claim: str, *, reserved: bool) -> None:
        """The labels stay unchanged, without drift."""
        check = self.assert_reserved if reserved else self.assert_on_demand
        await assert_throughout(partial(check, claim), seconds=UNCHANGED_SECONDS)
        await self.assert_not_drifted(claim)

    async def assert_drifted(self, claim: str, reason: str) -> None:
        found = conditions_by_type(await self._claim(claim)).get(labels.DRIFTED, {})
        assert (found.get("status"), found.get("reason")) == ("True", reason), found

    def used_instances(self) -> list[str]:
        """Instances that EC2 counts in the reservations."""
        reservations = self.product.aws.list_reservations()
        return [instance for one in self.reservations for instance in reservations[one]["instances"]]

    async def assert_reservation_count(self, count: int) -> None:
        """The class's status has this number of reservations, and the condition only if there are any."""
        found = await self.product.kube.request("GET", self.class_path)
        listed = (found.get("status") or {}).get("capacityReservations") or []
        has_condition = labels.CAPACITY_RESERVATIONS_READY in conditions_by_type(found)
        assert (len(listed), has_condition) == (count, count > 0), (listed, has_condition)

    async def select_reservations(self, *terms: Object) -> None:
        await self.product.patch(self.class_path, {"spec": {"capacityReservationSelectorTerms": list(terms)}})

    async def reselect(self) -> None:
        """Select the same reservations with another spec, so that the class is resolved at once and not within a
        minute.
        """
        await self.select_reservations(self._term, {"tags": {OF: "nobody"}})

    async def sync(self) -> None:
        """Run the garbage collection task that synchronizes capacity types."""
        await collect_garbage(self.product, "capacity-types")

    async def _labels(self, claim: str) -> list[dict[str, str]]:
        found = await self._claim(claim)
        node = await self.product.kube.request("GET", NODES.path(found["status"]["nodeName"]))
        return [one["metadata"].get("labels") or {} for one in (found, node)]

    async def _claim(self, name: str) -> Object:
        return await self.product.kube.request("GET", NODE_CLAIMS.path(name))


@asynccontextmanager
async def reservation_scope(
    product: InstalledProduct, row: str, *, of_type: str = TWO_CPUS, count: int = 1, **reservation: Any
) -> AsyncIterator[ReservationScope]:
    """`reservation`: arguments of the stand-in's `make_reservation`."""
    of_class = f"t{row.replace('-', '')}-class"
    tags = {OF: of_class}
    reservations = [
        product.aws.make_reservation(of_type, zone, count=count, tags=tags, **reservation) for zone in ZONES
    ]
    manifest = node_class(of_class)
    manifest["spec"]["capacityReservationSelectorTerms"] = [{"tags": tags}]
    await product.kube.apply(manifest)
    try:
        async with product.scope(row, types=[of_type], capacity_type=EITHER, of_class=of_class) as scope:
            yield ReservationScope(product, scope, of_class, reservations)
    finally:
        await product.delete(EC2_NODE_CLASSES.path(of_class))
        for one in reservations:
            if product.aws.list_reservations()[one]["state"] == "active":
                product.aws.cancel_reservation(one)
