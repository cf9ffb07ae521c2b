"""A scene with capacity reservations and an EC2NodeClass that selects them, and looks at what became of both."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tenure.apis import labels
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODES
from tests.support.product.eventually import eventually, throughout
from tests.support.product.objects import TWO_CPUS, Object, node_class
from tests.support.product.product import Product
from tests.support.product.scene import Scene, conditions
from tests.support.product.tidying import tidy

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
HOLD = 15.0
"""Seconds for which nothing may drift or be relabelled."""
OF = "tests.tenure.sh/of"
EITHER = ("reserved", "on-demand")


class Reserved:
    """One pool on a class of its own, whose reservations stand in every zone, each with room for `count`."""

    def __init__(self, product: Product, scene: Scene, of_class: str, reservations: Sequence[str]) -> None:
        self.product, self.scene, self.reservations = product, scene, reservations
        self.class_path = EC2_NODE_CLASSES.path(of_class)
        self._term = {"tags": {OF: of_class}}

    async def start(self, pods: int = 1) -> str:
        """The newest of so many nodes, each with its pod: the name of its NodeClaim."""
        if await self.scene.claims():
            await self.scene.scale(pods)
            await eventually(lambda: self.scene.pods_run(pods))
            await eventually(lambda: self.scene.nodes_are_initialized(pods))
        else:
            await self.scene.run(pods)
        return await self.scene.newest_claim(pods)

    async def is_reserved(self, claim: str, kind: str = "default") -> None:
        """NodeClaim and Node say in which reservation the instance is, and it is."""
        found = await self._labels(claim)
        expected = (labels.RESERVED, kind, "false")
        keys = (labels.CAPACITY_TYPE, labels.CAPACITY_RESERVATION_TYPE, labels.CAPACITY_RESERVATION_INTERRUPTIBLE)
        for shown in found:
            assert tuple(shown.get(key) for key in keys) == expected, shown
            assert shown.get(labels.CAPACITY_RESERVATION_ID) in self.reservations, shown

    async def is_on_demand(self, claim: str) -> None:
        """Neither NodeClaim nor Node has a label of a reservation."""
        for shown in await self._labels(claim):
            three = {key: shown[key] for key in labels.RESERVATION_LABELS if key in shown}
            assert (shown.get(labels.CAPACITY_TYPE), three) == (labels.ON_DEMAND, {}), shown

    async def has_not_drifted(self, claim: str) -> None:
        found = await self._claim(claim)
        drifted = conditions(found).get(labels.DRIFTED)
        assert drifted is None and not found["metadata"].get("deletionTimestamp"), drifted

    async def stays(self, claim: str, *, reserved: bool) -> None:
        """As it is labelled, and without drift."""
        look = self.is_reserved if reserved else self.is_on_demand
        await throughout(partial(look, claim), seconds=HOLD)
        await self.has_not_drifted(claim)

    async def has_drifted(self, claim: str, reason: str) -> None:
        found = conditions(await self._claim(claim)).get(labels.DRIFTED, {})
        assert (found.get("status"), found.get("reason")) == ("True", reason), found

    def used(self) -> list[str]:
        """The instances that EC2 has in the reservations."""
        held = self.product.aws.reservations()
        return [instance for one in self.reservations for instance in held[one]["instances"]]

    async def lists(self, count: int) -> None:
        """The class's status names so many reservations, and has the condition only while it names any."""
        found = await self.product.kube.request("GET", self.class_path)
        listed = (found.get("status") or {}).get("capacityReservations") or []
        asked = labels.CAPACITY_RESERVATIONS_READY in conditions(found)
        assert (len(listed), asked) == (count, count > 0), (listed, asked)

    async def select(self, *terms: Object) -> None:
        await self.product.patch(self.class_path, {"spec": {"capacityReservationSelectorTerms": list(terms)}})

    async def select_again(self) -> None:
        """The same in other words, so that the class is resolved at once and not within a minute."""
        await self.select(self._term, {"tags": {OF: "nobody"}})

    async def sync(self) -> None:
        """Upkeep's look at capacity types, now; it is over when this returns."""
        await tidy(self.product, "capacity-types")

    async def _labels(self, claim: str) -> list[dict[str, str]]:
        found = await self._claim(claim)
        node = await self.product.kube.request("GET", NODES.path(found["status"]["nodeName"]))
        return [one["metadata"].get("labels") or {} for one in (found, node)]

    async def _claim(self, name: str) -> Object:
        return await self.product.kube.request("GET", NODE_CLAIMS.path(name))


@asynccontextmanager
async def reserved(
    product: Product, row: str, *, of_type: str = TWO_CPUS, count: int = 1, **reservation: Any
) -> AsyncIterator[Reserved]:
    """`reservation` as in the stand-in's `make_reservation`."""
    of_class = f"t{row.replace('-', '')}-class"
    tags = {OF: of_class}
    made = [product.aws.make_reservation(of_type, zone, count=count, tags=tags, **reservation) for zone in ZONES]
    manifest = node_class(of_class)
    manifest["spec"]["capacityReservationSelectorTerms"] = [{"tags": tags}]
    await product.kube.apply(manifest)
    try:
        async with product.scene(row, types=[of_type], capacity_type=EITHER, of_class=of_class) as scene:
            yield Reserved(product, scene, of_class, made)
    finally:
        await product.delete(EC2_NODE_CLASSES.path(of_class))
        for one in made:
            if product.aws.reservations()[one]["state"] == "active":
                product.aws.cancel_reservation(one)
