"""Requests for devices of Dynamic Resource Allocation as amounts, so that plans treat them as other resources.

A *demand* is a device class with selectors, and each of its devices satisfies it. Demands that share devices form a
group. Every set of demands of a group is one amount. A node has as many of it as free devices that satisfy one of them.
A pod requests as many as it needs for them together. By Hall's theorem, the pods of a node get their devices if and
only if none of these amounts is exceeded.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from tenure.kube.facts.device_selectors import SelectorError
from tenure.kube.facts.resource_claims import PREFIX
from tenure.kube.facts.resource_slices import Device, Expressions

Templates = tuple[tuple[Device, int], ...]
"""Devices of an instance type: one of each kind, and the number of equal ones."""

MAX_GROUP: Final = 4
"""Demands that share devices; each further one doubles the amounts."""
_DIGEST_LENGTH: Final = 6


@dataclass(frozen=True)
class Demand:
    device_class: str
    selectors: Expressions
    """Of the request."""
    expressions: Expressions
    """Those of the class first."""

    @property
    def name(self) -> str:
        digest = hashlib.sha256("\0".join(self.expressions).encode()).hexdigest()[:_DIGEST_LENGTH]
        return f"devices of {self.device_class}" + (f"#{digest}" if self.selectors else "")


@dataclass
class DemandGroups:
    """The amounts by demand. `problems`: why a demand cannot be planned."""

    amounts: dict[Demand, tuple[str, ...]] = field(default_factory=dict)
    problems: dict[Demand, str] = field(default_factory=dict)


def build_groups(
    demands: Iterable[Demand], devices: Iterable[Sequence[Device]], types: Iterable[Templates] = ()
) -> DemandGroups:
    """`devices`: by Node, those that exist. `types`: those of new nodes."""
    groups, usable = DemandGroups(), set(demands)
    matched = {_match_device(device, usable, groups.problems) for many in devices for device in many}
    failed: dict[Demand, str] = {}
    for templates in types:
        found, errors = match_templates(templates, usable)
        matched.update(map(frozenset, found))
        failed |= {one: min(error, failed.get(one, error)) for one, error in errors.items()}
    for demand in failed.keys() - set().union(*matched):
        groups.problems[demand] = f"{PREFIX}: {failed[demand]}"
        usable.discard(demand)
    for group in _join_overlapping(usable, matched):
        if len(group) > MAX_GROUP:
            problem = f"{PREFIX}: more than {MAX_GROUP} different requests of all pods select the same devices"
            groups.problems |= dict.fromkeys(group, problem)
        else:
            groups.amounts |= _name_amounts(group)
    return groups


def _match_device(device: Device, usable: set[Demand], problems: dict[Demand, str]) -> frozenset[Demand]:
    """The demands that the device satisfies. Those whose selector fails are moved to `problems`."""
    satisfied = set[Demand]()
    for demand in tuple(usable):
        try:
            satisfied |= {demand} if device.matches(demand.expressions) else set()
        except SelectorError as error:
            problems[demand] = f"{PREFIX}: {error}"
            usable.discard(demand)
    return frozenset(satisfied)


def _name_amounts(group: Collection[Demand]) -> dict[Demand, tuple[str, ...]]:
    """By demand, an amount for every set of demands of the group that contains it."""
    members = sorted(group, key=lambda one: one.name)
    names: dict[Demand, list[str]] = {one: [] for one in members}
    for size in range(1, len(members) + 1):
        for subset in combinations(members, size):
            for one in subset:
                names[one].append(" or ".join(member.name for member in subset))
    return {one: tuple(found) for one, found in names.items()}


def match_templates(templates: Templates, demands: Iterable[Demand]) -> tuple[list[set[Demand]], dict[Demand, str]]:
    """The demands that each device of an instance type satisfies, and the errors of selectors.

    A type satisfies no demand whose selector fails for one of its devices, since kube-scheduler stops there.
    """
    satisfied, errors = [set[Demand]() for _ in templates], dict[Demand, str]()
    for demand in demands:
        try:
            matches = [device.matches(demand.expressions) for device, _ in templates]
        except SelectorError as error:
            errors[demand] = str(error)
            continue
        for found, is_match in zip(satisfied, matches, strict=True):
            found |= {demand} if is_match else set()
    return satisfied, errors


def _join_overlapping(demands: Iterable[Demand], matched: Iterable[frozenset[Demand]]) -> list[set[Demand]]:
    """The demands in groups that share no device."""
    groups = [{one} for one in demands]
    for overlapping in matched:
        touched = [one for one in groups if one & overlapping]
        if len(touched) > 1:
            groups = [one for one in groups if one not in touched] + [set().union(*touched)]
    return groups
