"""How much EC2 has left: capacity pools by type, zone and capacity type, and the account's vCPU limits.

A pool that nobody set is without end. `*` stands for every type, zone or capacity type. Filled by the control API.
"""

from __future__ import annotations

from itertools import product

from sandbox.aws.ec2.records import PoolKey


class CapacityPools:
    def __init__(self) -> None:
        self._left: dict[PoolKey, int] = {}
        self._codes: dict[PoolKey, tuple[str, str]] = {}

    def set(self, key: PoolKey, available: int | None, error: tuple[str, str] | None = None) -> None:
        """Fix how many more instances a pool gives; None makes it endless again. `error`: what it says when empty."""
        self._left.pop(key, None)
        self._codes.pop(key, None)
        if available is not None:
            self._left[key] = max(0, available)
            if error is not None:
                self._codes[key] = error

    def clear(self) -> None:
        self._left.clear()
        self._codes.clear()

    def error(self, key: PoolKey) -> tuple[str, str] | None:
        """Code and text of an empty pool that has its own."""
        empty = (rule for rule in self._rules(key) if self._left[rule] < 1)
        return next((self._codes[rule] for rule in empty if rule in self._codes), None)

    def left(self, key: PoolKey) -> int | None:
        """Instances that can still be launched, or None if there is no bound."""
        bounds = [self._left[rule] for rule in self._rules(key)]
        return min(bounds) if bounds else None

    def take(self, key: PoolKey) -> list[PoolKey] | None:
        """Use one instance's worth; the rules charged, or None if there is none left."""
        rules = self._rules(key)
        if any(self._left[rule] < 1 for rule in rules):
            return None
        for rule in rules:
            self._left[rule] -= 1
        return rules

    def give_back(self, rules: list[PoolKey]) -> None:
        for rule in rules:
            if rule in self._left:
                self._left[rule] += 1

    def listing(self) -> list[dict[str, object]]:
        return [
            {"instance_type": kind, "zone": zone, "capacity_type": usage, "available": left}
            for (kind, zone, usage), left in sorted(self._left.items())
        ]

    def _rules(self, key: PoolKey) -> list[PoolKey]:
        if not self._left:
            return []
        kind, zone, usage = key
        every = product((kind, "*"), (zone, "*"), (usage, "*"))
        return [rule for rule in every if rule in self._left]
