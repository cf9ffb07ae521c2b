"""Verdicts are published as one event per Node and NodeClaim when a new cause blocks disruption."""

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
        """Events of one pass."""
        before = len(self.events.published)
        self.verdicts.update(Decision(nodes=nodes))
        await self.verdicts.publish_events()
        return self.events.published[before:]


def verdict(*causes: tuple[Cause, str], claim: str = "c1", node: str = "n1", **more: Any) -> NodeVerdict:
    excluded = tuple(Ineligibility(cause=cause, message=message) for cause, message in causes)
    return NodeVerdict(claim=claim, node=node, excluded=excluded, **more)


BLOCKED_NODE = verdict(("PodDoNotDisrupt", "pod a/b has the annotation"))


async def test_blocked_event_is_published_once_per_change_on_node_and_nodeclaim() -> None:
    harness = VerdictHarness()
    message = "pod a/b has the annotation"
    assert await harness.publish(BLOCKED_NODE) == [("c1", BLOCKED, message), ("n1", BLOCKED, message)]
    assert await harness.publish(BLOCKED_NODE) == []
    more = verdict(("PodDoNotDisrupt", message), ("PodDisruptionBudget", "pod a/c: no"))
    assert (await harness.publish(more))[0][2] == f"{message}; pod a/c: no"
    assert await harness.publish(verdict()) == []
    assert len(await harness.publish(BLOCKED_NODE)) == 2, "the node was eligible in between"


@pytest.mark.parametrize("cause", ["NoNode", "Resting", "Nominated", "InProgress", "Policy", "TooYoung"])
async def test_routine_causes_publish_no_event(cause: Cause) -> None:
    assert await VerdictHarness().publish(verdict((cause, "routine"), rejected=("too expensive",))) == []


async def test_unconsolidatable_event_is_published_once_despite_changed_figures() -> None:
    harness = VerdictHarness()
    assert await harness.publish(verdict(eligible=("Underutilized",), rejected=("costs 0.1", "more"))) == [
        ("c1", UNCONSOLIDATABLE, "costs 0.1"),
        ("n1", UNCONSOLIDATABLE, "costs 0.1"),
    ]
    assert await harness.publish(verdict(eligible=("Underutilized",), rejected=("costs 0.2",))) == []


async def test_event_lists_three_causes_and_counts_the_rest() -> None:
    causes = [("PodDoNotDisrupt", f"pod {number}") for number in range(5)]
    (event, _) = await VerdictHarness().publish(verdict(*cast(Any, causes)))
    assert event[2] == "pod 0; pod 1; pod 2; and 2 more"


async def test_events_of_one_pass_are_limited_and_the_rest_follows() -> None:
    harness = VerdictHarness()
    blocked = [verdict(("Paused", "audit"), claim=f"c{number}", node="") for number in range(MAX_EVENTS + 5)]
    harness.apply_objects("nodeclaims", *(claim(one.claim, phase="Initialized") for one in blocked))
    harness.verdicts.update(Decision(nodes=tuple(blocked)))
    assert not await harness.verdicts.publish_events() and len(harness.events.published) == MAX_EVENTS
    assert await harness.verdicts.publish_events() and len(harness.events.published) == MAX_EVENTS + 5
