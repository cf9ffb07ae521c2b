"""Many nodes at once while EC2 loses answers and is slow, and the API server sheds load: each is bought once.

`TENURE_LOSSY` sets how many; 300 is what it is for, and `make chaos` takes them.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tenure.sandbox.fault_proxy import Answer
from tests.chaos import books
from tests.support.product.eventually import eventually
from tests.support.product.product import OwnProduct

NODES = int(os.environ.get("TENURE_LOSSY", "40"))
PATIENCE = 180.0 + 3 * NODES
LOST, LATE, SHED = 0.10, 0.05, 0.20
"""Shares: of EC2's answers that are lost, of its answers that come late, of the API server's answers that are 429."""
LATE_BY = 30.0
"""Seconds; as long as a client waits."""
SEED = 7


@pytest.mark.timeout(300 + PATIENCE)
async def test_each_node_is_bought_once_though_answers_are_lost_late_and_refused(product: OwnProduct) -> None:
    await product.work(BATCH_MAX_DURATION="5s")
    async with product.scene("lossy") as scene:
        began = time.monotonic()
        with lossy(product) as hits:
            await scene.deploy(NODES)
            await eventually(lambda: scene.nodes_are_initialized(NODES), seconds=PATIENCE)
            print(f"{NODES} nodes are ready after {time.monotonic() - began:.0f} s")
        await eventually(lambda: scene.pods_run(NODES), seconds=PATIENCE)
        await scene.nodes_were_bought(NODES)
        await eventually(lambda: books.nodes_are_whole(scene))
        books.tokens_were_kept(scene)
        print(f"faults: {hits}")
        assert all(hits.values()), hits
        await scene.scale(0)
        await eventually(scene.nothing_runs, seconds=PATIENCE)
        await books.lives_were_lived(scene)


@contextmanager
def lossy(product: OwnProduct) -> Iterator[dict[str, int]]:
    """The dictionary says afterwards how often each befell a call."""
    aws, hits = product.aws, dict[str, int]()
    aws.seed_faults(SEED)
    late = aws.add_fault("latency", service="ec2", probability=LATE, latency=LATE_BY)
    lost = aws.add_fault("answer-lost", service="ec2", probability=LOST)
    with product.own_sandbox.faults.during(Answer(429, retry_after=1), share=SHED) as shed:
        try:
            yield hits
        finally:
            found = {rule["id"]: int(rule["hits"]) for rule in aws.faults()}
            for rule in (late, lost):
                aws.remove_fault(rule)
            hits |= {"late": found[late], "lost": found[lost], "shed": shed.hits}
