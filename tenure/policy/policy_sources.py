"""Names of the LifecyclePolicies behind the rules of a node, for messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenure.model.hooks import HookPoint
from tenure.model.interruption.messages import EventKind
from tenure.model.operator_requests import PolicyFact
from tenure.policy.hooks.rules import POINTS, hooks_of
from tenure.policy.interruption.rules import DEFAULTS, event_rules_of
from tenure.policy.lifecycle_policy import problem_in, restrict_to_valid

Names = Mapping[str, Mapping[str, str]]
"""By NodePool and subject; NodePools without a name are not in it."""


def policy_names_by_event(policies: Iterable[PolicyFact], pools: Mapping[str, Mapping[str, str]]) -> Names:
    """By NodePool and kind of AWS's events the names of those that say something of it, the most precise first."""
    found: dict[str, Mapping[str, str]] = {}
    for pool, chosen in _chosen_by_pool(policies, pools):
        names: dict[str, str] = {
            kind: ", ".join(one.name for one in chosen if _has_event_rules(one, kind)) for kind in DEFAULTS
        }
        if named := {kind: text for kind, text in names.items() if text}:
            found[pool] = named
    return found


def policy_name_by_hook_point(policies: Iterable[PolicyFact], pools: Mapping[str, Mapping[str, str]]) -> Names:
    """By NodePool and point the name of the policy whose hooks count there: the most precise."""
    found: dict[str, Mapping[str, str]] = {}
    for pool, chosen in _chosen_by_pool(policies, pools):
        names: dict[str, str] = {point: _first_with_hooks(chosen, point) for point in POINTS}
        if named := {point: name for point, name in names.items() if name}:
            found[pool] = named
    return found


def _chosen_by_pool(
    policies: Iterable[PolicyFact], pools: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, Sequence[PolicyFact]]]:
    everyone = sorted(policies, key=lambda one: (-one.specificity, one.created, one.name))
    effective = [restrict_to_valid(one) if problem_in(one) else one for one in everyone]
    for pool, labels in pools.items():
        yield pool, [one for one in effective if one.selects(pool, labels)]


def _has_event_rules(policy: PolicyFact, kind: EventKind) -> bool:
    return policy.rules.interruption is not None and event_rules_of(policy.rules.interruption, kind) is not None


def _first_with_hooks(policies: Sequence[PolicyFact], point: HookPoint) -> str:
    return next((one.name for one in policies if hooks_of(one.rules, point)), "")
