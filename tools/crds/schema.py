"""Convert the models of `tenure/apis` to the OpenAPI schemas of their CRDs.

Types come from the annotations, everything else from the `Crd` metadata next to them. `generate.py` wraps the result.
"""

import ast
import inspect
import textwrap
import types
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tenure.apis.crd_schema import QUANTITY_PATTERN, Crd, Rule
from tenure.apis.meta import KubeObject, Quantities

Schema = dict[str, Any]
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    datetime: {"type": "string", "format": "date-time"},
}
_QUANTITY: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": QUANTITY_PATTERN,
    "x-kubernetes-int-or-string": True,
}
_ROOT: dict[str, Schema] = {
    "apiVersion": {"type": "string", "description": "API version of this object."},
    "kind": {"type": "string", "description": "The kind of this object."},
    "metadata": {"type": "object"},
}


def root_schema(model: type[KubeObject]) -> Schema:
    """The schema of a kind, with apiVersion, kind and metadata."""
    schema = _object_schema(model, skip=frozenset({"api_version", "kind", "metadata"}))
    schema["properties"] = _ROOT | schema["properties"]
    return schema


def _object_schema(model: type[BaseModel], skip: frozenset[str] = frozenset()) -> Schema:
    fields = {name: info for name, info in model.model_fields.items() if name not in skip}
    docs = {name: text for base in reversed(model.__mro__) for name, text in _field_docs(base).items()}
    schema: Schema = {
        "type": "object",
        "description": _first_sentences(model),
        "properties": {
            _json_name(name, info): _field_schema(info, docs.get(name, "")) for name, info in sorted(fields.items())
        },
    }
    required = sorted(_json_name(name, info) for name, info in fields.items() if _crd_of(info).required)
    return schema | ({"required": required} if required else {})


def _field_schema(info: FieldInfo, doc: str) -> Schema:
    schema = _type_schema(info.annotation) | ({"description": doc} if doc else {})
    return _apply(schema, _crd_of(info))


@cache
def _field_docs(model: type) -> Mapping[str, str]:
    """Docstrings below the fields of a class, by field."""
    if not issubclass(model, BaseModel) or model is BaseModel:
        return {}
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(node, ast.ClassDef)
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _type_schema(annotation: Any) -> Schema:
    plain = _without_none(annotation)
    if plain in _PLAIN:
        return dict(_PLAIN[plain])
    if plain == Quantities:
        return {"type": "object", "additionalProperties": dict(_QUANTITY)}
    if plain == dict[str, Any]:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if get_origin(plain) is Literal:
        return {"type": "string", "enum": list(get_args(plain))}
    if get_origin(plain) is dict:
        return {"type": "object", "additionalProperties": _type_schema(get_args(plain)[1])}
    if get_origin(plain) is tuple:
        return {"type": "array", "items": _type_schema(get_args(plain)[0])}
    if isinstance(plain, type) and issubclass(plain, BaseModel):
        return _object_schema(plain)
    raise TypeError(f"no OpenAPI type is known for {annotation!r}")


def _apply(schema: Schema, crd: Crd) -> Schema:
    """Apply `Crd` metadata to a schema. A keyword with the value None is removed, rules are appended."""
    if crd.doc:
        schema["description"] = crd.doc
    schema |= crd.schema
    schema = {keyword: value for keyword, value in schema.items() if value is not None}
    if crd.rules:
        schema["x-kubernetes-validations"] = [
            *schema.get("x-kubernetes-validations", []),
            *map(_validation_rule, crd.rules),
        ]
    if crd.items is not None:
        inner = "items" if schema["type"] == "array" else "additionalProperties"
        schema[inner] = _apply(schema[inner], crd.items)
    for alias, about in crd.fields.items():
        schema["properties"][alias] = _apply(schema["properties"][alias], about)
    return schema


def _validation_rule(rule: Rule) -> Mapping[str, str]:
    return {"rule": rule.rule, "message": rule.message}


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation):
        return next(one for one in get_args(annotation) if one is not type(None))
    return annotation


def _crd_of(info: FieldInfo) -> Crd:
    return next((one for one in info.metadata if isinstance(one, Crd)), Crd())


def _json_name(name: str, info: FieldInfo) -> str:
    return info.serialization_alias or name


def _first_sentences(model: type[BaseModel]) -> str:
    return " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split())
