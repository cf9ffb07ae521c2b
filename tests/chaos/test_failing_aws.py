"""Three of ten AWS calls fail, some after they took effect: pods run anyway, and no extra instance is launched."""

import pytest

from tests.support.product.eventually import wait_until
from tests.support.product.product import DedicatedProduct

SEED = 20
SHARES = {"throttle": 1 / 10, "5xx": 1 / 9, "answer-lost": 1 / 8}
"""Each share applies to the calls that the previous rules let pass, so that it is a tenth of all calls."""
PODS = 6
TIMEOUT_SECONDS = 400.0
"""Seconds. Failed calls are retried with backoff."""


@pytest.mark.timeout(300 + TIMEOUT_SECONDS)
async def test_scale_up_and_down_launches_no_extra_node_while_aws_fails(product: DedicatedProduct) -> None:
    await product.stop_workers()
    product.aws.seed_faults(SEED)
    before = _count_aws_calls(product)
    rules = [product.aws.add_fault(kind, probability=share) for kind, share in SHARES.items()]
    try:
        await product.ensure_worker(BATCH_MAX_DURATION="5s")
        async with product.scope("failing") as scope:
            await scope.create_deployment(PODS)
            await wait_until(lambda: scope.assert_pods_running(PODS), seconds=TIMEOUT_SECONDS)
            await wait_until(lambda: scope.assert_nodes_initialized(PODS))
            assert len(scope.alive_instances()) == PODS
            await scope.scale_deployment(0)
            await wait_until(lambda: scope.assert_no_nodes(), seconds=TIMEOUT_SECONDS)
            await scope.wait_until_nodes_launched(PODS)
    finally:
        hits = {rule["kind"]: rule["hits"] for rule in product.aws.list_faults()}
        for rule in rules:
            product.aws.remove_fault(rule)
    assert set(hits) == set(SHARES) and all(hits.values()), hits
    assert sum(hits.values()) >= (_count_aws_calls(product) - before) / 5, f"too few calls failed: {hits}"


def _count_aws_calls(product: DedicatedProduct) -> int:
    return sum(int(entry["count"]) for entry in product.aws.get_counters().values())
