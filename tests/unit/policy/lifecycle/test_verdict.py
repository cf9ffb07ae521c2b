"""The verdict on a node: its code and sentence, whether it clears by itself, and the remedy."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.blockers import BLOCKERS, INELIGIBILITIES, NEEDS_ATTENTION, PENDING_PODS, REASONS, Reason
from tenure.model.disruption.decision import Cause as IneligibilityCause
from tenure.model.disruption.drain import BlockerCause, DrainState, DrainStatus, EvictionBlocker
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.policy.lifecycle.deadlines import action_of
from tenure.policy.lifecycle.transitions import TRANSITIONS, deadline_of
from tenure.policy.lifecycle.verdict import describe_blocker, is_alarmed, verdict_of
from tests.unit.policy.builders import NOW, node


def code_of(state: NodeClaimState) -> str:
    verdict = verdict_of(state)
    return verdict.code if verdict else ""


AT_REST = (Phase.READY, Phase.DELETED)
"""These phases wait for nothing."""
WAITING = tuple(phase for phase in Phase if phase not in AT_REST)
ACTIONS = ("", "alarm", "replace", "terminate")


def when_overdue(phase: Phase, action: str) -> LifecycleRules | None:
    if not action or phase not in (Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION):
        return None
    return LifecycleRules.model_validate({phase.value.lower(): {"whenOverdue": action}})


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("phase", WAITING)
def test_waiting_phase_has_a_deadline_followed_by_its_end_or_an_alarm(phase: Phase, action: str) -> None:
    state = node({"rules": when_overdue(phase, action)}, phase=phase, since=NOW)
    assert deadline_of(state, phase, NOW) is not None
    late = state.model_copy(update={"overdue": True})
    if action_of(late.observed.rules, phase) == "alarm":
        remedy = BLOCKERS[f"{phase.value}Overdue"].remedy
        assert describe_blocker(late) == f"needs attention: {remedy}"
    else:
        ends = {Phase.DRAIN, Phase.TERMINATION} & set(TRANSITIONS[phase])
        assert describe_blocker(late).startswith("waits for its deletion")
        assert ends and not is_alarmed(late), "the workflow ends it; tests/unit/workflows/phases/test_deadlines.py"


STATES = st.fixed_dictionaries(
    {
        "phase": st.sampled_from(Phase),
        "blocked_by": st.sampled_from(["", "NodeNotFound: the Node left", "x" * 300]),
        "blocked_code": st.just("NodeNotFound"),
        "slow": st.booleans(),
        "late": st.sampled_from([0, 1, 10_000]),
    }
)


@given(STATES, st.sampled_from(ACTIONS), st.booleans())
def test_waiting_state_has_a_future_deadline_or_a_blocker(drawn: dict[str, Any], action: str, has_node: bool) -> None:
    """As in the workflow, the deadline counts from the start of the phase, which is overdue afterwards."""
    late = timedelta(minutes=drawn.pop("late"))
    phase = drawn["phase"]
    state = node(
        {"rules": when_overdue(phase, action), "node_name": "node-a" if has_node else ""}, since=NOW - late, **drawn
    )
    deadline = deadline_of(state, phase, NOW - late)
    state = state.model_copy(update={"deadline": deadline, "overdue": deadline is not None and deadline <= NOW})
    text = describe_blocker(state)
    in_time = deadline is not None and deadline > NOW
    lost = phase is Phase.READY and not has_node and bool(drawn["blocked_by"])
    at_rest = phase in AT_REST and not lost
    assert in_time or at_rest or text.startswith(("waits for ", "needs attention: "))
    assert bool(code_of(state)) == bool(text)


@pytest.mark.parametrize("phase", AT_REST)
def test_phase_at_rest_has_no_deadline(phase: Phase) -> None:
    assert deadline_of(node(phase=phase), phase, NOW) is None and f"{phase.value}Overdue" not in BLOCKERS


def test_blocker_description_ends_with_the_cause() -> None:
    late = node(phase=Phase.DRAIN, overdue=True, blocked_by="default/web: PodDisruptionBudget web")
    assert describe_blocker(late).endswith("; default/web: PodDisruptionBudget web")


BLOCKED = {"blocked_by": "PodDisruptionBudget web", "blocked_code": "PodDisruptionBudget"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"phase": Phase.READY}, ""),
        ({"phase": Phase.DRAIN, **BLOCKED}, "PodDisruptionBudget"),
        ({"phase": Phase.DRAIN, "overdue": True, **BLOCKED}, "PodDisruptionBudget"),
        ({"phase": Phase.DRAIN, "overdue": True}, "DrainOverdue"),
        ({"phase": Phase.DRAIN, "blocked_code": "PodDisruptionBudget"}, ""),
        ({"phase": Phase.LAUNCH, "slow": True, **BLOCKED}, "Slow"),
        ({"phase": Phase.INITIALIZATION, "slow": True, "blocked_by": "x", "blocked_code": "HookFailed"}, "HookFailed"),
        ({"phase": Phase.LAUNCH, "slow": True, "overdue": True}, "LaunchOverdue"),
    ],
)
def test_blocker_code_is_registered(fields: dict[str, Any], code: str) -> None:
    assert code_of(node({"node_name": "node-a"}, **fields)) == code
    assert not code or code in BLOCKERS


def test_missing_node_needs_attention() -> None:
    lost = node({"node_name": ""}, blocked_by="NodeNotFound: the Node left", blocked_code="NodeNotFound")
    assert code_of(lost) == "NodeNotFound"
    assert describe_blocker(lost) == (
        "needs attention: restart its kubelet, or delete the NodeClaim; NodeNotFound: the Node left"
    )


def test_registries_have_every_cause() -> None:
    assert INELIGIBILITIES.keys() == {*get_args(IneligibilityCause)}
    for cause in get_args(BlockerCause):
        blocker = EvictionBlocker(subject="default/web", cause=cause, what="held")
        assert DrainStatus(eviction_blockers=(blocker,)).blocker_code in BLOCKERS
    assert DrainStatus(not_ready_since=NOW).blocker_code in BLOCKERS


@pytest.mark.parametrize("registry", [BLOCKERS, INELIGIBILITIES, PENDING_PODS])
def test_code_has_one_meaning_in_all_registries(registry: Mapping[str, Reason]) -> None:
    assert {code: reason for code, reason in registry.items() if REASONS[code] is not reason} == {}


def drained_node(**blocker: Any) -> NodeClaimState:
    found = EvictionBlocker.model_validate({"subject": "default/web", "what": "held", "since": NOW, **blocker})
    status = DrainStatus(eviction_blockers=(found,))
    drain = DrainState(status=status)
    return node(phase=Phase.DRAIN, drain=drain, blocked_by=status.status_line, blocked_code=status.blocker_code)


@pytest.mark.parametrize(
    ("cause", "passes", "code"),
    [
        ("budget", "never", "PodDisruptionBudgetAllowsNone"),
        ("budget", "can", "PodDisruptionBudget"),
        ("budgets", "never", "MultiplePodDisruptionBudgets"),
        ("do-not-disrupt", "never", "PodDoNotDisrupt"),
        ("do-not-disrupt", "at", "PodDoNotDisruptUntil"),
        ("refused", "unknown", "EvictionRefused"),
        ("surge", "at", "NewPodPending"),
    ],
)
def test_drain_that_never_ends_by_itself_needs_attention_at_once(cause: str, passes: str, code: str) -> None:
    verdict = verdict_of(drained_node(cause=cause, passes=passes, hint="scale the workload up"))
    assert verdict is not None and (verdict.code, verdict.since) == (code, NOW)
    assert verdict.clears_by_itself is (code not in NEEDS_ATTENTION)
    attention = "needs attention: scale the workload up; " if code in NEEDS_ATTENTION else ""
    assert verdict.sentence == f"{attention}default/web: held"


def test_permanent_blocker_comes_before_one_that_may_clear() -> None:
    blockers = [
        EvictionBlocker(subject="default/a", cause="budget", what="0 disruptions allowed"),
        EvictionBlocker(subject="default/b", cause="do-not-disrupt", what="annotation", passes="never"),
    ]
    assert DrainStatus(eviction_blockers=tuple(blockers)).blocker_code == "PodDoNotDisrupt"
