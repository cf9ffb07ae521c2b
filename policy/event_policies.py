"""Which LifecyclePolicies say something of AWS's events, by name, for people who ask under which an event was handled.

Pure. `policy/selection.py` decides what holds for whom, by the same precision.
"""

from collections.abc import Iterable, Mapping

from model.interruptions import EventKind
from model.policies import PolicyFact
from policy.interruption_rules import DEFAULTS, said_of
from policy.narrowing import narrowed, problem_in


def event_policies(
    policies: Iterable[PolicyFact], pools: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Mapping[str, str]]:
    """By NodePool and kind of AWS's events the names of those that say something of it, the most precise first."""
    everyone = sorted(policies, key=lambda one: (-one.precision, one.created, one.name))
    heeded = [narrowed(one) if problem_in(one) else one for one in everyone]
    found: dict[str, dict[str, str]] = {}
    for pool, labels in pools.items():
        chosen = [one for one in heeded if one.selects(pool, labels)]
        names: dict[str, str] = {
            kind: ", ".join(one.name for one in chosen if _speaks_of(one, kind)) for kind in DEFAULTS
        }
        if said := {kind: text for kind, text in names.items() if text}:
            found[pool] = said
    return found


def _speaks_of(policy: PolicyFact, kind: EventKind) -> bool:
    return policy.rules.interruption is not None and said_of(policy.rules.interruption, kind) is not None
