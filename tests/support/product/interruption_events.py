"""Helpers for tests of AWS events: rules of a NodePool, messages, and the state of a NodeClaim workflow."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.apis.lifecyclepolicy_events import InterruptionRules
from tenure.model.base import instance_id_of
from tenure.model.nodeclaim.state import NodeClaimState
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object, lifecycle_policy
from tests.support.product.product import InstalledProduct

SOON = 180.0
"""Seconds from an AWS event to its effect."""


async def run_pods_with_rules(
    scope: ClusterScope, pods: int, interruption: dict[str, Any] | None = None, **pod: Any
) -> list[Object]:
    """Run pods on nodes of their own, whose workflows have observed these interruption rules. Returns the
    NodeClaims.
    """
    if interruption:
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, interruption=interruption))
    claims = await scope.run_pods(pods, **pod)
    if interruption:
        for claim in claims:
            await wait_until_rules_observed(scope, claim, interruption)
    return claims


async def wait_until_rules_observed(scope: ClusterScope, claim: Object, interruption: dict[str, Any]) -> None:
    expected = InterruptionRules.model_validate(interruption)

    async def assert_rules_observed() -> None:
        rules = (await nodeclaim_state(scope, claim)).observed.rules
        assert rules is not None and rules.interruption == expected, rules

    await wait_until(assert_rules_observed)


async def nodeclaim_state(scope: ClusterScope, claim: Object) -> NodeClaimState:
    return await scope.nodeclaim_state(nodeclaim_name(claim))


def nodeclaim_name(claim: Object) -> str:
    name: str = claim["metadata"]["name"]
    return name


def instance_id(claim: Object) -> str:
    return instance_id_of(claim["status"]["providerID"])


async def assert_queue_empty(product: InstalledProduct) -> None:
    """Counts received messages too, until they are deleted."""
    assert product.aws.count_queued_messages() == 0


def announce_maintenance(product: InstalledProduct, *claims: Object, **ahead: float) -> datetime:
    """Send an AWS Health event for maintenance of these nodes' instances. Returns its start."""
    event_start = (datetime.now(UTC) + timedelta(**(ahead or {"days": 2}))).replace(microsecond=0)
    product.aws.health_event(
        [instance_id(one) for one in claims], startTime=event_start.strftime("%a, %d %b %Y %H:%M:%S GMT")
    )
    return event_start


def send_spot_warning(product: InstalledProduct, *claims: Object) -> None:
    """Send a spot interruption warning for each, even if its instance is not a spot instance."""
    for claim in claims:
        product.aws.send_message(spot_warning(claim))


def spot_warning(claim: Object, **fields: object) -> Object:
    """The EventBridge envelope, with some fields replaced."""
    return _event(claim, "EC2 Spot Instance Interruption Warning", {"instance-action": "terminate"}) | fields


def stop_instance(product: InstalledProduct, claim: Object) -> None:
    """AWS stops the instance and sends the event."""
    product.aws.stop_instance(instance_id(claim))
    product.aws.send_message(_event(claim, "EC2 Instance State-change Notification", {"state": "stopping"}))


def _event(claim: Object, about: str, detail: dict[str, str]) -> Object:
    instance = instance_id(claim)
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": about,
        "source": "aws.ec2",
        "account": "000000000000",
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": "us-west-2",
        "resources": [f"arn:aws:ec2:us-west-2:000000000000:instance/{instance}"],
        "detail": {"instance-id": instance, **detail},
    }


async def count_events(scope: ClusterScope, about: str, reason: str) -> int:
    """Number of events with this reason, with each repetition counted."""
    found = [one for one in await scope.events_of(about) if one["reason"] == reason]
    return sum((one.get("series") or {}).get("count") or one.get("count") or 1 for one in found)
