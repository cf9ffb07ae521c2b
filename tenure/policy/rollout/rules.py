"""LifecyclePolicy.spec.rollout as numbers and times, and the problems that the CRD does not check.

Invalid rules block the rollouts of their NodePools, so that no change rolls out without the requested waves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tenure.apis.durations import parse_duration
from tenure.apis.lifecyclepolicy_disruption import (
    RolloutApproval,
    RolloutHealth,
    RolloutQuery,
    RolloutRules,
    RolloutWave,
)
from tenure.model.rollout import HealthGate
from tenure.policy.disruption.budgets import read_count, share_of

SOONEST: Final = timedelta(seconds=10)
"""Minimum interval between evaluations, since each costs calls and history events."""


@dataclass(frozen=True, slots=True)
class Wave:
    nodes: str | None
    """None: all remaining nodes."""
    soak: timedelta

    def node_goal(self, size: int) -> int:
        """How many of `size` drifted nodes are replaced by the end of the wave; at least one."""
        return size if self.nodes is None else min(size, max(1, share_of(self.nodes, size)))


@dataclass(frozen=True, slots=True)
class Rules:
    waves: tuple[Wave, ...]
    """The last wave includes all remaining nodes."""
    nodes_ready: int
    """Percent."""
    pods_ready: int | None
    failed_starts: int
    gates: tuple[HealthGate, ...]
    every: timedelta
    failing_for: timedelta
    rolls_back: bool
    approvers: int
    """0: no approval is required."""
    expires: timedelta
    stale_after: str


def problems_of(rules: RolloutRules, field: str = "spec.rollout") -> tuple[str, ...]:
    return tuple(_find_problems(rules, field))


def resolve_rules(rules: RolloutRules) -> Rules:
    health, approval = rules.health or RolloutHealth(), rules.approval or RolloutApproval()
    waves = tuple(Wave(one.nodes, _duration_or_default(one.soak, "0s")) for one in rules.waves or (RolloutWave(),))
    rest = () if waves[-1].nodes is None else (Wave(None, timedelta(0)),)
    return Rules(
        waves=waves + rest,
        nodes_ready=_parse_percent(health.nodes_ready or "90%"),
        pods_ready=_parse_percent(health.pods_ready) if health.pods_ready else None,
        failed_starts=health.failed_starts or 2,
        gates=tuple(_build_gate(one) for one in health.queries or ()),
        every=_duration_or_default(health.every, "1m"),
        failing_for=_duration_or_default(health.failing_for, "2m"),
        rolls_back=rules.on_failure == "rollBack",
        approvers=(approval.approvers or 1) if approval.required else 0,
        expires=_duration_or_default(approval.expires, "24h"),
        stale_after=approval.stale_after or "20%",
    )


def _find_problems(rules: RolloutRules, field: str) -> Iterator[str]:
    yield from _wave_problems(rules.waves or (), f"{field}.waves")
    if rules.health is not None:
        health = f"{field}.health"
        yield from _duration_problems(rules.health.every, f"{health}.every", "1m", SOONEST)
        yield from _duration_problems(rules.health.failing_for, f"{health}.failingFor", "2m")
        yield from _share_problems(rules.health.nodes_ready, f"{health}.nodesReady")
        yield from _share_problems(rules.health.pods_ready, f"{health}.podsReady")
        for number, query in enumerate(rules.health.queries or ()):
            yield from _query_problems(query, f"{health}.queries[{number}]")
    if rules.approval is not None:
        yield from _duration_problems(rules.approval.expires, f"{field}.approval.expires", "24h", timedelta(minutes=1))
        yield from _share_problems(rules.approval.stale_after, f"{field}.approval.staleAfter")


def _wave_problems(waves: tuple[RolloutWave, ...], field: str) -> Iterator[str]:
    before: RolloutWave | None = None
    for number, wave in enumerate(waves):
        here = f"{field}[{number}]"
        yield from _duration_problems(wave.soak, f"{here}.soak", "10m")
        if wave.nodes is None:
            if number < len(waves) - 1:
                yield f"{here}.nodes: missing, expected e.g. '20%': only the last wave replaces all remaining nodes"
            continue
        try:
            count = read_count(wave.nodes)
        except ValueError as error:
            yield f"{here}.nodes: {error}"
            continue
        if count <= 0:
            yield f"{here}.nodes: {wave.nodes!r} replaces no node, expected '1' or more, or remove the wave"
        elif before is not None and _is_no_more(wave.nodes, before.nodes or ""):
            yield (
                f"{here}.nodes: {wave.nodes!r} is not larger than {before.nodes!r} of the previous wave, which it "
                "includes; set a larger number"
            )
        before = wave


def _query_problems(query: RolloutQuery, field: str) -> Iterator[str]:
    yield from _duration_problems(query.timeout, f"{field}.timeout", "10s", most=timedelta(minutes=1))
    if (query.below is None) == (query.above is None):
        yield f"{field}: expected exactly one of below, e.g. below: '0.01', and above, e.g. above: '1'"
    for name, limit in (("below", query.below), ("above", query.above)):
        try:
            float(limit or 0)
        except ValueError:
            yield f"{field}.{name}: {limit!r}: invalid number, expected e.g. '0.01'"


def _duration_problems(
    text: str | None, field: str, example: str, least: timedelta = timedelta(0), most: timedelta | None = None
) -> Iterator[str]:
    if text is None:
        return
    try:
        span = parse_duration(text)
    except ValueError as error:
        yield f"{field}: {error}"
        return
    problem = "invalid duration" if span is None else "too short" if span < least else ""
    if span is not None and most is not None and span > most:
        problem = "too long"
    if problem:
        yield f"{field}: {text!r}: {problem}, expected e.g. {example}"


def _share_problems(text: str | None, field: str) -> Iterator[str]:
    try:
        _parse_percent(text or "0%")
    except ValueError:
        yield f"{field}: {text!r}: invalid percentage, expected e.g. '90%'"


def _is_no_more(nodes: str, before: str) -> bool:
    return nodes.endswith("%") == before.endswith("%") and share_of(nodes, 100) <= share_of(before, 100)


def _parse_percent(text: str) -> int:
    if not text.endswith("%"):
        raise ValueError(text)
    return int(text[:-1])


def _duration_or_default(text: str | None, default: str) -> timedelta:
    return parse_duration(text or default) or timedelta(0)


def _build_gate(query: RolloutQuery) -> HealthGate:
    return HealthGate(
        name=query.name or query.query[:60],
        query=query.query,
        below=None if query.below is None else float(query.below),
        above=None if query.above is None else float(query.above),
        timeout=_duration_or_default(query.timeout, "10s"),
    )
