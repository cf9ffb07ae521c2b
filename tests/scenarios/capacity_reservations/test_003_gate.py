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
async def test_an_instance_in_an_open_reservation_is_on_demand_while_the_gate_is_off(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reservation_scope(own_product, "003-a", of_type="m5.large", criteria="open") as there:
        claim = await there.start()
        assert there.used_instances() == there.scope.alive_instances(), "EC2 put it into no reservation"
        await there.assert_stays_labeled(claim, reserved=False)
        await there.assert_reservation_count(0)


@pytest.mark.row("003-b")
async def test_an_instance_whose_preference_is_open_is_on_demand_while_the_gate_is_on(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reservation_scope(own_product, "003-b", of_type="m5a.large", criteria="open") as there:
        claim = await there.start()
        assert there.used_instances() == there.scope.alive_instances(), "EC2 put it into no reservation"
        await switch_on(own_product)
        await there.reselect()
        await wait_until(lambda: there.assert_reservation_count(3))
        await there.sync()
        await there.assert_stays_labeled(claim, reserved=False)


@pytest.mark.row("003-c")
async def test_a_targeted_launch_is_reserved_and_does_not_drift(product: InstalledProduct) -> None:
    async with reservation_scope(product, "003-c") as there:
        claim = await there.start()
        assert there.used_instances() == there.scope.alive_instances()
        await there.assert_stays_labeled(claim, reserved=True)
        await there.scope.assert_one_node_launched()


@pytest.mark.row("003-d")
async def test_a_reservation_that_is_no_longer_selected_is_drift(product: InstalledProduct) -> None:
    async with reservation_scope(product, "003-d") as there:
        claim = await there.start()
        await there.assert_reserved(claim)
        await there.select_reservations({"tags": {"tests.tenure.sh/of": "nobody"}})
        await wait_until(partial(there.assert_drifted, claim, labels.CAPACITY_RESERVATION_DRIFT))


@pytest.mark.row("003-e")
async def test_a_node_whose_reservation_expired_is_on_demand_and_has_not_drifted(product: InstalledProduct) -> None:
    async with reservation_scope(product, "003-e") as there:
        claim = await there.start()
        await there.assert_reserved(claim)
        for one in there.reservations:
            product.aws.expire_reservation(one)
        await there.sync()
        await wait_until(partial(there.assert_on_demand, claim))
        await wait_until(partial(there.scope.assert_event, claim, "CapacityReservationLost"))
        await there.assert_stays_labeled(claim, reserved=False)
        assert len(there.scope.alive_instances()) == 1


@pytest.mark.row("003-f")
async def test_reserved_nodes_outlive_the_gate_and_nothing_new_is_reserved(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")
    async with reservation_scope(own_product, "003-f", count=2) as there:
        claim = await there.start()
        await there.assert_reserved(claim)
        await switch_off(own_product)
        await wait_until(lambda: there.assert_reservation_count(0))
        await there.sync()
        await there.assert_stays_labeled(claim, reserved=True)
        another = await there.start(2)
        await there.assert_on_demand(another)
        await there.assert_not_drifted(claim)
        path = NODE_CLAIMS.path(another)
        values = [one["values"] for one in (await own_product.kube.request("GET", path))["spec"]["requirements"]]
        assert ["on-demand"] in values, values


@pytest.mark.row("003-g")
async def test_nodes_from_before_the_gate_keep_their_labels_and_new_ones_may_be_reserved(
    own_product: DedicatedProduct,
) -> None:
    await own_product.ensure_worker(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reservation_scope(own_product, "003-g", of_type="m5n.large") as there:
        claim = await there.start()
        await there.assert_on_demand(claim)
        await switch_on(own_product)
        await there.reselect()
        await wait_until(lambda: there.assert_reservation_count(3))
        await there.assert_stays_labeled(claim, reserved=False)
        another = await there.start(2)
        await there.assert_reserved(another)
        await there.assert_on_demand(claim)
