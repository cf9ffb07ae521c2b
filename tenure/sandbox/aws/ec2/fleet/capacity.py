"""Capacity of EC2: pools by type, zone and capacity type, and the account's vCPU quotas.

A pool without a set size is unlimited. `*` matches every type, zone or capacity type. The control API sets sizes.

Quotas limit the vCPUs of running instances by family class, separately for on-demand and spot. Codes and classes are
those of the Service Quotas console. Default quotas are too high to be reached; the control API changes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from tenure.sandbox.aws.ec2.records import PoolKey
from tenure.sandbox.aws.wire.responses import AwsError

if TYPE_CHECKING:
    from tenure.sandbox.aws.ec2.records import Instance
    from tenure.sandbox.aws.ec2.state import Environment


class CapacityPools:
    def __init__(self) -> None:
        self._remaining: dict[PoolKey, int] = {}
        self._codes: dict[PoolKey, tuple[str, str]] = {}

    def set_available(self, key: PoolKey, available: int | None, error: tuple[str, str] | None = None) -> None:
        """Set how many more instances a pool provides; None for unlimited. `error`: code and text when it is empty."""
        self._remaining.pop(key, None)
        self._codes.pop(key, None)
        if available is not None:
            self._remaining[key] = max(0, available)
            if error is not None:
                self._codes[key] = error

    def clear(self) -> None:
        self._remaining.clear()
        self._codes.clear()

    def error_when_empty(self, key: PoolKey) -> tuple[str, str] | None:
        """Code and text of an empty pool, if it has a custom error."""
        empty = (rule for rule in self._matching_rules(key) if self._remaining[rule] < 1)
        return next((self._codes[rule] for rule in empty if rule in self._codes), None)

    def remaining(self, key: PoolKey) -> int | None:
        """Number of instances that can still be launched, or None if unlimited."""
        bounds = [self._remaining[rule] for rule in self._matching_rules(key)]
        return min(bounds) if bounds else None

    def consume(self, key: PoolKey) -> list[PoolKey] | None:
        """Take capacity for one instance. Returns the charged rules, or None if there is no capacity."""
        rules = self._matching_rules(key)
        if any(self._remaining[rule] < 1 for rule in rules):
            return None
        for rule in rules:
            self._remaining[rule] -= 1
        return rules

    def give_back(self, rules: list[PoolKey]) -> None:
        for rule in rules:
            if rule in self._remaining:
                self._remaining[rule] += 1

    def list_pools(self) -> list[dict[str, object]]:
        return [
            {"instance_type": kind, "zone": zone, "capacity_type": usage, "available": left}
            for (kind, zone, usage), left in sorted(self._remaining.items())
        ]

    def _matching_rules(self, key: PoolKey) -> list[PoolKey]:
        if not self._remaining:
            return []
        kind, zone, usage = key
        every = product((kind, "*"), (zone, "*"), (usage, "*"))
        return [rule for rule in every if rule in self._remaining]


DEFAULT_VCPUS = 1_000_000
STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"


@dataclass(frozen=True)
class Quota:
    code: str
    name: str
    usage: str
    family: str


def _make_quota(code: str, family: str, usage: str = "on-demand") -> Quota:
    if usage == "spot":
        return Quota(code, f"All {family} Spot Instance Requests", usage, family)
    return Quota(code, f"Running On-Demand {family} instances", usage, family)


QUOTAS = (
    _make_quota("L-1216C47A", STANDARD),
    _make_quota("L-74FC7D96", "F"),
    _make_quota("L-DB2E81BA", "G and VT"),
    _make_quota("L-1945791B", "Inf"),
    _make_quota("L-417A185B", "P"),
    _make_quota("L-7295265B", "X"),
    _make_quota("L-2C3B7624", "Trn"),
    _make_quota("L-6E869C2A", "DL"),
    _make_quota("L-F7808C92", "HPC"),
    _make_quota("L-43DA4232", "High Memory"),
    _make_quota("L-34B43A08", STANDARD, "spot"),
    _make_quota("L-88CF9481", "F", "spot"),
    _make_quota("L-3819A6DF", "G and VT", "spot"),
    _make_quota("L-B5D1601B", "Inf", "spot"),
    _make_quota("L-7212CCBC", "P", "spot"),
    _make_quota("L-E3A00192", "X", "spot"),
    _make_quota("L-6B0D517C", "Trn", "spot"),
    _make_quota("L-85EED4F7", "DL", "spot"),
)
BY_CODE = {quota.code: quota for quota in QUOTAS}
BY_FAMILY_AND_USAGE = {(quota.family, quota.usage): quota.code for quota in QUOTAS}
CLASSES = {
    "f": "F", "g": "G and VT", "gr": "G and VT", "vt": "G and VT", "inf": "Inf", "p": "P", "x": "X", "trn": "Trn",
    "dl": "DL", "hpc": "HPC", "u": "High Memory",
}  # fmt: skip


def quota_code(instance_type: str, lifecycle: str) -> str | None:
    """The quota that counts the instance; None if no quota does."""
    letters = re.match(r"[a-z]+", instance_type)
    family = CLASSES.get(letters[0] if letters else "", STANDARD)
    return BY_FAMILY_AND_USAGE.get((family, "spot" if lifecycle == "spot" else "on-demand"))


def limit_of(environment: Environment, code: str) -> int:
    return environment.quotas.get(code, DEFAULT_VCPUS)


def require_quota(environment: Environment, instance_type: str, lifecycle: str, vcpus: int) -> None:
    """Raises VcpuLimitExceeded or MaxSpotInstanceCountExceeded if `vcpus` more would exceed the quota."""
    code = quota_code(instance_type, lifecycle)
    if code is None or environment.vcpus_used.get(code, 0) + vcpus <= limit_of(environment, code):
        return
    if lifecycle == "spot":
        raise AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    raise AwsError(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {limit_of(environment, code)} "
        "allows for the "
        "instance bucket that the specified instance type belongs to.",
    )


def charge_quota(environment: Environment, instance: Instance, *, running: bool) -> None:
    """Charge the instance to its quota, or free it; repeated calls count once."""
    if instance.counted == running:
        return
    instance.counted = running
    code = quota_code(instance.instance_type, instance.lifecycle)
    if code is not None:
        environment.vcpus_used[code] = environment.vcpus_used.get(code, 0) + (
            instance.vcpus if running else -instance.vcpus
        )
