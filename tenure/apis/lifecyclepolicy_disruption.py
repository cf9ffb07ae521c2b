"""LifecyclePolicy rules for voluntary disruption and rollouts, in addition to the budgets of Karpenter's NodePool.

Every rule restricts: a node is disrupted if the NodePool's own budgets allow it and no rule here forbids it.
"""

from typing import Annotated, Any, Final, Literal

from tenure.apis.crd_schema import ATOMIC, CRON, DURATION_SCHEMA, Crd, Rule
from tenure.apis.meta import KubeModel

_PERCENT: Final[dict[str, Any]] = {"pattern": r"^(100|[0-9]{1,2})%$"}
_COUNT: Final[dict[str, Any]] = {"pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$"}
_NUMBER: Final[dict[str, Any]] = {"pattern": r"^-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$"}


class RolloutWave(KubeModel):
    """A part of the drifted nodes, and how long the new ones are watched before more go."""

    nodes: Annotated[str | None, Crd(_COUNT)] = None
    """How many of the drifted nodes have gone by the end of this wave, those of earlier waves among them: a number such
    as '1', or a share such as 20%, rounded up. Unset: all."""
    soak: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long the rollout must stay healthy after the last node of the wave, such as 30m."""


class RolloutQuery(KubeModel):
    """A question to Prometheus. Of several series in the answer the worst one counts; none is no answer."""

    name: Annotated[str | None, Crd({"minLength": 1, "maxLength": 60})] = None
    """Display name."""
    query: Annotated[str, Crd({"minLength": 1, "maxLength": 4000}, required=True)]
    """In PromQL."""
    below: Annotated[str | None, Crd(_NUMBER)] = None
    """It passes while the answer is below, such as '0.01'."""
    above: Annotated[str | None, Crd(_NUMBER)] = None
    """It passes while the answer is above, such as '0.99'."""
    timeout: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long Prometheus may take, such as 5s; unset: 10s."""


_QUERY_RULES: Final = (
    Rule(
        "has(self.below) != has(self.above)",
        "a query passes by one of the two: write below, such as below: '0.01', or above, such as above: '0.99'",
    ),
)


class RolloutHealth(KubeModel):
    """Health checks during a rollout. No further node is disrupted while one fails."""

    nodes_ready: Annotated[str | None, Crd(_PERCENT)] = None
    """Share of new nodes that must be Ready; unset: 90%."""
    pods_ready: Annotated[str | None, Crd(_PERCENT)] = None
    """Share of pods on new nodes that must be Ready, such as 90%; unset: not checked."""
    failed_starts: Annotated[int | None, Crd({"format": "int32", "minimum": 1, "maximum": 4})] = None
    """So many new NodeClaims that did not come to be nodes, of the last four, are a failure; unset: 2."""
    queries: Annotated[
        tuple[RolloutQuery, ...] | None, Crd({"maxItems": 10, **ATOMIC}, items=Crd(rules=_QUERY_RULES))
    ] = None
    """Prometheus queries."""
    every: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How often it is looked at while a wave is under way, such as 30s; unset: 1m."""
    failing_for: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """For how long it may fail before the rollout has failed, such as 5m; unset: 2m."""


class RolloutApproval(KubeModel):
    """Approval required before a wave."""

    required: bool | None = None
    """No wave begins before its plan is approved."""
    approvers: Annotated[int | None, Crd({"format": "int32", "minimum": 1, "maximum": 5})] = None
    """Number of different approvers; unset: 1."""
    expires: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """For how long a plan can be approved, and an approval is good, such as 24h; unset: 24h."""
    stale_after: Annotated[str | None, Crd(_PERCENT)] = None
    """A plan is void when the number of drifted nodes is another by more than this share; unset: 20%."""


class RolloutRules(KubeModel):
    """How drifted nodes are replaced: in waves, watched, and with a way back."""

    waves: Annotated[tuple[RolloutWave, ...] | None, Crd({"maxItems": 20, **ATOMIC})] = None
    """One after the other; the last takes all that are left. Unset: one."""
    health: RolloutHealth | None = None
    on_failure: Literal["halt", "rollBack"] | None = None
    """Action after a failure. halt: no further node is disrupted until an operator acts; rollBack: if only the image
    has changed, the last good image is restored, else as halt. Unset: halt."""
    approval: RolloutApproval | None = None


ZONE_DOC: Final = "The time zone, by its name in the IANA database, such as Europe/Berlin. Unset: UTC."


class Window(KubeModel):
    """A time in which nodes may go."""

    schedule: Annotated[str, Crd({"pattern": CRON, "maxLength": 100}, required=True)]
    """When the window opens, as a cron line or a macro such as @daily."""
    duration: Annotated[str, Crd(DURATION_SCHEMA, required=True)]
    """How long it is open, such as 4h or 1h30m."""
    time_zone: Annotated[str | None, Crd({"minLength": 1}, doc=ZONE_DOC + " Cron lines follow its summer time.")] = None


Reason = Literal["Underutilized", "Empty", "Drifted"]
_TIMESTAMP: Final[dict[str, Any]] = {
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?$"
}
_REASONS: Final = Crd(
    {"minItems": 1, "maxItems": 3, "x-kubernetes-list-type": "set"}, doc="Which disruptions it is about; unset: all."
)


class DisruptionWindow(Window):
    """A time in which nodes may go. Where there are windows for a reason, nodes go for it in one of them alone."""

    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None


class DisruptionFreeze(KubeModel):
    """A time, once, in which no node goes."""

    start: Annotated[str, Crd(_TIMESTAMP, required=True)]
    """From when, such as 2026-12-20 or 2026-12-20T18:00 or 2026-12-20T18:00:00Z."""
    end: Annotated[str, Crd(_TIMESTAMP, required=True)]
    """The end; a date alone is the beginning of that day."""
    time_zone: Annotated[str | None, Crd(doc=ZONE_DOC + " A moment with an offset of its own needs none.")] = None
    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None
    why: Annotated[str | None, Crd({"maxLength": 200})] = None
    """Shown wherever a node waits for the end."""


class DisruptionRate(KubeModel):
    """How many nodes go in a span of time, whether they are back or not."""

    nodes: Annotated[str, Crd(_COUNT, required=True)]
    """A number of nodes, or a share of the NodePool's nodes such as 10%, rounded up."""
    within: Annotated[str, Crd(DURATION_SCHEMA, required=True)]
    """Length of the sliding window, such as 1h or 24h."""
    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None


class ZoneBudget(KubeModel):
    """How disruption goes through the zones."""

    nodes: Annotated[str | None, Crd(_COUNT)] = None
    """How many nodes of the NodePool may be on their way out or NotReady in one zone at once, or which share of its
    nodes in the zone, rounded up."""
    zones_at_once: Annotated[int | None, Crd({"format": "int32", "minimum": 1, "maximum": 20})] = None
    """In how many zones at once nodes of the NodePool may be on their way out or NotReady."""


_ZONE_RULES: Final = (
    Rule(
        "has(self.nodes) || has(self.zonesAtOnce)",
        "perZone needs one of the two: write nodes, such as nodes: '1', or zonesAtOnce, such as zonesAtOnce: 1",
    ),
)


class DisruptionRules(KubeModel):
    """When and how many nodes may go voluntarily: by consolidation and drift."""

    minimum_node_age: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """A younger node is left alone, such as 30m."""
    windows: Annotated[tuple[DisruptionWindow, ...] | None, Crd({"maxItems": 50, **ATOMIC})] = None
    """When nodes may go; unset: always."""
    freezes: Annotated[tuple[DisruptionFreeze, ...] | None, Crd({"maxItems": 50, **ATOMIC})] = None
    """When, once, no node goes."""
    rates: Annotated[tuple[DisruptionRate, ...] | None, Crd({"maxItems": 20, **ATOMIC})] = None
    """How many nodes go per hour or day."""
    per_zone: Annotated[ZoneBudget | None, Crd(rules=_ZONE_RULES)] = None
    cluster_nodes: Annotated[str | None, Crd(_COUNT)] = None
    """No node of the NodePool is disrupted while this number or share of the nodes of all NodePools is terminating or
    NotReady."""
