"""What counts of a LifecyclePolicy that makes no sense: what would let more nodes go, were it not heeded. Pure.

`policy/selection.py` merges it with what others say and holds the rest; `policy/event_policies.py` names its sayer.
"""

from typing import Final

from model.kinds import LifecycleRules
from model.kinds.interruption_rules import InterruptionRules
from model.policies import PolicyFact, Unread
from policy import allowances, hook_rules
from policy.interruption_rules import LATER
from policy.rules import problem_of

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
        if wrong := allowances.problems_of(said.disruption):
            unread = unread.model_copy(update={"disruption": wrong[0]})
        else:
            kept["disruption"] = said.disruption.to_object()
    if said.rollout is not None:
        kept["rollout"] = said.rollout.to_object()
    if said.hooks is not None:
        if bad := next(hook_rules.problems_of(said.hooks), ""):
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
