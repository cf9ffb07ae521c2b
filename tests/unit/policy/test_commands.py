"""What a command waits for."""

from typing import Any

from tenure.model.disruption.commands import CommandState, Proposal
from tenure.model.disruption.planning import Leaving
from tenure.model.signals import PermitAnswered
from tenure.policy.disruption.commands import (
    all_ready,
    ask_due,
    look_due,
    next_look,
    refused,
    starting,
    to_ask,
    unpermitted,
    why_unpermitted,
)
from tests.unit.policy.builders import NOW, after, before

LEAVING = tuple(Leaving(node=one, claim=one, claim_uid=one, pool="default") for one in ("a", "b"))


def state(**fields: Any) -> CommandState:
    proposal = Proposal(id="p", reason="Drifted", kind="drift", candidates=LEAVING)
    return CommandState(cluster="demo", proposal=proposal, **fields)


def granted(until: Any = None) -> PermitAnswered:
    return PermitAnswered(granted=True, reason="Drifted", until=until)


REFUSED = PermitAnswered(granted=False, reason="Drifted", blocked_by="budget 0 of 2 nodes")


def names(found: tuple[Leaving, ...]) -> list[str]:
    return [one.node for one in found]


def test_a_permit_holds_while_its_lease_lasts() -> None:
    permits = {"a": granted(after(seconds=1)), "b": granted(NOW)}
    assert names(unpermitted(state(permits=permits), NOW)) == ["b"]
    assert names(unpermitted(state(permits={"a": REFUSED}), NOW)) == ["a", "b"]
    assert unpermitted(state(permits={"a": granted(), "b": granted()}), NOW) == ()


def test_permits_are_asked_for_at_first_and_in_time_before_they_lapse() -> None:
    assert ask_due(state(), NOW)
    assert not ask_due(state(renewed=before(seconds=80)), NOW) and ask_due(state(renewed=before(seconds=90)), NOW)


def test_who_was_refused_is_answered_without_asking_again() -> None:
    asking = state(permits={"a": REFUSED})
    assert names(to_ask(asking)) == ["b"] and names(refused(asking)) == ["a"]


def test_a_refusal_is_said_in_the_pools_words() -> None:
    assert why_unpermitted(state(permits={"b": REFUSED}), LEAVING) == "budget 0 of 2 nodes (2 of 2 nodes)"
    assert why_unpermitted(state(), LEAVING[:1]) == "NodePool default does not answer (1 of 2 nodes)"


def test_it_looks_once_all_replacements_spoke_or_when_it_is_time() -> None:
    assert look_due(state(), NOW), "nothing to wait for"
    half = state(claims=("x", "y"), ready=("y",), look_at=after(minutes=5))
    assert not all_ready(half) and not look_due(half, NOW) and look_due(half, after(minutes=5))
    whole = half.model_copy(update={"ready": ("y", "x")})
    assert look_due(whole, NOW)
    assert not look_due(whole.model_copy(update={"looks": 1}), NOW)


def test_looks_that_change_nothing_become_rare() -> None:
    ready = state(claims=("x",), ready=("x",))
    waits = [next_look(ready.model_copy(update={"looks": one}), NOW) - NOW for one in (0, 1, 3, 50)]
    assert [one.total_seconds() for one in waits] == [10, 20, 80, 300]
    assert (next_look(state(claims=("x",)), NOW) - NOW).total_seconds() == 300


def test_replacements_that_start_are_named_and_the_rest_is_counted() -> None:
    assert starting(state(claims=("v", "w", "x", "y", "z"), ready=("w",))) == "v, x, y and 1 more"
