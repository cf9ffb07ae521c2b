"""Parse the EC2 query protocol: parameters such as `Filter.1.Value.2=x` become the nested dictionary of boto3.

`http.application` decodes the form first. Handlers in `ec2` receive members under their documented names. The shapes
for `query` and `xml` are from botocore's model of the EC2 API, which is loaded once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape

from tenure.sandbox.aws.wire.responses import invalid_value


@cache
def ec2_model() -> ServiceModel:
    return ServiceModel(Loader().load_service_model("ec2", "service-2"), service_name="ec2")


@cache
def ec2_operation(action: str) -> OperationModel:
    """Raises botocore's OperationNotFoundError for an unknown action."""
    return ec2_model().operation_model(action)


NUMBERS = {"integer": int, "long": int, "float": float, "double": float}
Tree = dict[str, Any]


def parse_form(action: str, form: dict[str, str]) -> dict[str, Any]:
    """The input of an action. Raises AwsError InvalidParameterValue for an invalid number or boolean."""
    shape = ec2_operation(action).input_shape
    if shape is None:
        return {}
    return _parse_structure(shape, _form_tree(form))


def _form_tree(form: dict[str, str]) -> Tree:
    root: Tree = {}
    for key, value in form.items():
        node = root
        *path, leaf = key.split(".")
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise invalid_value(f"The parameter {key} is not valid")
        node[leaf] = value
    return root


@cache
def _wire_members(shape: StructureShape) -> list[tuple[str, str, Shape]]:
    return [(_wire_name(name, member), name, member) for name, member in shape.members.items()]


def _wire_name(name: str, shape: Shape) -> str:
    query_name = shape.serialization.get("queryName")
    if query_name:
        return str(query_name)
    location = str(shape.serialization.get("name", name))
    return location[0].upper() + location[1:]


def _parse_structure(shape: StructureShape, node: Tree) -> dict[str, Any]:
    found = {}
    for wire, name, member in _wire_members(shape):
        if wire in node:
            found[name] = _parse_value(member, node[wire], wire)
    return found


def _parse_value(shape: Shape, node: Any, name: str) -> Any:
    if isinstance(shape, StructureShape):
        return _parse_structure(shape, node) if isinstance(node, dict) else {}
    if isinstance(shape, ListShape):
        return _list(shape, node, name)
    if isinstance(node, dict):
        raise invalid_value(f"The parameter {name} is not valid")
    return _parse_scalar(shape.type_name, node, name)


def _list(shape: ListShape, node: Any, name: str) -> list[Any]:
    if not isinstance(node, dict):
        return [] if node == "" else [_parse_value(shape.member, node, name)]
    try:
        keys = sorted(node, key=int)
    except ValueError:
        raise invalid_value(f"The parameter {name} is not valid") from None
    return [_parse_value(shape.member, node[key], name) for key in keys]


def _parse_scalar(type_name: str, text: str, name: str) -> Any:
    if type_name == "boolean":
        if text.lower() not in ("true", "false"):
            raise invalid_value(f"Invalid value '{text}' for {name}. Must be true or false")
        return text.lower() == "true"
    convert = NUMBERS.get(type_name)
    if convert is None:
        return text
    try:
        return convert(text)
    except ValueError:
        raise invalid_value(f"Invalid value '{text}' for {name}. Must be a number") from None
