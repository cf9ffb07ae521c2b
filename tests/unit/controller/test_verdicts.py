"""Verdicts made visible: one event where something new keeps a node, and gauges that go back to zero."""

from typing import Any, cast

import pytest
from temporalio.common import MetricMeter

from tenure.controller.disruption.status import BLOCKED, ELIGIBLE, EXCLUDED, MOST, UNCONSOLIDATABLE, Verdicts
from tenure.model.disruption.planning import Cause, Decision, Exclusion, NodeVerdict
from tests.support.controller.builders import World, claim, node
from tests.support.fakes.kubernetes import FakeEvents
from tests.unit.controller.test_offering_gauges import Meter


def shown(meter: Meter) -> dict[tuple[str, str], float]:
    """By gauge and label what was told last."""
    return {(name, label): value for name, (label,), value in meter.told}


class Stage(World):
    def __init__(self) -> None:
        super().__init__()
        self.events, self.meter = FakeEvents(), Meter()
        self.verdicts = Verdicts(self.caches, self.events, cast(MetricMeter, self.meter))
        self.hear("nodeclaims", claim("c1", phase="Initialized"))
        self.hear("nodes", node("n1", of="c1"))

    async def find(self, *nodes: NodeVerdict) -> list[tuple[str, str, str]]:
        """What is said of a pass."""
        before = len(self.events.said)
        self.verdicts.take(Decision(nodes=nodes))
        await self.verdicts.say()
        return self.events.said[before:]


def verdict(*causes: tuple[Cause, str], claim: str = "c1", node: str = "n1", **more: Any) -> NodeVerdict:
    excluded = tuple(Exclusion(cause=cause, words=words) for cause, words in causes)
    return NodeVerdict(claim=claim, node=node, excluded=excluded, **more)


HELD = verdict(("PodDoNotDisrupt", "pod a/b has the annotation"))


async def test_what_keeps_a_node_is_said_on_it_and_its_claim_once_and_again_when_it_changes() -> None:
    stage = Stage()
    words = "pod a/b has the annotation"
    assert await stage.find(HELD) == [("c1", BLOCKED, words), ("n1", BLOCKED, words)]
    assert await stage.find(HELD) == []
    more = verdict(("PodDoNotDisrupt", words), ("PodDisruptionBudget", "pod a/c: no"))
    assert (await stage.find(more))[0][2] == f"{words}; pod a/c: no"
    assert await stage.find(verdict()) == []
    assert len(await stage.find(HELD)) == 2, "it was free in between"


@pytest.mark.parametrize("cause", ["NoNode", "Resting", "Nominated", "InProgress", "Policy", "TooYoung"])
async def test_what_belongs_to_every_life_is_no_event(cause: Cause) -> None:
    assert await Stage().find(verdict((cause, "it rests"), rejected=("too dear",))) == []


async def test_what_simulations_found_is_said_once_whatever_its_figures_are() -> None:
    stage = Stage()
    assert await stage.find(verdict(eligible=("Underutilized",), rejected=("costs 0.1", "more"))) == [
        ("c1", UNCONSOLIDATABLE, "costs 0.1"),
        ("n1", UNCONSOLIDATABLE, "costs 0.1"),
    ]
    assert await stage.find(verdict(eligible=("Underutilized",), rejected=("costs 0.2",))) == []


async def test_many_causes_are_counted() -> None:
    causes = [("PodDoNotDisrupt", f"pod {number}") for number in range(5)]
    (said, _) = await Stage().find(verdict(*cast(Any, causes)))
    assert said[2] == "pod 0; pod 1; pod 2; and 2 more"


async def test_events_of_one_look_are_bounded_and_the_others_follow() -> None:
    stage = Stage()
    held = [verdict(("Paused", "audit"), claim=f"c{number}", node="") for number in range(MOST + 5)]
    stage.hear("nodeclaims", *(claim(one.claim, phase="Initialized") for one in held))
    stage.verdicts.take(Decision(nodes=tuple(held)))
    assert not await stage.verdicts.say() and len(stage.events.said) == MOST
    assert await stage.verdicts.say() and len(stage.events.said) == MOST + 5


async def test_gauges_count_nodes_by_reason_and_cause_and_go_back_to_zero() -> None:
    stage = Stage()
    twice = verdict(("PodDoNotDisrupt", "one"), ("PodDoNotDisrupt", "other"))
    await stage.find(twice, verdict(eligible=("Drifted", "Underutilized"), claim="c2", node=""))
    first = shown(stage.meter)
    assert first[ELIGIBLE, "drifted"] == first[ELIGIBLE, "underutilized"] == 1
    assert first[EXCLUDED, "PodDoNotDisrupt"] == 1
    await stage.find(verdict(eligible=("Drifted",)))
    now = shown(stage.meter)
    assert (now[ELIGIBLE, "underutilized"], now[EXCLUDED, "PodDoNotDisrupt"]) == (0, 0)
    stage.verdicts.close()
    assert now[ELIGIBLE, "drifted"] and not any(shown(stage.meter).values())
