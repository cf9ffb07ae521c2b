"""Three of ten AWS calls fail, also after the work was done: pods run all the same, and the books balance."""

import pytest

from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct

SEED = 20
SHARES = {"throttle": 1 / 10, "5xx": 1 / 9, "answer-lost": 1 / 8}
"""Each of what the ones before it leave, so that it is a tenth of all calls."""
PODS = 6
PATIENCE = 400.0
"""Seconds; what fails is tried again later and later."""


@pytest.mark.timeout(300 + PATIENCE)
async def test_a_scale_up_and_down_balances_while_aws_fails(product: OwnProduct) -> None:
    await product.rest()
    product.aws.seed_faults(SEED)
    before = _calls(product)
    rules = [product.aws.add_fault(kind, probability=share) for kind, share in SHARES.items()]
    try:
        await product.work(BATCH_MAX_DURATION="5s")
        async with product.scene("failing") as scene:
            await scene.deploy(PODS)
            await eventually(lambda: scene.pods_run(PODS), seconds=PATIENCE)
            await eventually(lambda: scene.nodes_are_initialized(PODS))
            assert len(scene.alive()) == PODS
            await scene.scale(0)
            await eventually(lambda: scene.nothing_runs(), seconds=PATIENCE)
            await scene.nodes_were_bought(PODS)
    finally:
        hits = {rule["kind"]: rule["hits"] for rule in product.aws.faults()}
        for rule in rules:
            product.aws.remove_fault(rule)
    assert set(hits) == set(SHARES) and all(hits.values()), hits
    assert sum(hits.values()) >= (_calls(product) - before) / 5, f"too few calls failed: {hits}"


def _calls(product: OwnProduct) -> int:
    return sum(int(entry["count"]) for entry in product.aws.counters().values())
