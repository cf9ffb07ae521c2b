"""Verdicts made visible: one event where something new keeps a node."""

from typing import Any, cast

import pytest

from tenure.controller.disruption.status import (
    BLOCKED,
    MAX_EVENTS,
    UNCONSOLIDATABLE,
    VerdictReporter,
)
from tenure.model.disruption.decision import Cause, Decision, Ineligibility, NodeVerdict
from tests.support.controller.builders import CacheHarness, claim
from tests.support.fakes.kubernetes import FakeEvents


class VerdictHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.events = FakeEvents()
        self.verdicts = VerdictReporter(self.cache, self.events)
        self.add_running_node()

    async def publish(self, *nodes: NodeVerdict) -> list[tuple[str, str, str]]:
        """What is said of a pass."""
        before = len(self.events.published)
        self.verdicts.update(Decision(nodes=nodes))
        await self.verdicts.publish_events()
        return self.events.published[before:]


def verdict(*causes: tuple[Cause, str], claim: str = "c1", node: str = "n1", **more: Any) -> NodeVerdict:
    excluded = tuple(Ineligibility(cause=cause, message=message) for cause, message in causes)
    return NodeVerdict(claim=claim, node=node, excluded=excluded, **more)


BLOCKED_NODE = verdict(("PodDoNotDisrupt", "pod a/b has the annotation"))


async def test_what_keeps_a_node_is_said_on_it_and_its_claim_once_and_again_when_it_changes() -> None:
    harness = VerdictHarness()
    message = "pod a/b has the annotation"
    assert await harness.publish(BLOCKED_NODE) == [("c1", BLOCKED, message), ("n1", BLOCKED, message)]
    assert await harness.publish(BLOCKED_NODE) == []
    more = verdict(("PodDoNotDisrupt", message), ("PodDisruptionBudget", "pod a/c: no"))
    assert (await harness.publish(more))[0][2] == f"{message}; pod a/c: no"
    assert await harness.publish(verdict()) == []
    assert len(await harness.publish(BLOCKED_NODE)) == 2, "it was free in between"


@pytest.mark.parametrize("cause", ["NoNode", "Resting", "Nominated", "InProgress", "Policy", "TooYoung"])
async def test_what_belongs_to_every_life_is_no_event(cause: Cause) -> None:
    assert await VerdictHarness().publish(verdict((cause, "it rests"), rejected=("too dear",))) == []


async def test_what_simulations_found_is_said_once_whatever_its_figures_are() -> None:
    harness = VerdictHarness()
    assert await harness.publish(verdict(eligible=("Underutilized",), rejected=("costs 0.1", "more"))) == [
        ("c1", UNCONSOLIDATABLE, "costs 0.1"),
        ("n1", UNCONSOLIDATABLE, "costs 0.1"),
    ]
    assert await harness.publish(verdict(eligible=("Underutilized",), rejected=("costs 0.2",))) == []


async def test_many_causes_are_counted() -> None:
    causes = [("PodDoNotDisrupt", f"pod {number}") for number in range(5)]
    (event, _) = await VerdictHarness().publish(verdict(*cast(Any, causes)))
    assert event[2] == "pod 0; pod 1; pod 2; and 2 more"


async def test_events_of_one_look_are_bounded_and_the_others_follow() -> None:
    harness = VerdictHarness()
    blocked = [verdict(("Paused", "audit"), claim=f"c{number}", node="") for number in range(MAX_EVENTS + 5)]
    harness.apply_objects("nodeclaims", *(claim(one.claim, phase="Initialized") for one in blocked))
    harness.verdicts.update(Decision(nodes=tuple(blocked)))
    assert not await harness.verdicts.publish_events() and len(harness.events.published) == MAX_EVENTS
    assert await harness.verdicts.publish_events() and len(harness.events.published) == MAX_EVENTS + 5
