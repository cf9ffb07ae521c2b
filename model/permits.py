"""What a NodePool asks the cluster before it gives permits for voluntary disruption."""

from model.base import Message
from model.coordination import Permit
from model.disruption import Disrupted
from model.kinds.disruption_rules import DisruptionRules


class AllowanceAsked(Message):
    """How many more nodes of a NodePool may go for a reason."""

    name: str
    reason: str = "Empty"
    rules: DisruptionRules | None = None
    """What LifecyclePolicies say beyond the NodePool's own budgets."""
    past: tuple[Disrupted, ...] = ()
    permits: tuple[Permit, ...] = ()
    """Those that are out: they count as gone once their node is on its way."""
    asking: tuple[str, ...] = ()
    """UIDs of NodeClaims that permits are wished for, or out to."""
