"""Launches that fail repeatedly: their NodeClaims need attention within seconds, and until the launch succeeds."""

import asyncio
from datetime import datetime
from functools import partial
from typing import Any

from tenure.apis import labels
from tenure.model.blockers import LAUNCH_FAILED
from tests.support.product.cluster_scope import ClusterScope, conditions_by_type
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct

DENIED: dict[str, Any] = {"code": "UnauthorizedOperation", "http": 403}
FAULTS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "internal": ("5xx", "CreateFleet", {}, "An internal error has occurred"),
    "denied": ("error", "CreateFleet", DENIED, "Unauthorized"),
    "invalid": ("error", "CreateFleet", {"code": "InvalidParameterValue", "http": 400}, "InvalidParameterValue"),
    "template": ("error", "CreateLaunchTemplate", DENIED, "UnauthorizedOperation"),
}
"""By name of the scope: kind, action and fields of the fault, and text of the verdict."""


async def test_launch_that_fails_repeatedly_needs_attention_until_it_succeeds(product: InstalledProduct) -> None:
    await asyncio.gather(*(fail_and_launch(product, name) for name in FAULTS))


async def fail_and_launch(product: InstalledProduct, name: str) -> None:
    kind, action, fields, text = FAULTS[name]
    async with product.scope(f"failing-{name}", after="Never") as scope:
        rule = scope.inject_aws_fault(kind, action, **fields)
        await scope.create_deployment(1)
        claim = await wait_until(partial(assert_needs_attention, scope, text))
        condition = conditions_by_type(claim)[labels.NEEDS_ATTENTION]
        created, reported = claim["metadata"]["creationTimestamp"], condition["lastTransitionTime"]
        seconds = (datetime.fromisoformat(reported) - datetime.fromisoformat(created)).total_seconds()
        print(f"{name}: {seconds:.0f} s from the creation of the NodeClaim to its verdict")
        await scope.assert_blocked_by(claim["metadata"]["name"], text)
        scope.remove_aws_fault(rule)
        await wait_until(lambda: scope.assert_pods_running(1))
        (claim,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        assert labels.NEEDS_ATTENTION not in conditions_by_type(claim)
        await scope.assert_one_node_launched()


async def assert_needs_attention(scope: ClusterScope, text: str) -> Object:
    claims = await scope.nodeclaims()
    assert len(claims) == 1, claims
    (claim,) = claims
    condition = conditions_by_type(claim).get(labels.NEEDS_ATTENTION, {})
    assert (condition.get("status"), condition.get("reason")) == ("True", LAUNCH_FAILED), claim
    assert text in condition["message"]
    return claim
