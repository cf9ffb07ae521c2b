"""Promise 4: a gate that is off is off everywhere."""

from functools import partial

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS
from tests.scenarios.reserved import reserved
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct, Product


async def switch_off(product: OwnProduct) -> None:
    await product.work(FEATURE_GATES="ReservedCapacity=false")


async def switch_on(product: OwnProduct) -> None:
    await product.work(FEATURE_GATES="ReservedCapacity=true")


@pytest.mark.row("003-a")
async def test_an_instance_in_an_open_reservation_is_on_demand_while_the_gate_is_off(
    own_product: OwnProduct,
) -> None:
    await own_product.work(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reserved(own_product, "003-a", of_type="m5.large", criteria="open") as there:
        claim = await there.start()
        assert there.used() == there.scene.alive(), "EC2 put it into no reservation"
        await there.stays(claim, reserved=False)
        await there.lists(0)


@pytest.mark.row("003-b")
async def test_an_instance_whose_preference_is_open_is_on_demand_while_the_gate_is_on(
    own_product: OwnProduct,
) -> None:
    await own_product.work(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reserved(own_product, "003-b", of_type="m5a.large", criteria="open") as there:
        claim = await there.start()
        assert there.used() == there.scene.alive(), "EC2 put it into no reservation"
        await switch_on(own_product)
        await there.select_again()
        await eventually(lambda: there.lists(3))
        await there.sync()
        await there.stays(claim, reserved=False)


@pytest.mark.row("003-c")
async def test_a_targeted_launch_is_reserved_and_does_not_drift(product: Product) -> None:
    async with reserved(product, "003-c") as there:
        claim = await there.start()
        assert there.used() == there.scene.alive()
        await there.stays(claim, reserved=True)
        await there.scene.one_node_was_bought()


@pytest.mark.row("003-d")
async def test_a_reservation_that_is_no_longer_selected_is_drift(product: Product) -> None:
    async with reserved(product, "003-d") as there:
        claim = await there.start()
        await there.is_reserved(claim)
        await there.select({"tags": {"tests.tenure.sh/of": "nobody"}})
        await eventually(partial(there.has_drifted, claim, labels.CAPACITY_RESERVATION_DRIFT))


@pytest.mark.row("003-e")
async def test_a_node_whose_reservation_expired_is_on_demand_and_has_not_drifted(product: Product) -> None:
    async with reserved(product, "003-e") as there:
        claim = await there.start()
        await there.is_reserved(claim)
        for one in there.reservations:
            product.aws.expire_reservation(one)
        await there.sync()
        await eventually(partial(there.is_on_demand, claim))
        await eventually(partial(there.scene.event, claim, "CapacityReservationLost"))
        await there.stays(claim, reserved=False)
        assert len(there.scene.alive()) == 1


@pytest.mark.row("003-f")
async def test_reserved_nodes_outlive_the_gate_and_nothing_new_is_reserved(
    own_product: OwnProduct,
) -> None:
    await own_product.work(FEATURE_GATES="ReservedCapacity=true")
    async with reserved(own_product, "003-f", count=2) as there:
        claim = await there.start()
        await there.is_reserved(claim)
        await switch_off(own_product)
        await eventually(lambda: there.lists(0))
        await there.sync()
        await there.stays(claim, reserved=True)
        another = await there.start(2)
        await there.is_on_demand(another)
        await there.has_not_drifted(claim)
        path = NODE_CLAIMS.path(another)
        values = [one["values"] for one in (await own_product.kube.request("GET", path))["spec"]["requirements"]]
        assert ["on-demand"] in values, values


@pytest.mark.row("003-g")
async def test_nodes_from_before_the_gate_keep_their_labels_and_new_ones_may_be_reserved(
    own_product: OwnProduct,
) -> None:
    await own_product.work(FEATURE_GATES="ReservedCapacity=true")
    await switch_off(own_product)
    async with reserved(own_product, "003-g", of_type="m5n.large") as there:
        claim = await there.start()
        await there.is_on_demand(claim)
        await switch_on(own_product)
        await there.select_again()
        await eventually(lambda: there.lists(3))
        await there.stays(claim, reserved=False)
        another = await there.start(2)
        await there.is_reserved(another)
        await there.is_on_demand(claim)
