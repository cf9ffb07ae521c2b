"""Revalidation of commands, pauses, backoffs, and in-flight commands without recorded moves."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.disruption.commands import ActivePause, CommandBackoff
from tenure.model.disruption.decision import Command, CommandCandidate, Decision, Ineligibility
from tenure.policy.lifecycle.pauses import pause_blocker
from tenure.scheduling.disruption.blocked_nodes import blocking_reasons, nodepools_in_backoff
from tests.unit.scheduling.builders import NOW, instance_type, pod, pods
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pool
from tests.unit.scheduling.disruption.test_consolidation import only_command, rejected

SOON = NOW + timedelta(minutes=5)
LATER = NOW + timedelta(minutes=10)
ONE_TYPE = (instance_type("m.xlarge", cpu=4),)


def decide_for_command(fleet: Fleet, command: Command, **more: Any) -> Decision:
    names = tuple(one.claim for one in command.candidates)
    return fleet.decide(only=names, reason=command.reason, **more)


def two_halves() -> Fleet:
    """The pods of `a` and `b` fit on one cheaper node."""
    return Fleet().node("a", "m.2xlarge", *pods(1)).node("b", "m.2xlarge", *pods(2))


def test_revalidation_of_an_unchanged_cluster_gives_the_same_command() -> None:
    fleet = two_halves()
    first = only_command(fleet.decide())
    found = only_command(decide_for_command(fleet, first))
    assert (found.node_names, found.kind, found.price_after) == (first.node_names, first.kind, first.price_after)


def test_only_requested_nodes_are_considered() -> None:
    fleet = Fleet().node("a", "m.2xlarge", pod()).node("b", "m.2xlarge", pod()).node("empty", "m.large")
    found = only_command(fleet.decide(only=("a",)))
    assert (found.node_names, found.kind) == (("a",), "single")


def test_stale_command_is_rejected_with_a_reason() -> None:
    fleet = Fleet(instance_types=ONE_TYPE).node("other", "m.xlarge", *pods(1)).node("n", "m.xlarge", *pods(2))
    first = only_command(fleet.decide())
    fleet.pods["other" if first.node_names == ("n",) else "n"] += [
        one.model_copy(update={"node_name": "other"}) for one in pods(1)
    ]
    stale = decide_for_command(fleet, first)
    assert not stale.commands and "fits nowhere" in rejected(stale, first.node_names[0])


def test_one_ineligible_candidate_rejects_the_command() -> None:
    fleet = two_halves()
    first = only_command(fleet.decide())
    assert len(first.node_names) == 2
    fleet.pods[first.node_names[0]][0] = fleet.pods[first.node_names[0]][0].model_copy(
        update={"do_not_disrupt": "true"}
    )
    stale = decide_for_command(fleet, first)
    assert not stale.commands
    assert [one.excluded[0].cause for one in stale.nodes if one.claim == first.node_names[0]] == ["PodDoNotDisrupt"]


# --- pauses and backoffs ---


def pause_exclusions(scope: Any, name: str = "", until: datetime | None = None) -> dict[str, tuple[Ineligibility, ...]]:
    fleet = Fleet(pool("one"), pool("two")).node("a", "m.large", of="one").node("b", "m.large", of="two")
    return blocking_reasons(
        fleet.nodeclaims,
        {"a": "node-a"},
        [ActivePause(scope=scope, name=name, why="audit", until=until)],
        (),
        NOW,
    )


@pytest.mark.parametrize(
    ("scope", "name", "expected"),
    [
        ("cluster", "", {"a", "b"}),
        ("pool", "two", {"b"}),
        ("node", "node-a", {"a"}),
        ("node", "a", {"a"}),
        ("node", "node-c", set()),
    ],
)
def test_pause_excludes_nodes_of_its_scope(scope: str, name: str, expected: set[str]) -> None:
    assert pause_exclusions(scope, name).keys() == expected


def test_pause_exclusion_has_reason_and_end() -> None:
    (exclusion,) = pause_exclusions("pool", "one", SOON)["a"]
    assert (exclusion.cause, exclusion.until) == ("Paused", SOON)
    assert exclusion.message == f"NodePool one is paused: audit, until {SOON.isoformat()}"
    assert not pause_exclusions("pool", "one", NOW)


def test_pause_of_two_sources_is_one_exclusion() -> None:
    """The Cluster workflow and the namespace's annotation have the same pause."""
    text = f"until={SOON.isoformat()}, by=ann, reason=trying it out"
    pause = pause_blocker("cluster", "", text, NOW)
    assert pause is not None
    (exclusion,) = blocking_reasons(Fleet().node("n", "m.large").nodeclaims, {}, [pause, pause], (), NOW)["n"]
    assert exclusion.message == f"the cluster is paused: by ann: trying it out, until {SOON.isoformat()}"


def test_paused_node_is_not_disrupted_for_any_reason() -> None:
    fleet = Fleet().node("n", "m.large", drifted="AMIDrift").node("other", "m.large")
    excluded = blocking_reasons(fleet.nodeclaims, {}, [ActivePause(scope="node", name="n", why="audit")], (), NOW)
    assert [one.node_names for one in fleet.decide(ineligible=excluded).commands] == [("other",)]


def test_node_in_backoff_is_disrupted_only_if_empty() -> None:
    fleet = Fleet().node("n", "m.2xlarge", pod())
    backoffs = (
        CommandBackoff(claims=("uid-n",), until=LATER, times=2, why="launch failed"),
        CommandBackoff(claims=("uid-n",), until=SOON),
    )
    excluded = blocking_reasons(fleet.nodeclaims, {}, (), backoffs, NOW)
    found = fleet.decide(ineligible=excluded)
    (exclusion,) = found.nodes[0].excluded
    assert not found.commands and (exclusion.cause, exclusion.until) == ("Bounced", LATER)
    assert "2 times, last: launch failed" in exclusion.message
    assert not blocking_reasons(fleet.nodeclaims, {}, (), backoffs, LATER)
    fleet.pods["n"] = []
    assert only_command(fleet.decide(ineligible=excluded)).reason == "Empty"


def test_nodepool_in_backoff_has_only_commands_without_replacements() -> None:
    closed = nodepools_in_backoff([CommandBackoff(pool="default", until=SOON, why="no Node joined")], NOW)
    large = Fleet().node("n", "m.2xlarge", pod())
    assert only_command(large.decide()).replacements
    found = large.decide(unsold=closed)
    assert not found.commands and "replacements of NodePool default are not tried before" in rejected(found)
    joinable = Fleet(instance_types=ONE_TYPE).node("other", "m.xlarge", *pods(1)).node("n", "m.xlarge", *pods(2))
    assert only_command(joinable.decide(unsold=closed)).replacements == ()
    assert not nodepools_in_backoff([CommandBackoff(pool="default", until=NOW)], NOW)
    assert not nodepools_in_backoff([CommandBackoff(pool="default", claims=("uid-n",), until=SOON)], NOW), (
        "a backoff of nodes does not apply to the NodePool"
    )


# --- in-flight commands without recorded moves ---


def without_recorded_moves(command: Command, **more: Any) -> Command:
    return command.model_copy(update={"moves": (), "replacements": (), **more})


def test_command_without_recorded_moves_reserves_capacity_for_its_pods() -> None:
    fleet = Fleet(instance_types=ONE_TYPE).node("other", "m.xlarge", pod("held", do_not_disrupt="true"))
    fleet.node("a", "m.xlarge", *pods(2)).node("b", "m.xlarge", *pods(2))
    first = only_command(fleet.decide())
    assert not fleet.decide(under_way=(without_recorded_moves(first),)).commands


def test_pods_of_a_command_without_recorded_moves_count_on_its_replacement() -> None:
    """Without the command, the pods of `n` would move to the replacement."""
    fleet = Fleet(instance_types=ONE_TYPE).node("candidate", "m.xlarge", *pods(3)).node("new", "m.xlarge")
    fleet.node("n", "m.xlarge", *pods(1), initialized_at=NOW).node("full", "m.xlarge", *pods(3))
    busy = Command(reason="Drifted", kind="drift", candidates=(command_candidate(fleet, "candidate"),), claims=("new",))
    found = fleet.decide(under_way=(busy,), nominated=("new",))
    assert not found.commands
    assert any("n" in one.node_names for one in fleet.decide(nominated=("new",)).commands)


def test_command_whose_pods_fit_nowhere_does_not_block_other_nodes() -> None:
    fleet = (
        Fleet(pool(limits={"nodes": 2}), instance_types=ONE_TYPE)
        .node("candidate", "m.xlarge", pod(cpu=100))
        .node("n", "m.xlarge")
    )
    busy = Command(reason="Drifted", kind="drift", candidates=(command_candidate(fleet, "candidate"),))
    assert only_command(fleet.decide(under_way=(busy,))).node_names == ("n",)


def command_candidate(fleet: Fleet, name: str) -> CommandCandidate:
    return CommandCandidate(node=name, claim=name, pool=fleet.nodeclaims[name].pool)
