"""Rollout rules: defaults, all fields, and validation."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy_disruption import RolloutRules
from tenure.policy.rollout.rules import problems_of, resolve_rules

QUERY = {"query": "up"}


def rules(**fields: Any) -> RolloutRules:
    return RolloutRules.model_validate(fields)


def test_default_rules() -> None:
    found = resolve_rules(rules())
    assert [(one.nodes, one.soak) for one in found.waves] == [(None, timedelta(0))]
    assert (found.nodes_ready, found.pods_ready, found.failed_starts, found.gates) == (90, None, 2, ())
    assert (found.every, found.failing_for) == (timedelta(minutes=1), timedelta(minutes=2))
    assert (found.rolls_back, found.approvers) == (False, 0)


def test_all_fields_are_resolved() -> None:
    all_rules = rules(
        waves=[{"nodes": "1", "soak": "10m"}, {"nodes": "20%"}],
        health={
            "nodesReady": "100%",
            "podsReady": "80%",
            "failedStarts": 1,
            "every": "30s",
            "failingFor": "0s",
            "queries": [{"query": "up", "above": "0.5", "timeout": "3s"}, {"name": "b", "query": "x", "below": "1e-3"}],
        },
        onFailure="rollBack",
        approval={"required": True, "approvers": 2, "expires": "1h", "staleAfter": "5%"},
    )
    assert problems_of(all_rules) == ()
    found = resolve_rules(all_rules)
    assert [(one.nodes, one.soak) for one in found.waves][-1] == (None, timedelta(0)), (
        "a final wave for the remaining nodes is added"
    )
    assert (found.nodes_ready, found.pods_ready, found.failed_starts, found.failing_for) == (100, 80, 1, timedelta(0))
    gates = [(one.name, one.below, one.above, one.timeout.seconds) for one in found.gates]
    assert gates == [("up", None, 0.5, 3), ("b", 0.001, None, 10)]
    assert (found.rolls_back, found.approvers, found.expires, found.stale_after) == (True, 2, timedelta(hours=1), "5%")


def test_approval_is_needed_only_if_required() -> None:
    assert resolve_rules(rules(approval={"approvers": 3})).approvers == 0
    assert resolve_rules(rules(approval={"required": True})).approvers == 1


@pytest.mark.parametrize(
    ("nodes", "size", "goal"),
    [("1", 10, 1), ("20%", 10, 2), ("20%", 11, 3), ("1%", 3, 1), ("15", 10, 10), (None, 7, 7), ("100%", 7, 7)],
)
def test_node_goal_of_a_wave(nodes: str | None, size: int, goal: int) -> None:
    (first, *_) = resolve_rules(rules(waves=[{"nodes": nodes} if nodes else {}])).waves
    assert first.node_goal(size) == goal


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"waves": [{"nodes": "0"}]},
            "spec.rollout.waves[0].nodes: '0' replaces no node, expected '1' or more, or remove the wave",
        ),
        (
            {"waves": [{}, {"nodes": "5"}]},
            "spec.rollout.waves[0].nodes: missing, expected e.g. '20%': only the last wave replaces all remaining "
            "nodes",
        ),
        (
            {"waves": [{"nodes": "20%"}, {"nodes": "20%"}]},
            "spec.rollout.waves[1].nodes: '20%' is not larger than '20%' of the previous wave, which it includes; set "
            "a larger number",
        ),
        (
            {"waves": [{"nodes": "half"}]},
            "spec.rollout.waves[0].nodes: 'half': invalid number of nodes, expected e.g. '5' or '10%'",
        ),
        (
            {"waves": [{"soak": "1d"}]},
            "spec.rollout.waves[0].soak: '1d': invalid duration, days are not a unit, expected '24h'",
        ),
        ({"health": {"every": "1s"}}, "spec.rollout.health.every: '1s': too short, expected e.g. 1m"),
        (
            {"health": {"failingFor": "Never"}},
            "spec.rollout.health.failingFor: 'Never': invalid duration, expected e.g. 2m",
        ),
        (
            {"health": {"nodesReady": "3"}},
            "spec.rollout.health.nodesReady: '3': invalid percentage, expected e.g. '90%'",
        ),
        (
            {"health": {"queries": [QUERY]}},
            "spec.rollout.health.queries[0]: expected exactly one of below, e.g. below: '0.01', and above, e.g. "
            "above: '1'",
        ),
        (
            {"health": {"queries": [QUERY | {"below": "little"}]}},
            "spec.rollout.health.queries[0].below: 'little': invalid number, expected e.g. '0.01'",
        ),
        (
            {"health": {"queries": [QUERY | {"below": "1", "timeout": "5m"}]}},
            "spec.rollout.health.queries[0].timeout: '5m': too long, expected e.g. 10s",
        ),
        ({"approval": {"expires": "5s"}}, "spec.rollout.approval.expires: '5s': too short, expected e.g. 24h"),
        (
            {"approval": {"staleAfter": "x"}},
            "spec.rollout.approval.staleAfter: 'x': invalid percentage, expected e.g. '90%'",
        ),
    ],
)
def test_invalid_rules_are_reported_with_the_expected_form(fields: dict[str, Any], problem: str) -> None:
    assert problems_of(rules(**fields)) == (problem,)


def test_numbers_and_percentages_are_not_compared() -> None:
    assert problems_of(rules(waves=[{"nodes": "5"}, {"nodes": "1%"}, {"nodes": "2%"}, {}])) == ()
