"""Whether some nodes would still go together, what people and failed moves keep, and room that nobody remembers."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.disruption.commands import Bounced, Hold
from tenure.model.disruption.planning import Command, Decision, Exclusion, Leaving
from tenure.scheduling.disruption.blocked_nodes import kept_by, unsold
from tests.unit.scheduling.builders import NOW, kind, pod, pods
from tests.unit.scheduling.disruption.fleet import Fleet, pool
from tests.unit.scheduling.disruption.test_consolidation import only, rejected

SOON = NOW + timedelta(minutes=5)
LATER = NOW + timedelta(minutes=10)
ONE_KIND = (kind("m.xlarge", cpu=4),)


def again(fleet: Fleet, command: Command, **more: Any) -> Decision:
    names = tuple(one.claim for one in command.candidates)
    return fleet.decide(only=names, reason=command.reason, **more)


def two_halves() -> Fleet:
    """`a` and `b` fit on one cheaper node."""
    return Fleet().node("a", "m.2xlarge", *pods(1)).node("b", "m.2xlarge", *pods(2))


def test_the_same_nodes_go_for_the_same_price_while_nothing_changed() -> None:
    fleet = two_halves()
    first = only(fleet.decide())
    found = only(again(fleet, first))
    assert (found.nodes, found.kind, found.price_after) == (first.nodes, first.kind, first.price_after)


def test_no_other_node_goes_when_one_is_asked_for() -> None:
    fleet = Fleet().node("a", "m.2xlarge", pod()).node("b", "m.2xlarge", pod()).node("empty", "m.large")
    found = only(fleet.decide(only=("a",)))
    assert (found.nodes, found.kind) == (("a",), "single")


def test_what_is_worth_it_no_more_says_why() -> None:
    fleet = Fleet(kinds=ONE_KIND).node("other", "m.xlarge", *pods(1)).node("n", "m.xlarge", *pods(2))
    first = only(fleet.decide())
    fleet.pods["other" if first.nodes == ("n",) else "n"] += [
        one.model_copy(update={"node_name": "other"}) for one in pods(1)
    ]
    stale = again(fleet, first)
    assert not stale.commands and "fits nowhere" in rejected(stale, first.nodes[0])


def test_one_node_that_may_not_go_any_more_holds_the_others_too() -> None:
    fleet = two_halves()
    first = only(fleet.decide())
    assert len(first.nodes) == 2
    fleet.pods[first.nodes[0]][0] = fleet.pods[first.nodes[0]][0].model_copy(update={"do_not_disrupt": "true"})
    stale = again(fleet, first)
    assert not stale.commands
    assert [one.excluded[0].cause for one in stale.nodes if one.claim == first.nodes[0]] == ["PodDoNotDisrupt"]


def test_a_drifted_node_goes_whatever_its_replacement_costs() -> None:
    fleet = Fleet().node("n", "m.large", pod(), drifted="AMIDrift")
    found = only(again(fleet, only(fleet.decide())))
    assert (found.reason, found.kind, len(found.replacements)) == ("Drifted", "drift", 1)
    assert not fleet.decide(only=("n",), reason="Underutilized").commands, "nothing cheaper is to be had"


# --- what keeps nodes ---


def holds(scope: Any, name: str = "", until: datetime | None = None) -> dict[str, tuple[Exclusion, ...]]:
    fleet = Fleet(pool("one"), pool("two")).node("a", "m.large", of="one").node("b", "m.large", of="two")
    return kept_by(fleet.claims, {"a": "node-a"}, [Hold(scope=scope, name=name, why="audit", until=until)], (), NOW)


@pytest.mark.parametrize(
    ("scope", "name", "kept"),
    [
        ("cluster", "", {"a", "b"}),
        ("pool", "two", {"b"}),
        ("node", "node-a", {"a"}),
        ("node", "a", {"a"}),
        ("node", "node-c", set()),
    ],
)
def test_whom_a_pause_keeps(scope: str, name: str, kept: set[str]) -> None:
    assert holds(scope, name).keys() == kept


def test_a_pause_says_why_and_until_when_and_ends_by_itself() -> None:
    (said,) = holds("pool", "one", SOON)["a"]
    assert (said.cause, said.until) == ("Paused", SOON)
    assert said.words == f"NodePool one is paused: audit, until {SOON.isoformat()}"
    assert not holds("pool", "one", NOW)


def test_a_paused_node_goes_for_no_reason_at_all() -> None:
    fleet = Fleet().node("n", "m.large", drifted="AMIDrift").node("other", "m.large")
    kept = kept_by(fleet.claims, {}, [Hold(scope="node", name="n", why="audit")], (), NOW)
    assert [one.nodes for one in fleet.decide(kept=kept).commands] == [("other",)]


def test_a_move_that_came_to_nothing_is_not_repeated_before_its_time_and_an_empty_node_still_goes() -> None:
    fleet = Fleet().node("n", "m.2xlarge", pod())
    told = (
        Bounced(claims=("uid-n",), until=LATER, times=2, why="launch failed"),
        Bounced(claims=("uid-n",), until=SOON),
    )
    kept = kept_by(fleet.claims, {}, (), told, NOW)
    found = fleet.decide(kept=kept)
    (said,) = found.nodes[0].excluded
    assert not found.commands and (said.cause, said.until) == ("Bounced", LATER)
    assert "2 times, last: launch failed" in said.words
    assert not kept_by(fleet.claims, {}, (), told, LATER)
    fleet.pods["n"] = []
    assert only(fleet.decide(kept=kept)).reason == "Empty"


def test_where_replacements_do_not_come_up_nodes_go_only_without() -> None:
    closed = unsold([Bounced(pool="default", until=SOON, why="no Node joined")], NOW)
    large = Fleet().node("n", "m.2xlarge", pod())
    assert only(large.decide()).replacements
    found = large.decide(unsold=closed)
    assert not found.commands and "replacements of NodePool default are not tried before" in rejected(found)
    joinable = Fleet(kinds=ONE_KIND).node("other", "m.xlarge", *pods(1)).node("n", "m.xlarge", *pods(2))
    assert only(joinable.decide(unsold=closed)).replacements == ()
    assert not unsold([Bounced(pool="default", until=NOW)], NOW)
    assert not unsold([Bounced(pool="default", claims=("uid-n",), until=SOON)], NOW), "that concerns some nodes alone"


# --- commands under way that nobody remembers ---


def forgotten(command: Command, **more: Any) -> Command:
    return command.model_copy(update={"moves": (), "replacements": (), **more})


def test_a_command_that_nobody_remembers_keeps_room_for_its_pods() -> None:
    fleet = Fleet(kinds=ONE_KIND).node("other", "m.xlarge", pod("held", do_not_disrupt="true"))
    fleet.node("a", "m.xlarge", *pods(2)).node("b", "m.xlarge", *pods(2))
    first = only(fleet.decide())
    assert not fleet.decide(under_way=(forgotten(first),)).commands


def test_the_pods_of_a_forgotten_command_count_on_its_replacement() -> None:
    """Without the command `n` would be moved to the replacement."""
    fleet = Fleet(kinds=ONE_KIND).node("leaving", "m.xlarge", *pods(3)).node("new", "m.xlarge")
    fleet.node("n", "m.xlarge", *pods(1), initialized_at=NOW).node("full", "m.xlarge", *pods(3))
    busy = Command(reason="Drifted", kind="drift", candidates=(leaving_of(fleet, "leaving"),), claims=("new",))
    found = fleet.decide(under_way=(busy,), nominated=("new",))
    assert not found.commands
    assert any("n" in one.nodes for one in fleet.decide(nominated=("new",)).commands)


def test_what_fits_nowhere_holds_up_no_other_node() -> None:
    fleet = (
        Fleet(pool(limits={"nodes": 2}), kinds=ONE_KIND).node("leaving", "m.xlarge", pod(cpu=100)).node("n", "m.xlarge")
    )
    busy = Command(reason="Drifted", kind="drift", candidates=(leaving_of(fleet, "leaving"),))
    assert only(fleet.decide(under_way=(busy,))).nodes == ("n",)


def leaving_of(fleet: Fleet, name: str) -> Leaving:
    return Leaving(node=name, claim=name, pool=fleet.claims[name].pool)
