"""Three of ten AWS calls fail, also after the work was done: pods run all the same, and the books balance."""

from tests.integration.eventually import eventually
from tests.integration.product import Product

SEED = 20
SHARES = {"throttle": 0.1, "5xx": 0.1, "answer-lost": 0.1}
PODS = 6


async def test_a_scale_up_and_down_balances_while_aws_fails(product: Product) -> None:
    await product.rest()
    product.aws.seed_faults(SEED)
    before = product.aws.counters()
    rules = [product.aws.add_fault(kind, probability=share) for kind, share in SHARES.items()]
    try:
        await product.work(BATCH_MAX_DURATION="5s")
        async with product.scene("failing") as scene:
            await scene.deploy(PODS)
            await eventually(lambda: scene.pods_run(PODS), seconds=150)
            await eventually(lambda: scene.nodes_are_initialized(PODS))
            assert len(scene.alive()) == PODS
            await scene.scale(0)
            await eventually(lambda: scene.nothing_runs(), seconds=150)
            assert len(scene.launched()) == len(await scene.lives()) == PODS
    finally:
        hits = {rule["kind"]: rule["hits"] for rule in product.aws.faults()}
        for rule in rules:
            product.aws.remove_fault(rule)
    assert set(hits) == set(SHARES) and all(hits.values()), hits
    assert sum(entry["count"] for entry in product.aws.counters().values()) > sum(
        entry["count"] for entry in before.values()
    )
