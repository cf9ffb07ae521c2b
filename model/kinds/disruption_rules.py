"""What a LifecyclePolicy may say of voluntary disruption, beyond the budgets of Karpenter's NodePool.

All of it narrows: a node goes when the NodePool's own budgets let it go and nothing here forbids it.
`policy/allowances.py` reads it.
"""

from typing import Annotated, Any, Final, Literal

from model.kinds.meta import KubeModel
from model.kinds.schema import ATOMIC, DURATION, Crd, Rule
from model.kinds.windows import ZONE_DOC, Window

Reason = Literal["Underutilized", "Empty", "Drifted"]
_COUNT: Final[dict[str, Any]] = {"pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$"}
_MOMENT: Final[dict[str, Any]] = {
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?$"
}
_REASONS: Final = Crd(
    "Which disruptions it is about; unset: all.", {"minItems": 1, "maxItems": 3, "x-kubernetes-list-type": "set"}
)


class DisruptionWindow(Window):
    """A time in which nodes may go. Where there are windows for a reason, nodes go for it in one of them alone."""

    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None


class DisruptionFreeze(KubeModel):
    """A time, once, in which no node goes."""

    start: Annotated[
        str, Crd("From when, such as 2026-12-20 or 2026-12-20T18:00 or 2026-12-20T18:00:00Z.", _MOMENT, required=True)
    ]
    end: Annotated[str, Crd("Until when; a date alone is the beginning of that day.", _MOMENT, required=True)]
    time_zone: Annotated[str | None, Crd(ZONE_DOC + " A moment with an offset of its own needs none.")] = None
    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None
    why: Annotated[str | None, Crd("Shown wherever a node waits for the end.", {"maxLength": 200})] = None


class DisruptionRate(KubeModel):
    """How many nodes go in a span of time, whether they are back or not."""

    nodes: Annotated[
        str,
        Crd("A number of nodes, or a share of the NodePool's nodes such as 10%, rounded up.", _COUNT, required=True),
    ]
    within: Annotated[
        str, Crd("The span of time, such as 1h or 24h: the last so long counts.", {"pattern": DURATION}, required=True)
    ]
    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None


class ZoneBudget(KubeModel):
    """How disruption goes through the zones."""

    nodes: Annotated[
        str | None,
        Crd(
            "How many nodes of the NodePool may be on their way out or NotReady in one zone at once, or which share of "
            "its nodes in the zone, rounded up.",
            _COUNT,
        ),
    ] = None
    zones_at_once: Annotated[
        int | None,
        Crd(
            "In how many zones at once nodes of the NodePool may be on their way out or NotReady.",
            {"format": "int32", "minimum": 1, "maximum": 20},
        ),
    ] = None


_ZONE_RULES: Final = (
    Rule(
        "has(self.nodes) || has(self.zonesAtOnce)",
        "perZone needs one of the two: write nodes, such as nodes: '1', or zonesAtOnce, such as zonesAtOnce: 1",
    ),
)


class DisruptionRules(KubeModel):
    """When and how many nodes may go voluntarily: by consolidation and drift."""

    minimum_node_age: Annotated[
        str | None, Crd("A younger node is left alone, such as 30m.", {"pattern": DURATION})
    ] = None
    windows: Annotated[
        tuple[DisruptionWindow, ...] | None, Crd("When nodes may go; unset: always.", {"maxItems": 50, **ATOMIC})
    ] = None
    freezes: Annotated[
        tuple[DisruptionFreeze, ...] | None, Crd("When, once, no node goes.", {"maxItems": 50, **ATOMIC})
    ] = None
    rates: Annotated[
        tuple[DisruptionRate, ...] | None, Crd("How many nodes go per hour or day.", {"maxItems": 20, **ATOMIC})
    ] = None
    per_zone: Annotated[ZoneBudget | None, Crd(rules=_ZONE_RULES)] = None
    cluster_nodes: Annotated[
        str | None,
        Crd(
            "No node of the NodePool goes while so many nodes of all NodePools together, or such a share of them, are "
            "on their way out or NotReady.",
            _COUNT,
        ),
    ] = None
