"""Names of the LifecyclePolicies that define the rules of a node, for messages."""

from collections.abc import Mapping, Sequence

from tenure.model.hooks import HookPoint
from tenure.model.interruption.messages import EventKind
from tenure.model.operator_requests import PolicyFact
from tenure.policy.hooks.rules import POINTS, hooks_of
from tenure.policy.interruption.rules import DEFAULTS, event_rules_of

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
