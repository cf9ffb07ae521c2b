"""The instance types and subnets of one launch request, and how they are written down: as tables, not one by one.

A request of 60 types in three zones has 180 overrides that repeat the same few templates, subnets and prices. A history
holds each of them once; in memory they are spelled out.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from model.base import Message


class LaunchOverride(Message):
    """One instance type in one subnet, under one launch template."""

    launch_template: str
    instance_type: str
    zone: str
    subnet_id: str
    image_id: str
    priority: float
    """The offering's price in US dollars an hour."""
    reservation_id: str = ""
    """The capacity reservation that its launch template targets."""


def _written(overrides: Sequence[LaunchOverride]) -> dict[str, Any]:
    """`types` has a line for each type in turn: name, number of its template, numbers of its subnets, prices there.

    One price stands for all of a line's subnets.
    """
    templates = list(dict.fromkeys(map(_template, overrides)))
    subnets = list(dict.fromkeys(map(_subnet, overrides)))
    lines = []
    for (name, template), group in groupby(overrides, key=lambda one: (one.instance_type, _template(one))):
        ones = list(group)
        prices = [one.priority for one in ones]
        places = [subnets.index(_subnet(one)) for one in ones]
        lines.append([name, templates.index(template), places, prices[:1] if len(set(prices)) == 1 else prices])
    return {"templates": templates, "subnets": subnets, "types": lines}


def _read(written: Any) -> Any:
    """From what `_written` made; anything else is passed on as it is."""
    if not isinstance(written, dict):
        return written
    return tuple(
        LaunchOverride(
            instance_type=name,
            launch_template=written["templates"][template][0],
            image_id=written["templates"][template][1],
            reservation_id=written["templates"][template][2],
            subnet_id=written["subnets"][place][0],
            zone=written["subnets"][place][1],
            priority=price,
        )
        for name, template, places, prices in written["types"]
        for place, price in zip(places, prices if len(prices) > 1 else prices * len(places), strict=True)
    )


def _template(one: LaunchOverride) -> tuple[str, str, str]:
    return one.launch_template, one.image_id, one.reservation_id


def _subnet(one: LaunchOverride) -> tuple[str, str]:
    return one.subnet_id, one.zone


Overrides = Annotated[
    tuple[LaunchOverride, ...],
    BeforeValidator(_read),
    PlainSerializer(_written, return_type=dict[str, Any], when_used="json"),
]
