"""Problems of a NodePool that its CRD does not check (reference 1.6), and its conditions.

NodeRegistrationHealthy (reference 3.6): unhealthy once two of the last four launches failed. A change of the NodePool
or its NodeClass resets it. The condition only informs users and alerts.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, Literal

from tenure.apis import labels
from tenure.apis.crd_schema import LABEL_VALUE_FORM, is_label_key, is_label_value
from tenure.apis.durations import NEVER, DurationError, parse_duration, quote
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.apis.meta import is_object_name
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodeClaimTemplate, NodePool
from tenure.apis.quantity import MAX_KEY, QuantityError, parse_amount
from tenure.model.facts import Expression
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import Registrations, StartupOutcome
from tenure.model.requirements import RequirementError, Requirements
from tenure.model.workflow_states import NodePoolCount
from tenure.policy.disruption.budgets import decide_allowed_disruptions

_ANY_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)


def validate_nodepool(pool: NodePool) -> tuple[str, ...]:
    """Errors with the field, the value and the expected form."""
    template = pool.spec.template
    errors = [
        f"spec.template.metadata.labels[{key!r}]: reserved key, expected another domain, e.g. example.com/team"
        for key in template.metadata.labels
        if labels.is_restricted(key) or key == labels.NODEPOOL
    ]
    errors += [
        f"spec.template.spec.requirements: key {one.key!r} is set by Tenure; remove it"
        for one in template.spec.requirements
        if one.key == labels.NODEPOOL or labels.is_restricted(one.key)
    ]
    for one in template.spec.requirements:
        known = labels.WELL_KNOWN_VALUES.get(one.key)
        if known and one.operator == "In" and not known & set(one.values):
            errors.append(
                f"spec.template.spec.requirements: {one.key} In {sorted(one.values)} never matches; "
                f"expected {sorted(known)}"
            )
    pairs: set[tuple[str, str]] = set()
    for taint in (*template.spec.taints, *template.spec.startup_taints):
        if (taint.key, taint.effect) in pairs:
            errors.append(
                f"spec.template.spec: {taint.key}:{taint.effect} is in taints and in startupTaints; remove one of them"
            )
        pairs.add((taint.key, taint.effect))
    return (
        *errors,
        *_syntax_errors(template),
        *_requirement_errors(pool),
        *_nodeclass_errors(pool),
        *_duration_errors(pool),
        *_limit_errors(pool),
        *_budget_errors(pool),
    )


def _syntax_errors(template: NodeClaimTemplate) -> Iterator[str]:
    """Keys and values that the API server rejects in NodeClaims or Nodes."""
    metadata, spec = template.metadata, template.spec
    taints = (*spec.taints, *spec.startup_taints)
    listed = [value for one in spec.requirements if one.operator in ("In", "NotIn") for value in one.values]
    for field, keys, values in (
        ("metadata.labels", metadata.labels, metadata.labels.values()),
        ("metadata.annotations", map(str.lower, metadata.annotations), ()),
        ("spec.taints", (one.key for one in taints), (one.value for one in taints)),
        ("spec.requirements", (one.key for one in spec.requirements), listed),
    ):
        yield from (
            f"spec.template.{field}: {quote(key)}: invalid key, expected e.g. example.com/team"
            for key in keys
            if not is_label_key(key)
        )
        yield from (
            f"spec.template.{field}: {quote(value)}: invalid value, expected {LABEL_VALUE_FORM}"
            for value in values
            if not is_label_value(value)
        )


def _requirement_errors(pool: NodePool) -> Iterator[str]:
    """Requirements that no node satisfies."""
    field, written = "spec.template.spec.requirements", pool.spec.template.spec.requirements
    try:
        merged = Requirements.from_expressions(
            Expression(key=one.key, operator=one.operator, values=one.values) for one in written
        )
    except RequirementError as error:
        yield f"{field}: {error}"
        return
    for key, one in merged.items():
        if one.present and not one.complement and not one.values:
            yield f"{field}: the requirements for {key} exclude each other; remove one of them"
        elif one.conflicts(one):
            yield f"{field}: no label value satisfies {one}; expected a bound of 0 or more"


def _nodeclass_errors(pool: NodePool) -> Iterator[str]:
    """The CRD only requires a name that is not empty."""
    name = pool.spec.template.spec.node_class_ref.name
    if name and not is_object_name(name):
        field = "spec.template.spec.nodeClassRef.name"
        yield f"{field}: no object can be named {quote(name)}, expected the name of an EC2NodeClass, e.g. default"


def _duration_errors(pool: NodePool) -> Iterator[str]:
    """The CRD's pattern allows more digits than a duration can have."""
    durations = {
        "spec.template.spec.expireAfter": pool.spec.template.spec.expire_after,
        "spec.template.spec.terminationGracePeriod": pool.spec.template.spec.termination_grace_period or NEVER,
        "spec.disruption.consolidateAfter": pool.spec.disruption.consolidate_after,
    }
    for field, text in durations.items():
        try:
            parse_duration(text)
        except DurationError as error:
            yield f"{field}: {error}"


def _limit_errors(pool: NodePool) -> Iterator[str]:
    """The CRD's pattern allows more characters than a quantity can have."""
    for resource, text in pool.spec.limits.items():
        try:
            parse_amount(resource, text)
        except QuantityError as error:
            yield f"spec.limits.{resource[:MAX_KEY]}: {error}"


def _budget_errors(pool: NodePool) -> Iterator[str]:
    """The CRD's pattern of schedules is Karpenter's, which is not anchored."""
    for number, one in enumerate(pool.spec.disruption.budgets):
        allowed = decide_allowed_disruptions([one], NodePoolCount(), reason="", now=_ANY_TIME)
        if allowed.unreadable:
            yield f"spec.disruption.budgets[{number}]: {allowed.why}"


def reject_static(pool: NodePool) -> tuple[str, ...]:
    """The error of a static NodePool while the gate StaticCapacity is off: no node is launched for it."""
    if pool.spec.replicas is None:
        return ()
    gate = FeatureGate.STATIC_CAPACITY
    return (
        f"spec.replicas: {pool.spec.replicas}: no node is launched for a static NodePool while the gate "
        f"{gate} is off; start the worker with {gate.example}, or create a NodePool without replicas",
    )


def decide_nodeclass_ready(name: str, node_class: EC2NodeClass | None) -> tuple[str, str, str]:
    if node_class is None:
        return "False", labels.NODECLASS_NOT_FOUND, f"EC2NodeClass {name} does not exist; create it"
    if node_class.metadata.is_deleting:
        return "False", labels.NODECLASS_TERMINATING, f"EC2NodeClass {name} is being deleted"
    ready = next((one for one in node_class.status.conditions if one.type == labels.READY), None)
    if ready is None or ready.is_unknown:
        return "Unknown", labels.NODECLASS_READINESS_UNKNOWN, f"EC2NodeClass {name} is not resolved yet"
    return ready.status, ready.reason if ready.is_false else "", ready.message if ready.is_false else ""


MAX_OUTCOMES: Final = 4
FAILURES: Final = 2
_UNCOUNTED_REASONS: Final = frozenset({labels.INSUFFICIENT_CAPACITY, "NodeClassNotReady", "NodeClaimGone"})
"""Failed launches that Karpenter does not count: the next attempt uses other offerings, or waits."""


def counts_as_failure(phase: Phase, reason: str, rejection: str) -> bool:
    """Whether a failed NodeClaim counts as a failure of its NodePool. `rejection`: the last rejection of its launch."""
    if phase is Phase.LAUNCH:
        return (rejection or reason) not in _UNCOUNTED_REASONS
    return phase is Phase.REGISTRATION and reason == "RegistrationTimeout"


def refresh_registrations(known: Registrations, pool: NodePool, class_generation: int, now: datetime) -> Registrations:
    """The records, reset after a change of the NodePool or its NodeClass. New records start from the condition."""
    generations = {"generation": pool.metadata.generation, "class_generation": class_generation}
    if not known.generation:
        seeded = _seed_from_condition(pool, class_generation)
        return add_outcomes(known.model_copy(update=generations), seeded)
    if (known.generation, known.class_generation) == (pool.metadata.generation, class_generation):
        return known
    return Registrations(since=now, **generations)


def add_outcomes(known: Registrations, ended: Iterable[StartupOutcome]) -> Registrations:
    """Add outcomes, sorted by time. A repeated outcome counts once."""
    found = {one.uid: one for one in (*known.outcomes, *ended) if known.since is None or one.at >= known.since}
    latest = sorted(found.values(), key=lambda one: (one.at, one.uid))[-MAX_OUTCOMES:]
    return known.model_copy(update={"outcomes": tuple(latest)})


def registered_outcomes(pool: NodePool, claims: Iterable[NodeClaim]) -> list[StartupOutcome]:
    """Outcomes of registered NodeClaims, without those of an earlier NodePool of the same name."""
    born, found = pool.metadata.creation_timestamp, []
    for claim in claims:
        condition, made = claim.condition(labels.REGISTERED_CONDITION), claim.metadata.creation_timestamp
        ours = born is None or made is None or made >= born
        if ours and condition and condition.is_true and condition.last_transition_time:
            found.append(StartupOutcome(uid=claim.metadata.uid, at=condition.last_transition_time, registered=True))
    return found


def decide_healthy(known: Registrations) -> tuple[Literal["True", "False", "Unknown"], str, str]:
    failures = [one for one in known.outcomes if not one.registered]
    if len(failures) >= FAILURES:
        last = failures[-1]
        message = (
            f"{len(failures)} of the last {len(known.outcomes)} NodeClaims failed to start, the last: {last.message}"
        )
        return "False", last.reason or labels.REGISTRATION_FAILED, message
    return ("True", "", "") if known.outcomes else ("Unknown", "", "")


def _seed_from_condition(pool: NodePool, class_generation: int) -> list[StartupOutcome]:
    condition = pool.condition(labels.NODE_REGISTRATION_HEALTHY)
    if (
        condition is None
        or condition.last_transition_time is None
        or condition.observed_generation != pool.metadata.generation
    ):
        return []
    if pool.status.node_class_observed_generation != class_generation or condition.status == "Unknown":
        return []
    one = StartupOutcome(uid="before-1", at=condition.last_transition_time, registered=condition.is_true)
    failed = {"reason": condition.reason, "message": "before this workflow began"}
    return (
        [one]
        if condition.is_true
        else [one.model_copy(update={**failed, "uid": uid}) for uid in ("before-1", "before-2")]
    )
