"""Promise 4: a disabled feature gate has no effect anywhere."""

from functools import partial

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS
from tests.support.product.capacity_reservations import reservation_scope
from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct, InstalledProduct


async def switch_off(product: DedicatedProduct) -> None:
    await product.ensure_worker(FEATURE_GATES="ReservedCapacity=false")


async def switch_on(product: DedicatedProduct) -> None:
    await product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")


@pytest.mark.row("003-a")
async def test_instance_in_open_reservation_is_on_demand_with_gate_off(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reservation_scope(own_product, "003-a", of_type="m5.large", criteria="open") as reservation:
        claim = await reservation.start()
        assert reservation.used_instances() == reservation.scope.alive_instances(), "EC2 did not use a reservation"
        await reservation.assert_stays_labeled(claim, reserved=False)
        await reservation.assert_reservation_count(0)


@pytest.mark.row("003-b")
async def test_instance_with_preference_open_stays_on_demand_with_gate_on(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reservation_scope(own_product, "003-b", of_type="m5a.large", criteria="open") as reservation:
        claim = await reservation.start()
        assert reservation.used_instances() == reservation.scope.alive_instances(), "EC2 did not use a reservation"
        await switch_on(own_product)
        await reservation.reselect()
        await wait_until(lambda: reservation.assert_reservation_count(3))
        await reservation.sync()
        await reservation.assert_stays_labeled(claim, reserved=False)


@pytest.mark.row("003-c")
async def test_targeted_launch_is_reserved_and_does_not_drift(product: InstalledProduct) -> None:
    async with reservation_scope(product, "003-c") as reservation:
        claim = await reservation.start()
        assert reservation.used_instances() == reservation.scope.alive_instances()
        await reservation.assert_stays_labeled(claim, reserved=True)
        await reservation.scope.assert_one_node_launched()


@pytest.mark.row("003-d")
async def test_deselected_reservation_is_drift(product: InstalledProduct) -> None:
    async with reservation_scope(product, "003-d") as reservation:
        claim = await reservation.start()
        await reservation.assert_reserved(claim)
        await reservation.select_reservations({"tags": {"tests.tenure.sh/of": "missing"}})
        await wait_until(partial(reservation.assert_drifted, claim, labels.CAPACITY_RESERVATION_DRIFT))


@pytest.mark.row("003-e")
async def test_node_of_expired_reservation_is_on_demand_and_does_not_drift(product: InstalledProduct) -> None:
    async with reservation_scope(product, "003-e") as reservation:
        claim = await reservation.start()
        await reservation.assert_reserved(claim)
        for one in reservation.reservations:
            product.aws.expire_reservation(one)
        await reservation.sync()
        await wait_until(partial(reservation.assert_on_demand, claim))
        await wait_until(partial(reservation.scope.assert_event, claim, "CapacityReservationLost"))
        await reservation.assert_stays_labeled(claim, reserved=False)
        assert len(reservation.scope.alive_instances()) == 1


@pytest.mark.row("003-f")
async def test_reserved_nodes_stay_with_gate_off_and_new_ones_are_on_demand(own_product: DedicatedProduct) -> None:
    await own_product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")
    async with reservation_scope(own_product, "003-f", count=2) as reservation:
        claim = await reservation.start()
        await reservation.assert_reserved(claim)
        await switch_off(own_product)
        await wait_until(lambda: reservation.assert_reservation_count(0))
        await reservation.sync()
        await reservation.assert_stays_labeled(claim, reserved=True)
        another = await reservation.start(2)
        await reservation.assert_on_demand(another)
        await reservation.assert_not_drifted(claim)
        path = NODE_CLAIMS.path(another)
        values = [one["values"] for one in (await own_product.kube.request("GET", path))["spec"]["requirements"]]
        assert ["on-demand"] in values, values


@pytest.mark.row("003-g")
async def test_old_nodes_keep_their_labels_with_gate_on_and_new_ones_are_reserved(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reservation_scope(own_product, "003-g", of_type="m5n.large") as reservation:
        claim = await reservation.start()
        await reservation.assert_on_demand(claim)
        await switch_on(own_product)
        await reservation.reselect()
        await wait_until(lambda: reservation.assert_reservation_count(3))
        await reservation.assert_stays_labeled(claim, reserved=False)
        another = await reservation.start(2)
        await reservation.assert_reserved(another)
        await reservation.assert_on_demand(claim)
