"""LifecyclePolicy rules for voluntary disruption and rollouts, in addition to the budgets of Karpenter's NodePool.

Rules only restrict: a node is disrupted if the NodePool's budgets allow it and no rule forbids it.
"""

from typing import Annotated, Any, Final, Literal

from tenure.apis import cron
from tenure.apis.crd_schema import ATOMIC, DURATION_SCHEMA, Crd, Rule
from tenure.apis.meta import KubeModel

PERCENT: Final[dict[str, Any]] = {"pattern": r"^(100|[0-9]{1,2})%$", "maxLength": 4}
COUNT: Final[dict[str, Any]] = {"pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$", "maxLength": 18}
_NUMBER: Final[dict[str, Any]] = {"pattern": r"^-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$", "maxLength": 64}


class RolloutWave(KubeModel):
    """A group of drifted nodes, and how long the rollout must stay healthy before the next wave."""

    nodes: Annotated[str | None, Crd(COUNT)] = None
    """Drifted nodes replaced by the end of this wave, including earlier waves: a number such as '1', or a share such as
    20%, rounded up. Unset: all."""
    soak: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long the rollout must stay healthy after the last node of the wave, such as 30m."""


class RolloutQuery(KubeModel):
    """A Prometheus query. Of several series in the result, the worst one counts. An empty result is no answer."""

    name: Annotated[str | None, Crd({"minLength": 1, "maxLength": 60})] = None
    """Display name."""
    query: Annotated[str, Crd({"minLength": 1, "maxLength": 4000}, required=True)]
    """PromQL expression."""
    below: Annotated[str | None, Crd(_NUMBER)] = None
    """The query passes while the result is below this number, such as '0.01'."""
    above: Annotated[str | None, Crd(_NUMBER)] = None
    """The query passes while the result is above this number, such as '0.99'."""
    timeout: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long Prometheus may take, such as 5s. Unset: 10s."""


_QUERY_RULES: Final = (
    Rule(
        "has(self.below) != has(self.above)",
        "a query must have either 'below', e.g. below: '0.01', or 'above', e.g. above: '0.99'",
    ),
)


class RolloutHealth(KubeModel):
    """Health checks during a rollout. No further node is disrupted while one fails."""

    nodes_ready: Annotated[str | None, Crd(PERCENT)] = None
    """Share of new nodes that must be Ready; unset: 90%."""
    pods_ready: Annotated[str | None, Crd(PERCENT)] = None
    """Share of pods on new nodes that must be Ready, such as 90%; unset: not checked."""
    failed_starts: Annotated[int | None, Crd({"format": "int32", "minimum": 1, "maximum": 4})] = None
    """The check fails if this many of the last four new NodeClaims did not become nodes. Unset: 2."""
    queries: Annotated[
        tuple[RolloutQuery, ...] | None, Crd({"maxItems": 10, **ATOMIC}, items=Crd(rules=_QUERY_RULES))
    ] = None
    """Prometheus queries."""
    every: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How often health is checked during a wave, such as 30s. Unset: 1m."""
    failing_for: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long health may fail before the rollout fails, such as 5m. Unset: 2m."""


class RolloutApproval(KubeModel):
    """Approval required before a wave."""

    required: bool | None = None
    """Whether the plan of a wave must be approved before the wave starts."""
    approvers: Annotated[int | None, Crd({"format": "int32", "minimum": 1, "maximum": 5})] = None
    """Number of different approvers; unset: 1."""
    expires: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """How long a plan can be approved, and how long an approval is valid, such as 24h. Unset: 24h."""
    stale_after: Annotated[str | None, Crd(PERCENT)] = None
    """A plan becomes void if the number of drifted nodes changes by more than this share. Unset: 20%."""


class RolloutRules(KubeModel):
    """How drifted nodes are replaced: waves, health checks, approval, and the action after a failure."""

    waves: Annotated[tuple[RolloutWave, ...] | None, Crd({"maxItems": 20, **ATOMIC})] = None
    """Waves in order; the last one replaces all remaining nodes. Unset: one wave."""
    health: RolloutHealth | None = None
    on_failure: Literal["halt", "rollBack"] | None = None
    """Action after a failure. 'halt' disrupts no further node until an operator acts. 'rollBack' restores the last good
    image if only the image changed, and halts otherwise. Unset: halt."""
    approval: RolloutApproval | None = None


ZONE_DOC: Final = "IANA name of the time zone, such as Europe/Berlin. Unset: UTC."


_SCHEDULE_RULE: Final = Rule(
    f"self.matches(r'{cron.PATTERN}')", "expected five cron fields or a macro such as @daily, e.g. '0 2 * * 6'"
)


class Window(KubeModel):
    """A recurring period in which nodes may be disrupted."""

    schedule: Annotated[str, Crd({"maxLength": cron.MAX_LENGTH}, (_SCHEDULE_RULE,), required=True)]
    """When the window opens: a cron schedule, or a macro such as @daily."""
    duration: Annotated[str, Crd(DURATION_SCHEMA, required=True)]
    """How long the window is open, such as 4h or 1h30m."""
    time_zone: Annotated[
        str | None, Crd({"minLength": 1, "maxLength": 64}, doc=ZONE_DOC + " Schedules follow its daylight saving time.")
    ] = None


Reason = Literal["Underutilized", "Empty", "Drifted"]
_TIMESTAMP: Final[dict[str, Any]] = {
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?)?$",
    "maxLength": 25,
}
_REASONS: Final = Crd(
    {"minItems": 1, "maxItems": 3, "x-kubernetes-list-type": "set"},
    doc="Disruption reasons that it applies to; unset: all.",
)


class DisruptionWindow(Window):
    """A recurring period in which nodes may be disrupted. A reason with windows applies only during one of them."""

    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None


class DisruptionFreeze(KubeModel):
    """A one-time period in which no node is disrupted."""

    start: Annotated[str, Crd(_TIMESTAMP, required=True)]
    """Start, such as 2026-12-20 or 2026-12-20T18:00 or 2026-12-20T18:00:00Z."""
    end: Annotated[str, Crd(_TIMESTAMP, required=True)]
    """End; a date without a time means the start of that day."""
    time_zone: Annotated[str | None, Crd({"maxLength": 64}, doc=ZONE_DOC + " A time with an offset needs none.")] = None
    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None
    why: Annotated[str | None, Crd({"maxLength": 200})] = None
    """Explanation, shown wherever a node waits for the end."""


class DisruptionRate(KubeModel):
    """Limit of disrupted nodes per time span, whether or not they have been replaced."""

    nodes: Annotated[str, Crd(COUNT, required=True)]
    """A number of nodes, or a share of the NodePool's nodes such as 10%, rounded up."""
    within: Annotated[str, Crd(DURATION_SCHEMA, required=True)]
    """Length of the sliding window, such as 1h or 24h."""
    reasons: Annotated[tuple[Reason, ...] | None, _REASONS] = None


class ZoneBudget(KubeModel):
    """Limits of disruption per zone."""

    nodes: Annotated[str | None, Crd(COUNT)] = None
    """How many nodes of the NodePool may be terminating or NotReady in one zone at once: a number, or a share of its
    nodes in the zone, rounded up."""
    zones_at_once: Annotated[int | None, Crd({"format": "int32", "minimum": 1, "maximum": 20})] = None
    """In how many zones at once nodes of the NodePool may be terminating or NotReady."""


_ZONE_RULES: Final = (
    Rule(
        "has(self.nodes) || has(self.zonesAtOnce)",
        "perZone must have 'nodes', e.g. nodes: '1', or 'zonesAtOnce', e.g. zonesAtOnce: 1",
    ),
)


class DisruptionRules(KubeModel):
    """When and how many nodes may be disrupted voluntarily: by consolidation and drift."""

    minimum_node_age: Annotated[str | None, Crd(DURATION_SCHEMA)] = None
    """Minimum age of a disrupted node, such as 30m."""
    windows: Annotated[tuple[DisruptionWindow, ...] | None, Crd({"maxItems": 50, **ATOMIC})] = None
    """When nodes may be disrupted; unset: always."""
    freezes: Annotated[tuple[DisruptionFreeze, ...] | None, Crd({"maxItems": 50, **ATOMIC})] = None
    """One-time periods in which no node is disrupted."""
    rates: Annotated[tuple[DisruptionRate, ...] | None, Crd({"maxItems": 20, **ATOMIC})] = None
    """Limits of disrupted nodes per time span."""
    per_zone: Annotated[ZoneBudget | None, Crd(rules=_ZONE_RULES)] = None
    cluster_nodes: Annotated[str | None, Crd(COUNT)] = None
    """No node of the NodePool is disrupted while this number or share of the nodes of all NodePools is terminating or
    NotReady."""
