"""Which LifecyclePolicies apply to which NodePool, and the problems of invalid policies.

The more specific selection wins, field by field: names, then labels, then all. If two equally specific policies differ
in a field, the older wins and both report the conflict. From an invalid policy, only rules that limit disruption apply,
and such a rule that is invalid itself blocks its NodePools.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from typing import Any, Final

from tenure.apis.durations import format_duration
from tenure.apis.labels import CONFLICT, RUNTIME_VALIDATION
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.apis.lifecyclepolicy_events import InterruptionRules
from tenure.model.hooks import HookPoint
from tenure.model.interruption.messages import EventKind
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.operator_requests import InvalidRules, PolicyFact, PolicyValidation
from tenure.policy.disruption import limits
from tenure.policy.hooks import rules
from tenure.policy.hooks.rules import POINTS, hooks_of
from tenure.policy.interruption.rules import DEFAULTS, DEFERRABLE_KINDS, event_rules_of
from tenure.policy.lifecycle.deadlines import deadlines_of, duration_fields, flatten_rules, is_same_value, problem_of
from tenure.policy.policy_features import PolicyFeatures, disabled_requests, enabled_rules
from tenure.policy.rollout.rules import problems_of

_CLASSES: Final = "workloads"


def problem_in(policy: PolicyFact) -> str:
    problem = problem_of(policy.rules)
    return policy.problem or (f"spec.{problem}" if problem else "")


def check_policy(policy: PolicyFact) -> None:
    """Raises the error that this policy would raise in `resolve_policies`."""
    restrict_to_valid(policy) if problem_in(policy) else flatten_rules(policy.rules)
    tuple(disabled_requests(policy.rules, PolicyFeatures()))


def restrict_to_valid(rejected: PolicyFact) -> PolicyFact:
    spec, unread = rejected.rules, rejected.unread
    retained: dict[str, object] = {}
    if spec.disruption is not None:
        if problems := limits.problems_of(spec.disruption):
            unread = unread.model_copy(update={"disruption": problems[0]})
        else:
            retained["disruption"] = spec.disruption.to_object()
    if spec.rollout is not None:
        retained["rollout"] = spec.rollout.to_object()
    if spec.hooks is not None:
        if bad := next(rules.problems_of(spec.hooks), ""):
            unread = unread.model_copy(update={"hooks": bad})
        else:
            retained["hooks"] = spec.hooks.to_object()
    if spec.interruption is not None:
        section, unread = _restrict_interruption(spec.interruption, unread)
        retained["interruption"] = section.to_object()
    return rejected.model_copy(update={"rules": LifecycleRules.model_validate(retained), "unread": unread})


def _restrict_interruption(
    interruption: InterruptionRules, unread: InvalidRules
) -> tuple[InterruptionRules, InvalidRules]:
    problem = _interruption_problem(interruption)
    if not problem and not unread.interruption:
        return interruption, unread
    retained = {
        name: one for name, one in interruption.to_object().items() if name == _CLASSES or _is_passive(name, one)
    }
    why = unread.interruption or f"spec.{problem}"
    return InterruptionRules.model_validate(retained), unread.model_copy(update={"interruption": why})


def _is_passive(kind: str, entry: object) -> bool:
    hands_off = ("ignore", "notify") if kind in DEFERRABLE_KINDS else ("ignore",)
    if not isinstance(entry, dict) or entry.get("action") not in hands_off:
        return False
    return not _interruption_problem(InterruptionRules.model_validate({kind: entry}))


def _interruption_problem(interruption: InterruptionRules) -> str:
    return problem_of(LifecycleRules(interruption=interruption))


NODE_POOL_NOT_FOUND: Final = "NodePoolNotFound"
DEADLINE_CUT: Final = "DeadlineCut"
DISABLED_BY_SETTING: Final = "DisabledBySetting"
ROLLOUTS_BLOCKED: Final = "RolloutsHeld"
"""Warning reasons of a policy that is in effect."""
MAX_VALUE_LENGTH: Final = 300
MAX_LISTED: Final = 3
NOT_APPLIED: Final = (
    "the policy is not in effect, and neither are its earlier rules: its NodePools follow other policies, or the "
    "defaults"
)
STILL_APPLIED: Final = "; its rules for disruption, rollouts, hooks and interruption still apply"
BLOCKED_UNTIL_READABLE: Final[Mapping[str, str]] = {
    "disruption": "; no voluntary disruption of their nodes until disruption is valid",
    "hooks": "; no voluntary disruption of their nodes until hooks is valid",
    "rollout": "; no drift replacement of their nodes until rollout is valid",
    "interruption": (
        "; until interruption is valid, maintenance, recommendations and failing checks of their nodes wait, and "
        "other kinds are ignored only if their own entry is valid and ignores them"
    ),
}
_WAITS: Final = {"interruption": "maintenance, recommendations and failing checks wait"}
"""Effect of an invalid section; all other sections block voluntary disruption."""


@dataclass(frozen=True)
class Resolved:
    rules: Mapping[str, LifecycleRules]
    """By NodePool, without NodePools that have no rules."""
    validations: Mapping[str, PolicyValidation]
    unread: Mapping[str, InvalidRules]
    """By NodePool whose disruption is blocked by invalid rules."""
    policies: Mapping[str, Sequence[PolicyFact]]
    """By NodePool: the policies that select it, with their valid rules; most specific first."""


@dataclass
class _Findings:
    pools: set[str] = field(default_factory=set)
    conflicts: list[str] = field(default_factory=list)
    cuts: list[str] = field(default_factory=list)
    disabled: list[str] = field(default_factory=list)


def resolve_policies(
    policies: Iterable[PolicyFact],
    pools: Mapping[str, Mapping[str, str]],
    defaults: Deadlines,
    features: PolicyFeatures | None = None,
) -> Resolved:
    """`pools`: labels by NodePool. `defaults`: the settings, for fields that no policy sets. `features`: None disables
    all."""
    features = features or PolicyFeatures()
    everyone = sorted(policies, key=lambda one: (-one.specificity, one.created, one.name))
    problems = {one.name: problem_in(one) for one in everyone}
    effective = [restrict_to_valid(one) if problems[one.name] else one for one in everyone]
    findings = {one.name: _Findings(disabled=[*disabled_requests(one.rules, features)]) for one in effective}
    effective = [one.model_copy(update={"rules": enabled_rules(one.rules, features)}) for one in effective]
    by_pool = {pool: [one for one in effective if one.selects(pool, pools[pool])] for pool in sorted(pools)}
    rules, unread = {}, {}
    for pool, chosen in by_pool.items():
        if chosen:
            rules[pool] = _merge_rules(pool, chosen, findings, defaults)
        if unreadable := _unreadable_sections(pool, chosen, findings):
            unread[pool] = unreadable
    validations = {
        one.name: _rejected_validation(one, problem, findings[one.name])
        if (problem := problems[one.name])
        else _policy_validation(one, findings[one.name], pools)
        for one in effective
    }
    return Resolved(
        {pool: found for pool, found in rules.items() if flatten_rules(found)}, validations, unread, by_pool
    )


def _unreadable_sections(
    pool: str, chosen: Sequence[PolicyFact], findings: Mapping[str, _Findings]
) -> InvalidRules | None:
    """For each section, the message names the most specific policy with invalid rules."""
    found: dict[str, str] = {}
    for one in chosen:
        for section, why in one.unread.model_dump(exclude_defaults=True).items():
            findings[one.name].pools.add(pool)
            waits = _WAITS.get(section, "voluntary disruption is blocked")
            message = f"LifecyclePolicy {one.name} is invalid, so {waits}: {why}"
            found.setdefault(section, message)
    return InvalidRules.model_validate(found) if found else None


def _rejected_validation(one: PolicyFact, problem: str, findings: _Findings) -> PolicyValidation:
    """`one`: the policy without its rejected fields."""
    unread = one.unread.model_dump()
    blocked = "".join(text for section, text in BLOCKED_UNTIL_READABLE.items() if unread[section])
    consequence = blocked or (STILL_APPLIED if flatten_rules(one.rules) else "")
    return PolicyValidation(
        rejected=True,
        reason=RUNTIME_VALIDATION,
        message=f"{problem}; {NOT_APPLIED}{consequence}",
        node_pools=tuple(sorted(findings.pools)),
    )


def _merge_rules(
    pool: str, chosen: Sequence[PolicyFact], findings: Mapping[str, _Findings], defaults: Deadlines
) -> LifecycleRules:
    taken: dict[str, tuple[PolicyFact, Any]] = {}
    first: dict[tuple[int, str], tuple[PolicyFact, Any]] = {}
    for one in chosen:
        for name, value in flatten_rules(one.rules).items():
            _, counts = taken.setdefault(name, (one, value))
            if is_same_value(name, counts, value):
                findings[one.name].pools.add(pool)
            older, other = first.setdefault((one.specificity, name), (one, value))
            if not is_same_value(name, other, value):
                _record_conflict(pool, name, (older, other), (one, value), findings)
    merged = reduce(lambda below, above: above.merged_over(below), (one.rules for one in reversed(chosen)))
    cut = _describe_deadline_cut(pool, merged, defaults)
    if cut:
        findings[taken["launch.deadline"][0].name].cuts.append(cut)
    return merged


def _record_conflict(
    pool: str,
    name: str,
    older: tuple[PolicyFact, Any],
    younger: tuple[PolicyFact, Any],
    findings: Mapping[str, _Findings],
) -> None:
    (first, value), (second, other) = older, younger
    counts, does_not = _truncate(value), _truncate(other)
    advice = f"set {name} in only one of them, or make one selection more specific"
    findings[first.name].conflicts.append(
        f"LifecyclePolicy {second.name} sets {name} {does_not} for NodePool {pool} and this one sets {counts}, with an "
        f"equally specific selection; this one is older and wins; {advice}"
    )
    findings[second.name].conflicts.append(
        f"LifecyclePolicy {first.name} sets {name} {counts} for NodePool {pool} and this one sets {does_not}, with an "
        f"equally specific selection; {first.name} is older and wins; {advice}"
    )


def _truncate(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}..."


def _describe_deadline_cut(pool: str, rules: LifecycleRules, defaults: Deadlines) -> str:
    fields, registration = flatten_rules(rules), deadlines_of(rules, defaults).registration
    launch = dict(duration_fields(fields)).get("launch.deadline")
    if not isinstance(launch, timedelta) or launch <= registration:
        return ""
    return (
        f"NodePool {pool}: launch.deadline {fields['launch.deadline']} is longer than registration.deadline "
        f"{format_duration(registration)}, which also counts from the NodeClaim's creation and ends both; set both "
        "deadlines"
    )


def _policy_validation(one: PolicyFact, findings: _Findings, pools: Mapping[str, object]) -> PolicyValidation:
    counted = tuple(sorted(findings.pools))
    if findings.conflicts:
        return PolicyValidation(
            rejected=True, reason=CONFLICT, message=_join_messages(findings.conflicts), node_pools=counted
        )
    problems = problems_of(one.rules.rollout) if one.rules.rollout else ()
    if problems:
        message = f"{_join_messages(problems)}. Rollouts of its NodePools are blocked until it is valid"
        return PolicyValidation(reason=ROLLOUTS_BLOCKED, message=message, node_pools=counted)
    missing = sorted(set(one.names) - pools.keys())
    notes = [f"NodePool {name} not found: the policy applies once it exists" for name in missing]
    by_reason = {NODE_POOL_NOT_FOUND: notes, DISABLED_BY_SETTING: findings.disabled, DEADLINE_CUT: findings.cuts}
    reason = next((one for one, found in by_reason.items() if found), "")
    message = _join_messages([one for found in by_reason.values() for one in found])
    return PolicyValidation(reason=reason, message=message, node_pools=counted)


def _join_messages(lines: Sequence[str]) -> str:
    listed = ". ".join(lines[:MAX_LISTED])
    return f"{listed}. And {len(lines) - MAX_LISTED} more" if len(lines) > MAX_LISTED else listed


PoliciesByPool = Mapping[str, Sequence[PolicyFact]]
"""As in `tenure.policy.lifecycle_policy.Resolved`: most specific first."""
Names = Mapping[str, Mapping[str, str]]
"""By NodePool and subject, without NodePools that have no name."""


def policy_names_by_event(policies: PoliciesByPool) -> Names:
    """By NodePool and event kind: the names of the policies with rules for it, most specific first."""
    return _without_empty(
        {
            pool: {kind: ", ".join(one.name for one in chosen if _has_event_rules(one, kind)) for kind in DEFAULTS}
            for pool, chosen in policies.items()
        }
    )


def policy_name_by_hook_point(policies: PoliciesByPool) -> Names:
    """By NodePool and hook point: the name of the most specific policy with hooks, which applies."""
    return _without_empty(
        {pool: {point: _first_with_hooks(chosen, point) for point in POINTS} for pool, chosen in policies.items()}
    )


def _without_empty(names: Names) -> Names:
    found = {pool: {subject: name for subject, name in one.items() if name} for pool, one in names.items()}
    return {pool: one for pool, one in found.items() if one}


def _has_event_rules(policy: PolicyFact, kind: EventKind) -> bool:
    return policy.rules.interruption is not None and event_rules_of(policy.rules.interruption, kind) is not None


def _first_with_hooks(policies: Sequence[PolicyFact], point: HookPoint) -> str:
    return next((one.name for one in policies if hooks_of(one.rules, point)), "")
