"""Input and result of a voluntary disruption pass: eligible nodes, ineligibilities, commands.

The command line imports verdicts from here, so this module must not import the planner's input.
"""

from collections import Counter
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import AwareDatetime

from tenure.model.base import Message, Value
from tenure.model.instance_types import ReservationHeadroom, UnavailableOffering
from tenure.model.plan import PlannedNodeClaim

BudgetReason = Literal["Unhealthy", "Empty", "Drifted", "Underutilized"]
"""Karpenter's disruption reasons, which budgets name."""
BUDGET_REASONS: Final[tuple[BudgetReason, ...]] = ("Unhealthy", "Empty", "Drifted", "Underutilized")
Method = Literal[BudgetReason, "Expired"]
"""Budgets without reasons apply to `Expired` too."""
METHODS: Final[tuple[Method, ...]] = ("Unhealthy", "Empty", "Expired", "Drifted", "Underutilized")
TerminateFirstReason = Literal["", "no-reserved-capacity", "static-at-limit"]
"""Values of Karpenter's metric label `terminate_first_reason`."""
CommandKind = Literal["repair", "empty", "expiry", "drift", "multi", "single"]
Cause = Literal[
    "NoNode",
    "NotInitialized",
    "Deleting",
    "InProgress",
    "Nominated",
    "NoPool",
    "StaticPool",
    "PoolClosed",
    "NodeDoNotDisrupt",
    "NodeMaintenance",
    "PodDoNotDisrupt",
    "PodUnplannable",
    "PodDisruptionBudget",
    "MultiplePodDisruptionBudgets",
    "Never",
    "Resting",
    "PolicyUnknown",
    "Policy",
    "CapacityBuffer",
    "TooYoung",
    "NoInstanceType",
    "NoCapacityType",
    "NoZone",
    "NoPrice",
    "Paused",
    "Bounced",
]


class Ineligibility(Message):
    cause: Cause
    message: str
    methods: tuple[Method, ...] = METHODS
    until: datetime | None = None
    """When it ends without an event; None if only a change ends it."""


class NodeVerdict(Message):
    claim: str
    node: str = ""
    pool: str = ""
    capacity_type: str = ""
    zone: str = ""
    price: float = 0.0
    """US dollars an hour; 0 if unknown."""
    cost: float = 1.0
    """Disruption cost of its pods (reference 4.3); 1 for an empty node."""
    pods: int = 0
    eligible: tuple[Method, ...] = ()
    excluded: tuple[Ineligibility, ...] = ()
    rejected: tuple[str, ...] = ()
    """Why simulations rejected its removal; empty if none ran or the node is eligible."""


class PastDisruption(Message):
    pool: str
    reason: BudgetReason
    at: AwareDatetime
    uid: str = ""
    """Of its NodeClaim; empty in records of an earlier version."""


class Move(Value):
    pod_uid: str
    namespace: str
    name: str
    source: str
    target: str = ""
    """Name of an existing node; empty: a replacement."""
    replacement: int = -1


class CommandCandidate(Message):
    node: str
    claim: str
    claim_uid: str = ""
    pool: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: float = 0.0
    cost: float = 1.0


class Rejection(Value):
    """Nodes whose removal together was simulated and rejected: impossible, or without enough saving."""

    nodes: tuple[str, ...]
    message: str


class Command(Value):
    reason: Method
    kind: CommandKind
    candidates: tuple[CommandCandidate, ...]
    replacements: tuple[PlannedNodeClaim, ...] = ()
    claims: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    price_before: float = 0.0
    """US dollars an hour of the candidates."""
    price_after: float = 0.0
    """Expected price of the replacements: the cheapest offering of each."""
    price_at_most: float = 0.0
    """Highest price of the replacements: the most expensive offering that each may launch."""
    terminate_first: TerminateFirstReason = ""
    """Why its node is deleted before the replacement is launched; empty if it is not."""
    rejected: tuple[Rejection, ...] = ()
    """Other options with these nodes that were simulated and rejected."""
    why: str = ""

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(one.node for one in self.candidates)


class BudgetHeadroom(Message):
    allowed: int
    why: str = ""
    allowed_unavailable: int | None = None
    """`allowed` for nodes that are NotReady or missing. Disrupting them costs no capacity, so that only other
    disruptions count. None: the same."""

    def allowed_for(self, *, unavailable: bool) -> int:
        use_other = unavailable and self.allowed_unavailable is not None
        return self.allowed_unavailable or 0 if use_other else self.allowed


class ConcurrentZoneLimit(Message):
    max_zones: int
    active_zones: tuple[str, ...] = ()


class DisruptionBudgets(Value):
    """Remaining disruptions that the budgets allow. An absent entry means no limit."""

    pools: dict[str, dict[Method, BudgetHeadroom]] = {}
    zones: dict[str, dict[str, BudgetHeadroom]] = {}
    """By NodePool, then by zone."""
    zones_at_once: dict[str, ConcurrentZoneLimit] = {}
    cluster: dict[str, BudgetHeadroom] = {}
    youngest: dict[str, timedelta] = {}
    """Minimum age of a node, by NodePool."""


class DisruptionSettings(Value):
    spot_to_spot: bool = False
    most_candidates: int = 100
    most_simulations: int = 500
    """Per pass. `Decision.unreached` names the nodes that the pass did not reach; they come first in the next pass."""
    terminate_first_drift: bool = False
    """The gate TerminateFirstDrift."""
    terminate_first_repair: bool = False
    """The gate TerminateFirstRepair."""


class DisruptionRequest(Message):
    now: datetime
    nominated: tuple[str, ...] = ()
    under_way: tuple[Command, ...] = ()
    allowed_disruptions: DisruptionBudgets = DisruptionBudgets()
    settings: DisruptionSettings = DisruptionSettings()
    unavailable: tuple[UnavailableOffering, ...] = ()
    reservations: dict[str, ReservationHeadroom] = {}
    not_ready_grace: timedelta = timedelta(minutes=5)
    not_ready_grace_by_pool: dict[str, timedelta] = {}
    """Only NodePools with their own grace period."""
    expiry_jitter_by_pool: dict[str, float] = {}
    """Only NodePools with their own jitter, as a share of the lifetime."""
    first: tuple[str, ...] = ()
    ineligible: dict[str, tuple[Ineligibility, ...]] = {}
    """By NodeClaim: ineligibilities that the cluster cache does not have, from pauses and command backoff."""
    unsold: dict[str, str] = {}
    """NodePools that may launch no replacement, with the cause."""
    only: tuple[str, ...] = ()
    """Decide only on one command for these NodeClaims and `reason`; empty: on all commands."""
    reason: Method = "Underutilized"
    preemptible: bool = False
    """The pass ends without a decision when pods wait for a plan."""


class Decision(Value):
    """Result of one voluntary disruption pass. The commands can all be executed, in this order."""

    nodes: tuple[NodeVerdict, ...] = ()
    commands: tuple[Command, ...] = ()
    unreached: tuple[str, ...] = ()
    simulations: int = 0

    @property
    def count_by_cause(self) -> Counter[str]:
        return Counter(
            cause
            for one in self.nodes
            for cause in dict.fromkeys(ineligibility.cause for ineligibility in one.excluded)
        )
