"""Render EC2 responses: a dictionary with documented member names becomes XML by botocore's output shapes.

A `Raw` string is inserted unchanged, so that a handler can cache XML that rarely changes.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

from botocore.model import ListShape, Shape, StructureShape

from tenure.sandbox.aws.wire.query import ec2_model, ec2_operation

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
Writer = Callable[[Any], str]


class Raw(str):
    """Rendered XML."""


def iso(at: dt.datetime) -> str:
    """A time in EC2's format: UTC, milliseconds, `Z`."""
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def action_response(action: str, values: dict[str, Any]) -> bytes:
    shape = ec2_operation(action).output_shape
    inner = shape_writer(shape)(values) if shape is not None else ""
    return envelope(action, inner)


def envelope(action: str, inner: str) -> bytes:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{NAMESPACE}">'
        f"<requestId>{uuid.uuid4()}</requestId>{inner}</{action}Response>"
    ).encode()


def named_shape(name: str, value: Any) -> Raw:
    """The content of an element of the shape, to cache for later responses."""
    return Raw(_named_writer(name)(value))


@cache
def _named_writer(name: str) -> Writer:
    return shape_writer(ec2_model().shape_for(name))


@cache
def shape_writer(shape: Shape) -> Writer:
    if isinstance(shape, StructureShape):
        return _structure_writer(shape)
    if isinstance(shape, ListShape):
        return _list_writer(shape)
    return _scalar_writer(shape.type_name)


def _structure_writer(shape: StructureShape) -> Writer:
    members = [(name, str(m.serialization.get("name", name)), m) for name, m in shape.members.items()]

    def write(value: Any) -> str:
        if isinstance(value, Raw):
            return value
        parts = []
        for name, wire, member in members:
            inner = value.get(name)
            if inner is not None:
                parts.append(f"<{wire}>{shape_writer(member)(inner)}</{wire}>")
        return "".join(parts)

    return write


def _list_writer(shape: ListShape) -> Writer:
    def write(value: Any) -> str:
        if isinstance(value, Raw):
            return value
        member = shape_writer(shape.member)
        item = str(shape.member.serialization.get("name", "item"))
        return "".join(f"<{item}>{member(one)}</{item}>" for one in value)

    return write


def _scalar_writer(type_name: str) -> Writer:
    if type_name == "boolean":
        return lambda value: "true" if value else "false"
    if type_name == "timestamp":
        return lambda value: iso(value) if isinstance(value, dt.datetime) else escape(str(value))
    return lambda value: escape(str(value))
