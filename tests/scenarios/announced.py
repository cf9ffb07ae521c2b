"""What rows of AWS's events do and look at: rules of a pool, messages, and what a node's workflow knows."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.apis.lifecyclepolicy_events import InterruptionRules
from tenure.model.nodeclaim_state import ClaimState
from tests.support.product.eventually import eventually
from tests.support.product.objects import Object, lifecycle_policy
from tests.support.product.product import Product
from tests.support.product.scene import Scene

SOON = 180.0
"""Seconds from AWS's word to what follows."""


async def running(scene: Scene, pods: int, interruption: dict[str, Any] | None = None, **pod: Any) -> list[Object]:
    """So many nodes, with a pod each, whose workflows know these rules of their pool: their NodeClaims."""
    if interruption:
        await scene.make(lifecycle_policy(scene.name, scene.name, interruption=interruption))
    claims = await scene.run(pods, **pod)
    if interruption:
        for claim in claims:
            await knows(scene, claim, interruption)
    return claims


async def knows(scene: Scene, claim: Object, interruption: dict[str, Any]) -> None:
    wanted = InterruptionRules.model_validate(interruption)

    async def told() -> None:
        rules = (await state_of(scene, claim)).seen.rules
        assert rules is not None and rules.interruption == wanted, rules

    await eventually(told)


async def state_of(scene: Scene, claim: Object) -> ClaimState:
    return await scene.state(name_of(claim))


def name_of(claim: Object) -> str:
    name: str = claim["metadata"]["name"]
    return name


def instance_of(claim: Object) -> str:
    provider: str = claim["status"]["providerID"]
    return provider.rpartition("/")[2]


def announce(product: Product, *claims: Object, **ahead: float) -> datetime:
    """AWS Health tells of maintenance of these nodes' instances; when it begins."""
    starts = (datetime.now(UTC) + timedelta(**(ahead or {"days": 2}))).replace(microsecond=0)
    product.aws.health_event(
        [instance_of(one) for one in claims], startTime=starts.strftime("%a, %d %b %Y %H:%M:%S GMT")
    )
    return starts


def warn(product: Product, *claims: Object) -> None:
    """A spot interruption warning for each, be it a spot instance or not."""
    for claim in claims:
        _send(product, claim, "EC2 Spot Instance Interruption Warning", {"instance-action": "terminate"})


def stop(product: Product, claim: Object) -> None:
    """AWS stops the instance, and says so."""
    product.aws.stop_instance(instance_of(claim))
    _send(product, claim, "EC2 Instance State-change Notification", {"state": "stopping"})


def _send(product: Product, claim: Object, about: str, detail: dict[str, str]) -> None:
    instance = instance_of(claim)
    product.aws.send_message(
        {
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
    )


async def count(scene: Scene, about: str, reason: str) -> int:
    """Of events of this reason, each occurrence once."""
    found = [one for one in await scene.events(about) if one["reason"] == reason]
    return sum((one.get("series") or {}).get("count") or one.get("count") or 1 for one in found)
