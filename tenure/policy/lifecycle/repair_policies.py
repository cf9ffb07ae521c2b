"""Repair policies: Karpenter's tables for AWS, and the policies that match the conditions of a node.

The table for voluntary repair is that of Karpenter 1.15 (reference 1.15, section 3.8). LEGACY_NODE_REPAIR selects that
of 1.14. A LifecyclePolicy replaces either.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Final, Literal

from tenure.apis.durations import parse_duration_or_none
from tenure.apis.lifecyclepolicy import LifecycleRules, RepairCondition
from tenure.model.base import Value
from tenure.model.node_health import RepairMode

PRIORITY_RANK: Final = timedelta(minutes=30)
"""Waiting this long is worth one rank of priority (reference 1.15, section 3.4)."""
_MAX_REASON_LENGTH: Final = 200
"""Characters of a condition's reason that are searched, so that no pattern takes long."""
NOT_READY_PAIRS: Final = (("Ready", "False"), ("Ready", "Unknown"))
_PAIRS: Final = (
    *NOT_READY_PAIRS,
    ("AcceleratedHardwareReady", "False"),
    ("StorageReady", "False"),
    ("NetworkingReady", "False"),
    ("KernelReady", "False"),
    ("ContainerRuntimeReady", "False"),
)
_GPU: Final = "AcceleratedHardwareReady"
LEGACY_CONDITIONS: Final = tuple(
    RepairCondition(type=type_, status=status, toleration="10m" if type_ == _GPU else "30m") for type_, status in _PAIRS
)
GPU_REBOOT_PATTERN: Final = ".*XID(46|48|54|62|63|95|109|110|136|140|143|155|156|158).*"
"""NVIDIA errors that a reboot fixes."""
GPU_REPLACE_PATTERN: Final = ".*XID(64|74|79|119|120).*"
"""NVIDIA errors of broken hardware."""


def _gpu_condition(pattern: str, action: Literal["reboot", "replace"]) -> RepairCondition:
    return RepairCondition(
        type=_GPU, status="False", reason=pattern, toleration="10m", termination_grace_period="5m", action=action
    )


def _build_conditions(action: Literal["reboot", "replace"]) -> tuple[RepairCondition, ...]:
    others = tuple(
        RepairCondition(type=type_, status=status, toleration="30m", termination_grace_period="10m")
        for type_, status in _PAIRS
    )
    return (_gpu_condition(GPU_REBOOT_PATTERN, action), _gpu_condition(GPU_REPLACE_PATTERN, "replace"), *others)


_CONDITIONS: Final[Mapping[RepairMode, tuple[RepairCondition, ...]]] = {
    "legacy": LEGACY_CONDITIONS,
    "replace": _build_conditions("replace"),
    "reboot": _build_conditions("reboot"),
}


def repair_conditions(rules: LifecycleRules | None, mode: RepairMode = "legacy") -> tuple[RepairCondition, ...]:
    written = rules.repair.conditions if rules and rules.repair else None
    return _CONDITIONS[mode] if written is None else written


def unhealthy_pairs(conditions: Sequence[RepairCondition]) -> tuple[tuple[str, str], ...]:
    """Type and status of every condition that counts, without duplicates, in order."""
    return tuple(dict.fromkeys((one.type, one.status) for one in conditions))


def matching_conditions(
    conditions: Sequence[RepairCondition], type_: str, status: str, reason: str
) -> tuple[RepairCondition, ...]:
    """Entries whose pattern matches the reason; if there is none, those without a pattern."""
    same = [one for one in conditions if (one.type, one.status) == (type_, status)]
    specific = tuple(one for one in same if one.reason and _matches(one.reason, reason))
    return specific or tuple(one for one in same if not one.reason)


def _matches(pattern: str, reason: str) -> bool:
    compiled = _compile_pattern(pattern)
    return compiled is not None and compiled.search(reason[:_MAX_REASON_LENGTH]) is not None


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str] | None:
    """None for an invalid pattern, which matches nothing."""
    try:
        return re.compile(pattern)
    except re.error:
        return None


class PolicyMatch(Value):
    """A current condition of the node, and an entry that matches it."""

    policy: RepairCondition
    since: datetime
    due: datetime

    @property
    def condition(self) -> str:
        return f"{self.policy.type}={self.policy.status}"


def choose_match(matches: Collection[PolicyMatch], now: datetime) -> PolicyMatch | None:
    """The cause of the next step: of those that are due, `replace` before `reboot`, then the highest priority, then
    the earliest (reference 1.15, section 3.4). If none is due, the earliest."""
    due = _select_due(matches, now)
    if due:
        return min(due, key=_decision_order)
    return min(matches, key=lambda one: (one.due, one.condition), default=None)


def _decision_order(one: PolicyMatch) -> tuple[bool, int, datetime, str]:
    return one.policy.action == "reboot", -(one.policy.priority or 0), one.due, one.condition


def shortest_grace(matches: Collection[PolicyMatch], now: datetime) -> timedelta | None:
    """The shortest bound of the drain over all entries that are due; None without a bound."""
    written = (parse_duration_or_none(one.policy.termination_grace_period) for one in _select_due(matches, now))
    return min((one for one in written if one is not None), default=None)


def repair_order_at(
    matches: Collection[PolicyMatch], conditions: Sequence[RepairCondition], now: datetime
) -> datetime | None:
    """The time by which nodes are repaired, earliest first: each rank of priority counts as PRIORITY_RANK of waiting.
    None if no entry is due."""
    ranks = {priority: rank for rank, priority in enumerate(sorted({one.priority or 0 for one in conditions}))}
    order = (one.due - ranks[one.policy.priority or 0] * PRIORITY_RANK for one in _select_due(matches, now))
    return min(order, default=None)


def _select_due(matches: Collection[PolicyMatch], now: datetime) -> list[PolicyMatch]:
    return [one for one in matches if one.due <= now]


def find_invalid_patterns(conditions: Sequence[RepairCondition]) -> Iterator[tuple[int, str]]:
    """Index and pattern of each entry whose pattern is invalid."""
    for index, one in enumerate(conditions):
        if one.reason and _compile_pattern(one.reason) is None:
            yield index, one.reason
