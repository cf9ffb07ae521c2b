"""Client tokens: the same token with the same request gives the first answer again, with another request an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from sandbox.aws.ec2.world import World
from sandbox.aws.wire.errors import AwsError

T = TypeVar("T")


def once(world: World, action: str, request: dict[str, Any], perform: Callable[[], T]) -> T:
    """Perform, or repeat the stored answer. Raises IdempotentParameterMismatch; failures are not stored."""
    token = request.get("ClientToken")
    if not token:
        return perform()
    digest = json.dumps({k: v for k, v in request.items() if k not in ("ClientToken", "DryRun")}, sort_keys=True)
    known = world.tokens.get((action, token))
    if known is None:
        answer = perform()
        world.tokens[action, token] = (digest, answer)
        return answer
    if known[0] != digest:
        raise AwsError(
            "IdempotentParameterMismatch",
            "The request uses the same client token as a previous, but non-identical request.",
        )
    stored: T = known[1]
    return stored
