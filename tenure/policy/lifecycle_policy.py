"""Which LifecyclePolicies hold for which NodePool, and what is wrong with the others. Pure.

The more precise selection counts, field by field: names before labels before all. Of two as precise that say different
things of one field the older counts, and both say so. One that makes no sense hurts only itself: it is not heeded, but
for what `tenure/policy/lifecycle_policy.py` keeps of it. That counts, or holds its NodePools where it cannot be read.

What counts of a LifecyclePolicy that makes no sense: what would let more nodes go, were it not heeded. Pure.

`tenure/policy/lifecycle_policy.py` merges it with what others say and holds the rest;
`tenure/policy/lifecycle_policy.py` names its sayer.

Which LifecyclePolicies say something of AWS's events, by name, for people who ask under which an event was handled.

Pure. `tenure/policy/lifecycle_policy.py` decides what holds for whom, by the same precision.
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
from tenure.model.interruption.notices import EventKind
from tenure.model.nodeclaim_state import Deadlines
from tenure.model.operator_requests import PolicyFact, PolicyVerdict, Unread
from tenure.policy.disruption import limits
from tenure.policy.hooks import rules
from tenure.policy.interruption.rules import DEFAULTS, LATER, said_of
from tenure.policy.lifecycle.deadlines import deadlines_of, leaves, problem_of, same, spans
from tenure.policy.rollout.rules import problems_of

_CLASSES: Final = "workloads"


def problem_in(policy: PolicyFact) -> str:
    """Why it is not heeded; empty when it is."""
    wrong = problem_of(policy.rules)
    return policy.problem or (f"spec.{wrong}" if wrong else "")


def narrowed(refused: PolicyFact) -> PolicyFact:
    """What counts of one that is not heeded, and why the rest holds."""
    said, unread = refused.rules, refused.unread
    kept: dict[str, object] = {}
    if said.disruption is not None:
        if wrong := limits.problems_of(said.disruption):
            unread = unread.model_copy(update={"disruption": wrong[0]})
        else:
            kept["disruption"] = said.disruption.to_object()
    if said.rollout is not None:
        kept["rollout"] = said.rollout.to_object()
    if said.hooks is not None:
        if bad := next(rules.problems_of(said.hooks), ""):
            unread = unread.model_copy(update={"hooks": bad})
        else:
            kept["hooks"] = said.hooks.to_object()
    if said.interruption is not None:
        section, unread = _events(said.interruption, unread)
        kept["interruption"] = section.to_object()
    return refused.model_copy(update={"rules": LifecycleRules.model_validate(kept), "unread": unread})


def _events(said: InterruptionRules, unread: Unread) -> tuple[InterruptionRules, Unread]:
    wrong = _wrong(said)
    if not wrong and not unread.interruption:
        return said, unread
    kept = {name: one for name, one in said.to_object().items() if name == _CLASSES or _is_left_alone(name, one)}
    why = unread.interruption or f"spec.{wrong}"
    return InterruptionRules.model_validate(kept), unread.model_copy(update={"interruption": why})


def _is_left_alone(kind: str, said: object) -> bool:
    """A kind of which the policy says so in so many words, without a fault."""
    hands_off = ("ignore", "notify") if kind in LATER else ("ignore",)
    if not isinstance(said, dict) or said.get("action") not in hands_off:
        return False
    return not _wrong(InterruptionRules.model_validate({kind: said}))


def _wrong(said: InterruptionRules) -> str:
    return problem_of(LifecycleRules(interruption=said))


NODE_POOL_NOT_FOUND: Final = "NodePoolNotFound"
DEADLINE_CUT: Final = "DeadlineCut"
ROLLOUTS_HELD: Final = "RolloutsHeld"
"""Reasons of a policy that is heeded and has something to be told all the same."""
LONG: Final = 300
"""Characters of a value that is shown."""
SAID: Final = 3
"""Conflicts that are written out."""
NOT_HEEDED: Final = (
    "the policy is not heeded, and what it said before holds no more: its NodePools follow other policies, or the "
    "defaults"
)
STILL_HEEDED: Final = "; what it says of disruption, roll-outs, hooks and interruption counts all the same"
HELD: Final[Mapping[str, str]] = {
    "disruption": "; until disruption can be read no node of them goes voluntarily",
    "hooks": "; until hooks can be read no node of them goes voluntarily",
    "rollout": "; until rollout can be read no node of them goes for drift",
    "interruption": (
        "; until interruption can be read nodes of them wait with maintenance, recommendations and failing checks, and "
        "of the other kinds those alone are ignored whose own entry says so"
    ),
}
_WAITS: Final = {"interruption": "maintenance, recommendations and failing checks wait until it can"}
"""By section; of the others nothing goes."""


@dataclass(frozen=True)
class Resolved:
    rules: Mapping[str, LifecycleRules]
    """By NodePool; those of which nothing is said are not in it."""
    verdicts: Mapping[str, PolicyVerdict]
    """By policy."""
    unread: Mapping[str, Unread]
    """By NodePool, where voluntary disruption is held."""


@dataclass
class _Told:
    """What is found of one policy."""

    pools: set[str] = field(default_factory=set)
    conflicts: list[str] = field(default_factory=list)
    cuts: list[str] = field(default_factory=list)


def resolve(policies: Iterable[PolicyFact], pools: Mapping[str, Mapping[str, str]], usual: Deadlines) -> Resolved:
    """`pools`: the labels of each NodePool; `usual`: the settings, which hold where nothing is said."""
    everyone = sorted(policies, key=lambda one: (-one.precision, one.created, one.name))
    problems = {one.name: problem_in(one) for one in everyone}
    heeded = [narrowed(one) if problems[one.name] else one for one in everyone]
    told = {one.name: _Told() for one in heeded}
    rules, unread = {}, {}
    for pool in sorted(pools):
        chosen = [one for one in heeded if one.selects(pool, pools[pool])]
        if chosen:
            rules[pool] = _merged(pool, chosen, told, usual)
        if held := _unread(pool, chosen, told):
            unread[pool] = held
    verdicts = {
        one.name: _refused(one, problem, told[one.name])
        if (problem := problems[one.name])
        else _verdict(one, told[one.name], pools)
        for one in heeded
    }
    return Resolved({pool: found for pool, found in rules.items() if leaves(found)}, verdicts, unread)


def _unread(pool: str, chosen: Sequence[PolicyFact], told: Mapping[str, _Told]) -> Unread | None:
    """The most precise of them is named."""
    found: dict[str, str] = {}
    for one in chosen:
        for section, why in one.unread.model_dump(exclude_defaults=True).items():
            told[one.name].pools.add(pool)
            waits = _WAITS.get(section, "nothing goes until it can")
            held = f"LifecyclePolicy {one.name} cannot be read, and {waits}: {why}"
            found.setdefault(section, held)
    return Unread.model_validate(found) if found else None


def _refused(one: PolicyFact, problem: str, told: _Told) -> PolicyVerdict:
    """`one` without what is not heeded of it."""
    unread = one.unread.model_dump()
    held = "".join(words for section, words in HELD.items() if unread[section])
    said = held or (STILL_HEEDED if leaves(one.rules) else "")
    return PolicyVerdict(
        refused=True,
        reason=RUNTIME_VALIDATION,
        message=f"{problem}; {NOT_HEEDED}{said}",
        node_pools=tuple(sorted(told.pools)),
    )


def _merged(pool: str, chosen: Sequence[PolicyFact], told: Mapping[str, _Told], usual: Deadlines) -> LifecycleRules:
    """The first count most."""
    taken: dict[str, tuple[PolicyFact, Any]] = {}
    first: dict[tuple[int, str], tuple[PolicyFact, Any]] = {}
    for one in chosen:
        for name, value in leaves(one.rules).items():
            _, counts = taken.setdefault(name, (one, value))
            if same(name, counts, value):
                told[one.name].pools.add(pool)
            older, other = first.setdefault((one.precision, name), (one, value))
            if not same(name, other, value):
                _differ(pool, name, (older, other), (one, value), told)
    merged = reduce(lambda below, above: above.merged_over(below), (one.rules for one in reversed(chosen)))
    cut = _cut(pool, merged, usual)
    if cut:
        told[taken["launch.deadline"][0].name].cuts.append(cut)
    return merged


def _differ(
    pool: str, name: str, older: tuple[PolicyFact, Any], younger: tuple[PolicyFact, Any], told: Mapping[str, _Told]
) -> None:
    (first, value), (second, other) = older, younger
    counts, does_not = _shown(value), _shown(other)
    advice = f"write {name} in one of them alone, or select one of them more precisely"
    told[first.name].conflicts.append(
        f"LifecyclePolicy {second.name} says {name} {does_not} for NodePool {pool} where this one says {counts}, and "
        f"selects it as precisely; this one is older and counts; {advice}"
    )
    told[second.name].conflicts.append(
        f"LifecyclePolicy {first.name} says {name} {counts} for NodePool {pool} where this one says {does_not}, and "
        f"selects it as precisely; {first.name} is older and counts; {advice}"
    )


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONG else f"{text[:LONG]}..."


def _cut(pool: str, rules: LifecycleRules, usual: Deadlines) -> str:
    """Launch has been given longer than registration, whose deadline may be another policy's, or the setting."""
    said, registration = leaves(rules), deadlines_of(rules, usual).registration
    launch = dict(spans(said)).get("launch.deadline")
    if not isinstance(launch, timedelta) or launch <= registration:
        return ""
    return (
        f"NodePool {pool}: launch.deadline {said['launch.deadline']} is longer than registration.deadline "
        f"{format_duration(registration)}, which counts from the NodeClaim's birth too and ends both; write both "
        "deadlines"
    )


def _verdict(one: PolicyFact, told: _Told, pools: Mapping[str, object]) -> PolicyVerdict:
    counted = tuple(sorted(told.pools))
    if told.conflicts:
        return PolicyVerdict(refused=True, reason=CONFLICT, message=_listed(told.conflicts), node_pools=counted)
    held = problems_of(one.rules.rollout) if one.rules.rollout else ()
    if held:
        message = f"{_listed(held)}. Nothing is rolled out in its NodePools until that can be read"
        return PolicyVerdict(reason=ROLLOUTS_HELD, message=message, node_pools=counted)
    missing = sorted(set(one.names) - pools.keys())
    notes = [f"there is no NodePool {name}: it counts as soon as there is one" for name in missing]
    reason = NODE_POOL_NOT_FOUND if missing else DEADLINE_CUT if told.cuts else ""
    return PolicyVerdict(reason=reason, message=_listed([*notes, *told.cuts]), node_pools=counted)


def _listed(lines: Sequence[str]) -> str:
    shown = ". ".join(lines[:SAID])
    return f"{shown}. And {len(lines) - SAID} more" if len(lines) > SAID else shown


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
