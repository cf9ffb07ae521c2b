"""Input and result of a voluntary disruption pass: eligible nodes, ineligibilities, commands.

The command line reads verdicts, so this module must not load the planner's input.
"""

from collections import Counter
from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.model.base import Message, Value
from tenure.model.instance_types import ReservationHeadroom, UnavailableOffering
from tenure.model.plan import PlannedNodeClaim

Method = Literal["Empty", "Drifted", "Underutilized"]
"""Karpenter's reasons, by which budgets tell disruptions apart."""
METHODS: Final[tuple[Method, ...]] = ("Empty", "Drifted", "Underutilized")
CommandKind = Literal["empty", "drift", "multi", "single"]
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
    "PodDoNotDisrupt",
    "PodUnplannable",
    "PodDisruptionBudget",
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


class Ineligibility(Value):
    cause: Cause
    message: str
    methods: tuple[Method, ...] = METHODS
    until: datetime | None = None
    """When it ends by itself; None: only when something changes."""


class NodeVerdict(Value):
    claim: str
    node: str = ""
    pool: str = ""
    capacity_type: str = ""
    zone: str = ""
    price: float = 0.0
    """US dollars an hour; 0: not known."""
    cost: float = 1.0
    """Of moving its pods (reference 4.3): 1 for an empty node."""
    pods: int = 0
    eligible: tuple[Method, ...] = ()
    excluded: tuple[Ineligibility, ...] = ()
    rejected: tuple[str, ...] = ()
    """Results of simulations that rejected its removal, as text; empty if none ran or the node is eligible."""


class PastDisruption(Value):
    pool: str
    reason: Method
    at: datetime
    uid: str = ""
    """Of its NodeClaim; empty where an earlier version wrote it down."""


class Move(Value):
    pod_uid: str
    namespace: str
    name: str
    source: str
    target: str = ""
    """Name of an existing node; empty: a replacement."""
    replacement: int = -1


class CommandCandidate(Value):
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
    """Nodes that were looked at together and cannot go, or not so cheaply."""

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
    """Highest price of the replacements: the most expensive offering each may be launched as."""
    rejected: tuple[Rejection, ...] = ()
    """The other options tried with these nodes."""
    why: str = ""

    @property
    def hourly_saving(self) -> float:
        """US dollars an hour that are expected to be saved; negative where drift costs."""
        return self.price_before - self.price_after

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(one.node for one in self.candidates)


class BudgetHeadroom(Value):
    allowed: int
    why: str = ""


class ConcurrentZoneLimit(Value):
    max_zones: int
    active_zones: tuple[str, ...] = ()


class DisruptionBudgets(Value):
    """Remaining disruptions that the budgets allow. An absent entry is not limited."""

    pools: dict[str, dict[Method, BudgetHeadroom]] = {}
    zones: dict[str, dict[str, BudgetHeadroom]] = {}
    """By pool, and by zone: nodes of the pool in that zone."""
    zones_at_once: dict[str, ConcurrentZoneLimit] = {}
    cluster: dict[str, BudgetHeadroom] = {}
    errors: tuple[str, ...] = ()
    youngest: dict[str, timedelta] = {}
    """Minimum age of a node, by NodePool."""


class DisruptionSettings(Value):
    spot_to_spot: bool = False
    threshold: float = 0.0
    """US dollars an hour. Every command must save more than this at its highest replacement price."""
    least_share: float = 0.05
    """The share of its nodes' cost that a command with more than one replacement must save."""
    most_candidates: int = 100
    most_simulations: int = 500
    """In one pass; nodes that are not reached are named, and come first in the next."""
    replace_one_with_many: bool = False


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
    """By pool where it has its own."""
    first: tuple[str, ...] = ()
    ineligible: dict[str, tuple[Ineligibility, ...]] = {}
    """By NodeClaim, its blockers that the cluster does not show: pauses and command backoff."""
    unsold: dict[str, str] = {}
    """NodePools of which no replacement is bought, and why."""
    only: tuple[str, ...] = ()
    """These NodeClaims together, for `reason`, and no other command; empty: whatever is worth it."""
    reason: Method = "Underutilized"


class Decision(Value):
    """Result of one voluntary disruption pass. Commands are compatible with each other, in order."""

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
