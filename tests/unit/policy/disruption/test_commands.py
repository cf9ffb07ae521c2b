"""What a command waits for."""

from typing import Any

from tenure.model.disruption.commands import CommandState, Proposal
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.signals import PermitResult
from tenure.policy.disruption.commands import (
    all_ready,
    candidates_to_request,
    candidates_without_permit,
    describe_unready_replacements,
    explain_unpermitted,
    is_check_due,
    is_permit_request_due,
    next_check_at,
    rejected_candidates,
)
from tests.unit.policy.builders import NOW, after, before

CANDIDATES = tuple(CommandCandidate(node=one, claim=one, claim_uid=one, pool="default") for one in ("a", "b"))


def state(**fields: Any) -> CommandState:
    proposal = Proposal(id="p", reason="Drifted", kind="drift", candidates=CANDIDATES)
    return CommandState(cluster="demo", proposal=proposal, **fields)


def granted(until: Any = None) -> PermitResult:
    return PermitResult(granted=True, reason="Drifted", until=until)


REJECTED = PermitResult(granted=False, reason="Drifted", blocked_by="budget 0 of 2 nodes")


def names(found: tuple[CommandCandidate, ...]) -> list[str]:
    return [one.node for one in found]


def test_a_permit_holds_while_its_lease_lasts() -> None:
    permits = {"a": granted(after(seconds=1)), "b": granted(NOW)}
    assert names(candidates_without_permit(state(permits=permits), NOW)) == ["b"]
    assert names(candidates_without_permit(state(permits={"a": REJECTED}), NOW)) == ["a", "b"]
    assert candidates_without_permit(state(permits={"a": granted(), "b": granted()}), NOW) == ()


def test_permits_are_asked_for_at_first_and_in_time_before_they_lapse() -> None:
    assert is_permit_request_due(state(), NOW)
    assert not is_permit_request_due(state(permits_renewed_at=before(seconds=80)), NOW) and is_permit_request_due(
        state(permits_renewed_at=before(seconds=90)), NOW
    )


def test_who_was_refused_is_answered_without_asking_again() -> None:
    requesting = state(permits={"a": REJECTED})
    assert names(candidates_to_request(requesting)) == ["b"] and names(rejected_candidates(requesting)) == ["a"]


def test_a_refusal_is_said_in_the_pools_words() -> None:
    assert explain_unpermitted(state(permits={"b": REJECTED}), CANDIDATES) == "budget 0 of 2 nodes (2 of 2 nodes)"
    assert explain_unpermitted(state(), CANDIDATES[:1]) == "NodePool default does not answer (1 of 2 nodes)"


def test_it_looks_once_all_replacements_spoke_or_when_it_is_time() -> None:
    assert is_check_due(state(), NOW), "nothing to wait for"
    half = state(claims=("x", "y"), ready=("y",), next_check_at=after(minutes=5))
    assert not all_ready(half) and not is_check_due(half, NOW) and is_check_due(half, after(minutes=5))
    complete = half.model_copy(update={"ready": ("y", "x")})
    assert is_check_due(complete, NOW)
    assert not is_check_due(complete.model_copy(update={"failed_checks": 1}), NOW)


def test_looks_that_change_nothing_become_rare() -> None:
    ready = state(claims=("x",), ready=("x",))
    waits = [next_check_at(ready.model_copy(update={"failed_checks": one}), NOW) - NOW for one in (0, 1, 3, 50)]
    assert [one.total_seconds() for one in waits] == [10, 20, 80, 300]
    assert (next_check_at(state(claims=("x",)), NOW) - NOW).total_seconds() == 300


def test_replacements_that_start_are_named_and_the_rest_is_counted() -> None:
    assert describe_unready_replacements(state(claims=("v", "w", "x", "y", "z"), ready=("w",))) == "v, x, y and 1 more"
