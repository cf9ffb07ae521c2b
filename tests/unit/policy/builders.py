"""States and permit results with usual defaults for all fields that a test does not set."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState, Phase
from tenure.model.observations import ObservedNodeClaim
from tenure.model.signals import PermitResult

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def before(**ago: float) -> datetime:
    return NOW - timedelta(**ago)


def after(**ahead: float) -> datetime:
    return NOW + timedelta(**ahead)


def node(observed: dict[str, Any] | None = None, *, created: datetime | None = None, **state: Any) -> NodeClaimState:
    """A ready and occupied node of a NodePool; `observed` overrides fields of its observation."""
    identity = NodeClaimIdentity(
        cluster="test", name="a", uid="uid-a", pool="default", created=created or before(hours=1)
    )
    defaults: dict[str, Any] = {"number": 1, "node_name": "node-a", "node_ready": True, "boot_id": "boot-1"}
    return NodeClaimState(
        **{
            "identity": identity,
            "phase": Phase.READY,
            "boot_id": "boot-1",
            "observed": ObservedNodeClaim(**{**defaults, **(observed or {})}),
            **state,
        }
    )


def empty_for(consolidation: str = "WhenEmpty/30s", **ago: float) -> dict[str, Any]:
    return {"empty": True, "empty_since": before(**ago), "consolidation": consolidation}


def permit(**until: float) -> PermitResult:
    return PermitResult(granted=True, reason="Empty", until=after(**until))


REJECTED = PermitResult(granted=False, reason="Empty", blocked_by="budget 1 of 3 nodes allows 1, 1 in use")
