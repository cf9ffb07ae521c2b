"""A build of a newer release. Python imports this module at start, if its folder is in PYTHONPATH.

Each object of a model that it writes to Temporal has a field that this release does not know, at any depth.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter

NEW_FIELD = "fieldOfNewerRelease"

_to_payload = PydanticJSONPlainPayloadConverter.to_payload


def to_payload(converter: PydanticJSONPlainPayloadConverter, value: Any) -> Payload | None:
    payload = _to_payload(converter, value)
    if payload is not None:
        written = json.loads(payload.data)
        add_new_field(value, written)
        payload.data = json.dumps(written).encode()
    return payload


def add_new_field(value: Any, written: Any) -> None:
    """Change `written`, the JSON of `value`. Keys of a mapping are data, so a mapping gets no field."""
    if isinstance(value, BaseModel) and isinstance(written, dict):
        for name, field in type(value).model_fields.items():
            add_new_field(getattr(value, name), written.get(field.serialization_alias or field.alias or name))
        written[NEW_FIELD] = {"values": [1]}
    elif isinstance(value, Mapping) and isinstance(written, dict):
        for key, item in value.items():
            add_new_field(item, written.get(str(key)))
    elif isinstance(value, tuple | list) and isinstance(written, list):
        for item, part in zip(value, written, strict=True):
            add_new_field(item, part)


PydanticJSONPlainPayloadConverter.to_payload = to_payload  # type: ignore[assignment]
