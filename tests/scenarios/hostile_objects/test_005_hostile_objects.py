"""Promise 6: an unreadable object or message affects only itself, also when the worker is killed."""

from functools import partial
from typing import Final

import pytest

from tenure.apis.labels import DO_NOT_DISRUPT
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.drains import set_do_not_disrupt
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.interruption_events import (
    SOON,
    assert_queue_empty,
    instance_id,
    nodeclaim_name,
    send_spot_warning,
    spot_warning,
)
from tests.support.product.objects import Object, pending_pod, pod_spec
from tests.support.product.product import InstalledProduct

DIGITS: Final = "9" * 4301 + "h"
LONG: Final = "9" * 20_000 + "x"
HALF_NODE: Final = "600m"
DROPPED: Final = "tenure_interruption_messages_dropped_total"


@pytest.mark.row("005-a")
async def test_unreadable_annotation_protects_only_its_pod(product: InstalledProduct) -> None:
    async with product.scope("005-a", after="Never") as scope:
        await scope.create_deployment(1, **pod_spec(scope.name, cpu=HALF_NODE))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.scale_deployment(2)
        await wait_until(lambda: scope.assert_pods_running(2))
        (claim,) = await scope.nodeclaims()
        protected, other = [one["metadata"]["name"] for one in await scope.pods()]
        await set_do_not_disrupt(scope, protected, DIGITS)
        await wait_until(lambda: scope.assert_event(protected, "InvalidObject", DO_NOT_DISRUPT, "protects the pod"))
        await product.delete(f"/apis/karpenter.sh/v1/nodeclaims/{nodeclaim_name(claim)}")
        await wait_until(lambda: assert_pod_replaced(scope, other))
        independent = await scope.create_deployment(1, f"{scope.name}-independent", **pod_spec(scope.name))
        await wait_until(lambda: scope.assert_pods_running(1, independent))
        await assert_throughout(lambda: assert_on_node(scope, protected, claim), seconds=5)
        await set_do_not_disrupt(scope, protected, None)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([nodeclaim_name(claim)]))
        await wait_until(lambda: scope.assert_pods_running(2))


async def assert_pod_replaced(scope: ClusterScope, pod: str) -> None:
    await scope.assert_pods_running(2)
    assert pod not in [one["metadata"]["name"] for one in await scope.pods()]


async def assert_on_node(scope: ClusterScope, pod: str, claim: Object) -> None:
    nodes = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in await scope.pods()}
    assert nodes.get(pod) == claim["status"]["nodeName"], nodes


@pytest.mark.row("005-b")
async def test_hostile_pending_pods_are_reported_and_an_ordinary_pod_runs(product: InstalledProduct) -> None:
    async with product.scope("005-b") as scope:
        for pod in (
            pending_pod(scope.name, "memory", memory="9e30"),
            pending_pod(scope.name, "cpu", cpu="1e30"),
            pending_pod(scope.name, "annotation", do_not_disrupt=LONG),
            pending_pod(scope.name, "script", do_not_disrupt="\u0663h"),
            pending_pod(scope.name, "type", do_not_disrupt='{"after": [5]}'),
        ):
            await scope.apply_manifest(pod)
        await scope.run_pods(1)
        expected = (
            ("memory", "FailedScheduling", "9e30"),
            ("cpu", "FailedScheduling", "1e30"),
            ("annotation", "InvalidObject", DO_NOT_DISRUPT),
            ("script", "InvalidObject", DO_NOT_DISRUPT),
            ("type", "InvalidObject", DO_NOT_DISRUPT),
        )
        for name, reason, text in expected:
            await wait_until(partial(scope.assert_event, f"{scope.name}-{name}", reason, text))
        await scope.wait_until_nodes_launched(1)


@pytest.mark.row("005-c")
async def test_unreadable_messages_do_not_delay_a_spot_warning(product: InstalledProduct) -> None:
    async with product.scope("005-c") as scope:
        (claim,) = await scope.run_pods(1)
        for message in malformed_messages(claim):
            product.aws.send_message(message)
        send_spot_warning(product, claim)
        await wait_until(lambda: scope.assert_event(nodeclaim_name(claim), "SpotInterrupted"), seconds=SOON)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([nodeclaim_name(claim)]), seconds=SOON)
        await wait_until(lambda: product.metric_value(DROPPED, why="malformed"), seconds=SOON)
        await wait_until(partial(assert_queue_empty, product))


@pytest.mark.row("005-c")
@pytest.mark.exact_counters
async def test_each_unreadable_message_is_counted_once(product: InstalledProduct) -> None:
    """Other tests send unreadable messages too. The worker logs and counts a message in one step."""
    messages = malformed_messages({"status": {"providerID": "aws:///us-west-2a/i-0123456789abcdef0"}})
    dropped = await count_malformed_messages(product)
    sent = [product.aws.send_message(message) for message in messages]
    await wait_until(partial(assert_logged_once, product, sent))
    await wait_until(partial(assert_queue_empty, product))
    await assert_logged_once(product, sent)
    assert await count_malformed_messages(product) >= dropped + len(sent)


async def assert_logged_once(product: InstalledProduct, ids: list[str]) -> None:
    logged = [one["id"] for one in product.log_entries() if one["message"] == "message dropped"]
    assert [logged.count(one) for one in ids] == [1] * len(ids)


def malformed_messages(claim: Object) -> list[Object]:
    """Nine spot warnings with an impossible time, a lone surrogate or a number as instance ID."""
    surrogate = {"instance-id": instance_id(claim), "instance-action": "\ud800"}
    return [
        spot_warning(claim, time="Fri, 22 Jul 2016 00:00:00 +99999999999999999999"),
        spot_warning(claim, detail=surrogate),
        *(spot_warning(claim, detail={"instance-id": number}) for number in range(7)),
    ]


async def count_malformed_messages(product: InstalledProduct) -> float:
    """Malformed messages that the worker dropped; zero before the first."""
    found = [one for one in await product.metric_samples() if one.startswith(DROPPED) and 'why="malformed"' in one]
    return sum(float(one.rpartition(" ")[2]) for one in found)
